//! What each file and folder of the upper is in the tree.

use std::collections::{HashMap, HashSet};

use atoll_store::tree::{Dirent, FileType, TreeView};
use atoll_store::{Code, Error, Ino, Result};

use super::attrs::{Attrs, Opaque, handle_of_name};
use super::index::{Index, Record, nanos};
use super::keys::Keys;
use super::lower::{Handle, LowerIds};
use super::read::{Facts, Wanted, same_file};
use crate::scan::{HostStat, Scan, ScanDir, join, parent};

/// What a name of the upper stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Child {
    /// The lower's file of this name is gone.
    Whiteout,
    /// A folder, by position.
    Dir(usize),
    /// Anything else, by position.
    File(usize),
}

/// A folder of the upper.
pub(super) struct PlanDir<'s> {
    /// Its path in the upper.
    pub path: &'s [u8],
    /// Its listing.
    pub scan: &'s ScanDir,
    /// Beside the scan's entries.
    pub children: Vec<Child>,
    /// What was read of it; `None` when it is as it was at the last capture.
    pub facts: Option<Box<Facts>>,
    /// Its number in the tree.
    pub key: Ino,
    /// The base's folder that it is merged with.
    pub lower: Option<Ino>,
    /// Files in it can be whiteouts by an attribute.
    pub whiteouts: bool,
    /// It has just been given its number.
    pub new: bool,
}

/// A file of the upper, whatever its names.
pub(super) struct PlanFile {
    /// What the walk saw.
    pub stat: HostStat,
    /// What was read of it; `None` when it is as it was at the last capture.
    pub facts: Option<Box<Facts>>,
    /// Its number in the tree; `None` when it turned out to be a whiteout.
    pub key: Option<Ino>,
    /// The base's file that it was copied up from.
    pub inherited: bool,
    /// Where data comes from that was not copied up.
    pub source: Option<Ino>,
    /// It is mapped shared and writable.
    pub mapped: bool,
    /// It has just been given its number.
    pub new: bool,
    /// Its first name: folder and entry; of a file in the index folder only, the handle.
    pub place: Place,
}

/// Where a file was found.
pub(super) enum Place {
    /// Folder and entry.
    Upper(usize, usize),
    /// Only in the index folder: all its names are the lower's.
    Index(Option<Handle>),
}

/// The upper, related to the tree.
pub(super) struct Plan<'s> {
    /// Folders, each after the one that it is in.
    pub dirs: Vec<PlanDir<'s>>,
    /// Files.
    pub files: Vec<PlanFile>,
}

/// Whose facts a wish is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// A folder's.
    Dir(usize),
    /// A file's.
    File(usize),
}

/// What is to be read, and for whom.
pub(super) type Wishes = Vec<(Wanted, Target)>;

/// Files that are mapped shared and writable, by the numbers that the overlay shows.
pub(super) struct Mapped<'a> {
    /// The numbers.
    pub shown: &'a HashSet<u64>,
    /// Knows the lower's numbers.
    pub lower: &'a dyn LowerIds,
}

impl Mapped<'_> {
    /// Whether this file of the upper is one of them.
    pub fn has(&self, ino: u64, key: Option<Ino>) -> bool {
        // An inherited file shows the lower's number, with `xino`'s bits on top.
        const PLAIN: u64 = (1 << 62) - 1;
        !self.shown.is_empty()
            && (self.shown.contains(&ino)
                || key
                    .and_then(|key| self.lower.st_ino(key))
                    .is_some_and(|lower| self.shown.iter().any(|shown| shown & PLAIN == lower & PLAIN)))
    }
}

impl<'s> Plan<'s> {
    /// Sorts the upper (and the index folder's listing) into what is as it was and what is to be read.
    pub fn new(
        scan: &'s Scan,
        linked: Option<&ScanDir>,
        index: &Index,
        trust: bool,
        mapped: &Mapped<'_>,
    ) -> (Plan<'s>, Wishes, Wishes) {
        let mut plan = Plan { dirs: Vec::with_capacity(scan.dirs.len()), files: Vec::new() };
        let mut wanted = Vec::new();
        let places: HashMap<&[u8], usize> =
            scan.dirs.keys().enumerate().map(|(at, path)| (&**path, at)).collect();
        let mut by_ino: HashMap<u64, usize> = HashMap::new();
        let mut near = index.near();
        let mut known = |stat: &HostStat| {
            let record = near.get(stat.ino)?;
            let same = trust && record.clean && !record.retired && record.ctime == nanos(stat.ctime);
            (same && record.is_file(stat)).then_some(record)
        };
        for (at, (path, dir)) in scan.dirs.iter().enumerate() {
            let record = known(&dir.stat);
            if record.is_none() {
                wanted.push((
                    Wanted { dir: path.clone(), name: Box::default(), stat: dir.stat },
                    Target::Dir(at),
                ));
            }
            let mut children = Vec::with_capacity(dir.entries.len());
            for (entry_at, entry) in dir.entries.iter().enumerate() {
                let stat = &entry.stat;
                if stat.kind == FileType::Dir {
                    // The walk is whole, so the folder was listed.
                    let child = places.get(&join(path, &entry.name)[..]);
                    children.push(child.map_or(Child::Whiteout, |at| Child::Dir(*at)));
                    continue;
                }
                if stat.kind == FileType::Char && stat.rdev == 0 {
                    children.push(Child::Whiteout);
                    continue;
                }
                if let Some(file) = by_ino.get(&stat.ino).filter(|_| stat.nlink > 1) {
                    children.push(Child::File(*file));
                    continue;
                }
                let record = known(stat).filter(|record| record.extra == stat.size);
                let file = PlanFile::new(stat, record, mapped, Place::Upper(at, entry_at));
                let number = plan.files.len();
                if record.is_none() || file.mapped {
                    let wish = Wanted { dir: path.clone(), name: entry.name.clone(), stat: *stat };
                    wanted.push((wish, Target::File(number)));
                }
                if stat.nlink > 1 {
                    by_ino.insert(stat.ino, number);
                }
                children.push(Child::File(number));
                plan.files.push(file);
            }
            plan.dirs.push(PlanDir {
                path,
                scan: dir,
                children,
                facts: None,
                key: record.and_then(|record| record.key).unwrap_or(Ino::ROOT),
                lower: record.and_then(|record| Ino::from_key(record.extra)),
                whiteouts: record.is_some_and(|record| record.whiteouts),
                new: false,
            });
        }
        let mut index_wanted = Vec::new();
        for entry in linked.iter().flat_map(|dir| &dir.entries) {
            if entry.stat.kind == FileType::Dir || (entry.stat.kind == FileType::Char && entry.stat.rdev == 0)
            {
                continue;
            }
            if by_ino.contains_key(&entry.stat.ino) {
                continue;
            }
            let record = known(&entry.stat).filter(|record| record.extra == entry.stat.size);
            let place = Place::Index(handle_of_name(&entry.name));
            let file = PlanFile::new(&entry.stat, record, mapped, place);
            if record.is_none() || file.mapped {
                let wish = Wanted { dir: Box::default(), name: entry.name.clone(), stat: entry.stat };
                index_wanted.push((wish, Target::File(plan.files.len())));
            }
            plan.files.push(file);
        }
        (plan, wanted, index_wanted)
    }

    /// Hands over what was read.
    pub fn give(&mut self, target: Target, facts: Box<Facts>) {
        match target {
            Target::Dir(at) => self.dirs[at].facts = Some(facts),
            Target::File(at) => self.files[at].facts = Some(facts),
        }
    }

    /// Takes back all that was read.
    pub fn facts(&mut self) -> impl Iterator<Item = Box<Facts>> {
        let dirs = self.dirs.iter_mut().filter_map(|dir| dir.facts.take());
        dirs.chain(self.files.iter_mut().filter_map(|file| file.facts.take()))
    }

    /// Finds every folder's and file's place in the tree.
    ///
    /// # Errors
    /// `Damaged` when the upper says things about a base that this is not.
    pub fn identify(&mut self, trees: &Trees<'_>, index: &Index, keys: &mut Keys<'_>) -> Result<()> {
        let places: HashMap<&[u8], usize> =
            self.dirs.iter().enumerate().map(|(at, dir)| (dir.path, at)).collect();
        let mut merged: HashMap<Ino, usize> = HashMap::new();
        let mut copied: HashMap<Ino, u64> = HashMap::new();
        for file in self.files.iter().filter(|file| file.inherited) {
            copied.extend(file.key.map(|key| (key, file.stat.ino)));
        }
        for at in 0..self.dirs.len() {
            let path = self.dirs[at].path;
            let above = places.get(parent(path)).filter(|_| at != 0).map(|above| &self.dirs[*above]);
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
            if let Some(facts) = &self.dirs[at].facts {
                let lower = match above {
                    None => Some(Ino::ROOT),
                    Some(above) => trees.lower_dir(&facts.attrs, above.lower, name)?,
                };
                let above_key = above.map(|above| above.key);
                let stat = facts.stat;
                let (key, new) = match lower {
                    Some(lower) => (lower, false),
                    None => trees.folder_or_file(&stat, above_key, name, index, keys)?,
                };
                let whiteouts = facts.attrs.opaque == Opaque::Whiteouts;
                let dir = &mut self.dirs[at];
                (dir.key, dir.lower, dir.new, dir.whiteouts) = (key, lower, new, whiteouts);
            }
            if let Some(lower) = self.dirs[at].lower
                && let Some(other) = merged.insert(lower, at)
            {
                return Err(twice(self.dirs[other].path, path));
            }
            let dir = &self.dirs[at];
            let (above_key, above_lower) = (dir.key, dir.lower);
            let (whiteouts, scan) = (dir.whiteouts, dir.scan);
            for (entry_at, entry) in scan.entries.iter().enumerate() {
                let Child::File(number) = self.dirs[at].children[entry_at] else { continue };
                let file = &mut self.files[number];
                // Of several names the first one counts.
                if !matches!(file.place, Place::Upper(dir, entry) if (dir, entry) == (at, entry_at)) {
                    continue;
                }
                trees.file(file, above_key, above_lower, &entry.name, whiteouts, index, keys, &mut copied)?;
            }
        }
        for file in &mut self.files {
            if let (Place::Index(Some(handle)), None) = (&file.place, file.key) {
                file.key = trees.ids.key(handle);
                file.inherited = true;
                file.source = file.key;
                let there = file.key.map_or(Ok(None), |key| trees.base.inode(key))?;
                if there.is_none() {
                    return Err(foreign(b"its folder of hard links"));
                }
            }
        }
        Ok(())
    }
}

impl PlanFile {
    fn new(stat: &HostStat, record: Option<Record>, mapped: &Mapped<'_>, place: Place) -> PlanFile {
        let key = record.and_then(|record| record.key);
        PlanFile {
            stat: *stat,
            facts: None,
            key,
            inherited: record.is_some_and(|record| record.inherited),
            source: key,
            mapped: stat.kind == FileType::File && mapped.has(stat.ino, key),
            new: false,
            place,
        }
    }
}

/// The trees that an upper is compared with.
#[derive(Clone, Copy)]
pub(super) struct Trees<'a> {
    /// What the lower shows.
    pub base: TreeView<'a>,
    /// What was captured last.
    pub head: TreeView<'a>,
    /// The one that the edits are for: `head` when the index fits it, else `base`.
    pub from: TreeView<'a>,
    /// Relates handles to the base.
    pub ids: &'a dyn LowerIds,
}

impl Trees<'_> {
    /// The base's folder that a folder of the upper is merged with.
    fn lower_dir(&self, attrs: &Attrs, above: Option<Ino>, name: &[u8]) -> Result<Option<Ino>> {
        if attrs.opaque == Opaque::Yes {
            return Ok(None);
        }
        let found = match attrs.redirect.as_deref() {
            Some(path) if path.starts_with(b"/") => {
                self.base.resolve(&path[1..])?.map(|(ino, inode)| (ino, inode.kind))
            }
            redirect => {
                self.lower_name(above, redirect.unwrap_or(name))?.map(|dirent| (dirent.ino, dirent.kind))
            }
        };
        Ok(found.filter(|(_, kind)| *kind == FileType::Dir).map(|(ino, _)| ino))
    }

    fn lower_name(&self, above: Option<Ino>, name: &[u8]) -> Result<Option<Dirent>> {
        above.map_or(Ok(None), |above| self.base.lookup(above, name))
    }

    /// The number of what is not the base's: the one that it has, or a new one.
    fn folder_or_file(
        &self,
        stat: &HostStat,
        above: Option<Ino>,
        name: &[u8],
        index: &Index,
        keys: &mut Keys<'_>,
    ) -> Result<(Ino, bool)> {
        let known = index.get(stat.ino).filter(|record| record.is_file(stat) && !record.inherited);
        if let Some(key) = known.and_then(|record| record.key) {
            keys.keep(key);
            return Ok((key, false));
        }
        if !index.valid && self.head.root != self.base.root {
            let there = above.map_or(Ok(None), |above| self.head.lookup(above, name))?;
            if let Some(key) = keys.recall(stat, there.map(|dirent| dirent.ino))? {
                keys.keep(key);
                return Ok((key, false));
            }
        }
        Ok((keys.new_key(stat)?, true))
    }

    #[expect(clippy::too_many_arguments, reason = "one call, in one loop")]
    fn file(
        &self,
        file: &mut PlanFile,
        above: Ino,
        above_lower: Option<Ino>,
        name: &[u8],
        whiteouts: bool,
        index: &Index,
        keys: &mut Keys<'_>,
        copied: &mut HashMap<Ino, u64>,
    ) -> Result<()> {
        let Some(facts) = &file.facts else { return Ok(()) };
        let attrs = &facts.attrs;
        if attrs.whiteout && whiteouts && facts.stat.size == 0 {
            file.key = None;
            return Ok(());
        }
        let of_kind =
            |ino: Ino| Ok::<_, Error>(self.base.inode(ino)?.filter(|inode| inode.kind == file.stat.kind));
        let mut source = None;
        if let Some(origin) = &attrs.origin {
            if let Some(key) = origin.as_ref().and_then(|handle| self.ids.key(handle)) {
                source = of_kind(key)?.map(|_| key);
            }
            if source.is_none() {
                // No handle that says which: then the kernel goes by the redirect or the name, and so does this.
                source = match attrs.redirect.as_deref() {
                    Some(path) if path.starts_with(b"/") => {
                        self.base.resolve(&path[1..])?.map(|(ino, _)| ino)
                    }
                    redirect => {
                        self.lower_name(above_lower, redirect.unwrap_or(name))?.map(|dirent| dirent.ino)
                    }
                };
                source = source.map_or(Ok(None), |key| Ok::<_, Error>(of_kind(key)?.map(|_| key)))?;
            }
        }
        if attrs.metacopy && source.is_none() {
            return Err(foreign(name));
        }
        file.source = source;
        // Two files of the upper copied from one of the base: only one of them can be it.
        let free = source.filter(|key| *copied.entry(*key).or_insert(file.stat.ino) == file.stat.ino);
        file.inherited = free.is_some();
        (file.key, file.new) = match free {
            Some(key) => (Some(key), false),
            None => {
                let (key, new) = self.folder_or_file(&facts.stat, Some(above), name, index, keys)?;
                (Some(key), new)
            }
        };
        debug_assert!(same_file(&facts.stat, &file.stat));
        Ok(())
    }
}

fn foreign(name: &[u8]) -> Error {
    Error::new(
        Code::Damaged,
        format!(
            "The workspace's upper folder refers to a file that its base commit does not have ({}), so it \
             cannot be captured; nothing was changed. Copy what you need out of the mounted workspace.",
            String::from_utf8_lossy(name)
        ),
    )
}

fn twice(one: &[u8], other: &[u8]) -> Error {
    Error::new(
        Code::Damaged,
        format!(
            "The workspace's upper folder shows one folder of its base commit twice, as {} and {}, so it cannot \
             be captured; nothing was changed. Copy what you need out of the mounted workspace.",
            String::from_utf8_lossy(one),
            String::from_utf8_lossy(other)
        ),
    )
}
