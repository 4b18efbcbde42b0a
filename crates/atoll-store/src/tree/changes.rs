//! What differs between two trees, as people see it: paths.
//!
//! Files match first by inode number and birth id, then (a replaced file) by birth id alone, then by their name in
//! the matching folder. So a moved folder is one change, and a file that an editor saved by rename is modified.

use std::collections::{BTreeMap, HashMap};

use crate::tree::diff::same_extent;
use crate::tree::record::{Paths, Record, differing, same_fields};
use crate::tree::{FileType, Inode, TreeView};
use crate::{BirthId, Ino, Num, Objects, Result};

/// How a path changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// Only in the new tree.
    Added,
    /// Only in the old tree.
    Deleted,
    /// Contents (or a link's target, or a device's number) differ.
    Modified,
    /// Only mode, owner, extended attributes or (when asked for) mtime differ.
    Metadata,
    /// The same file under another name; contents may have changed too (`content_changed`).
    Renamed,
    /// Another kind of file at the same path.
    TypeChanged,
}

/// One changed path. A renamed folder is one change; what is in it and did not change is not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// How.
    pub kind: ChangeKind,
    /// The path in the new tree (of a deletion: in the old one).
    pub path: Vec<u8>,
    /// The path in the old tree, where it is another one: of a rename, and of a change within a renamed folder.
    pub old_path: Option<Vec<u8>>,
    /// The inode in the old tree.
    pub old: Option<(Ino, Inode)>,
    /// The inode in the new tree.
    pub new: Option<(Ino, Inode)>,
    /// Whether the bytes differ.
    pub content_changed: bool,
    /// Whether mode, owner or extended attributes differ.
    pub metadata_changed: bool,
}

/// The changes from `old` to `new`, sorted by path. Files match by inode number and birth id; a file that was
/// replaced at its path (save by rename) is `Modified`. Each name of a hard link is a path of its own. A folder whose
/// only change is its times, link count or size is not listed.
///
/// # Errors
/// Those of [`Objects`].
pub fn changes(objects: &dyn Objects, old: Option<Num>, new: Option<Num>) -> Result<Vec<Change>> {
    list(objects, old, new, false)
}

/// The same; where nothing else changed, the files and folders with another mtime, as [`ChangeKind::Metadata`]. Empty
/// when the trees differ in nothing that anybody can set.
///
/// # Errors
/// Those of [`Objects`].
pub fn changes_or_times(objects: &dyn Objects, old: Option<Num>, new: Option<Num>) -> Result<Vec<Change>> {
    let changes = changes(objects, old, new)?;
    if changes.is_empty() { list(objects, old, new, true) } else { Ok(changes) }
}

fn list(objects: &dyn Objects, old: Option<Num>, new: Option<Num>, times: bool) -> Result<Vec<Change>> {
    let mut compare = Compare {
        objects,
        times,
        old: old.map(|root| TreeView::new(objects, root)),
        new: new.map(|root| TreeView::new(objects, root)),
        pairs: Vec::new(),
        map: HashMap::new(),
    };
    let (gone, come) = compare.match_by_number(old, new)?;
    let (gone, come) = compare.match_by_birth(gone, come);
    let mut paths = [compare.old.map(Paths::new), compare.new.map(Paths::new)];
    compare.match_by_name(gone, come, &mut paths)?;
    compare.list(&mut paths)
}

/// A file on one side, with all that the tree says of it.
struct File {
    ino: Ino,
    inode: Inode,
    record: Record,
}

/// A file on both sides, or on one.
struct Pair {
    old: Option<File>,
    new: Option<File>,
}

struct Compare<'a> {
    objects: &'a dyn Objects,
    old: Option<TreeView<'a>>,
    new: Option<TreeView<'a>>,
    /// Whether files that differ in nothing but their times count.
    times: bool,
    pairs: Vec<Pair>,
    /// Old inode numbers that mean another one in the new tree, or none.
    map: HashMap<Ino, Option<Ino>>,
}

/// Names of files that are gone without a successor, by folder of the new tree: which pair, and the old folder.
type Lost = HashMap<(Ino, Box<[u8]>), (usize, Ino)>;

type Files = BTreeMap<Ino, File>;

impl Compare<'_> {
    fn match_by_number(&mut self, old: Option<Num>, new: Option<Num>) -> Result<(Files, Files)> {
        let (mut gone, mut come) = (Files::new(), Files::new());
        for item in differing(self.objects, old, new) {
            let (ino, differing) = item?;
            match (differing.old.inode, differing.new.inode) {
                (None, None) if !self.times && !differing.beyond_inode() => {}
                (Some(old), Some(new))
                    if !self.times
                        && old.birth == new.birth
                        && same_fields(&old, &new)
                        && !differing.beyond_inode() => {}
                (Some(inode), None) => {
                    self.map.insert(ino, None);
                    gone.insert(ino, File { ino, inode, record: differing.old });
                }
                (None, Some(inode)) => {
                    come.insert(ino, File { ino, inode, record: differing.new });
                }
                _ => {
                    let (old, new) = (file(self.old, ino)?, file(self.new, ino)?);
                    match (old, new) {
                        // An inode number that came to mean another file.
                        (Some(old), Some(new)) if old.inode.birth != new.inode.birth => {
                            self.map.insert(ino, None);
                            gone.insert(ino, old);
                            come.insert(ino, new);
                        }
                        (old, new) => self.pairs.push(Pair { old, new }),
                    }
                }
            }
        }
        Ok((gone, come))
    }

    fn pair(&mut self, old: File, new: File) {
        self.map.insert(old.ino, Some(new.ino));
        self.pairs.push(Pair { old: Some(old), new: Some(new) });
    }

    fn match_by_birth(&mut self, gone: Files, mut come: Files) -> (Files, Files) {
        let births: HashMap<BirthId, Ino> = come.values().map(|file| (file.inode.birth, file.ino)).collect();
        let mut rest = Files::new();
        for (ino, old) in gone {
            match births.get(&old.inode.birth).and_then(|new| come.remove(new)) {
                Some(new) => self.pair(old, new),
                None => {
                    rest.insert(ino, old);
                }
            }
        }
        (rest, come)
    }

    /// Folders before what is in them, so that a replaced folder's files find their counterparts.
    fn match_by_name(
        &mut self,
        gone: Files,
        mut come: Files,
        paths: &mut [Option<Paths<'_>>; 2],
    ) -> Result<()> {
        let mut by_name: HashMap<(Ino, Box<[u8]>), Ino> = HashMap::new();
        for file in come.values() {
            by_name.extend(file.record.parents.iter().cloned().map(|name| (name, file.ino)));
        }
        let mut order = Vec::with_capacity(gone.len());
        for (_, file) in gone {
            let path = match (file.record.parents.first(), &mut paths[0]) {
                (Some((dir, name)), Some(paths)) => paths.of(*dir, name)?,
                _ => None,
            };
            order.push((path, file));
        }
        order.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (_, old) in order {
            let names =
                old.record.parents.iter().filter_map(|(dir, name)| Some((self.new_dir(*dir)?, name.clone())));
            let found = if old.ino == Ino::ROOT {
                come.remove(&Ino::ROOT)
            } else {
                names.filter_map(|name| by_name.get(&name)).find_map(|ino| come.remove(ino))
            };
            match found {
                Some(new) => self.pair(old, new),
                None => self.pairs.push(Pair { old: Some(old), new: None }),
            }
        }
        self.pairs.extend(come.into_values().map(|file| Pair { old: None, new: Some(file) }));
        Ok(())
    }

    /// Which folder of the new tree an old one is.
    fn new_dir(&self, dir: Ino) -> Option<Ino> {
        self.map.get(&dir).copied().unwrap_or(Some(dir))
    }

    fn list(mut self, paths: &mut [Option<Paths<'_>>; 2]) -> Result<Vec<Change>> {
        let pairs = std::mem::take(&mut self.pairs);
        let mut lost = self.lost_names(&pairs);
        let mut changes = Vec::new();
        // Deletions come last: a rename over an old file takes its deletion away.
        let (whole, partly): (Vec<_>, Vec<_>) = pairs.iter().partition(|pair| pair.new.is_some());
        for pair in whole.into_iter().chain(partly) {
            self.list_pair(pair, &pairs, &mut lost, paths, &mut changes)?;
        }
        // A path can be told twice when folders moved: what was there is gone, something else has come.
        let order = |change: &Change| (change.kind != ChangeKind::Deleted, change.kind);
        changes.sort_by(|a, b| a.path.cmp(&b.path).then_with(|| order(a).cmp(&order(b))));
        Ok(changes)
    }

    fn lost_names(&self, pairs: &[Pair]) -> Lost {
        let mut lost = HashMap::new();
        for (at, pair) in pairs.iter().enumerate() {
            if let (Some(old), None) = (&pair.old, &pair.new) {
                for (old_dir, name) in &old.record.parents {
                    if let Some(dir) = self.new_dir(*old_dir) {
                        lost.insert((dir, name.clone()), (at, *old_dir));
                    }
                }
            }
        }
        lost
    }

    fn list_pair(
        &self,
        pair: &Pair,
        pairs: &[Pair],
        lost: &mut Lost,
        paths: &mut [Option<Paths<'_>>; 2],
        out: &mut Vec<Change>,
    ) -> Result<()> {
        // Each side's names: the folder that it is in the new tree, the name, the path.
        let mut names = [Vec::new(), Vec::new()];
        for (side, file) in [&pair.old, &pair.new].into_iter().enumerate() {
            let (Some(file), Some(paths)) = (file, &mut paths[side]) else { continue };
            if file.ino == Ino::ROOT {
                let dir = Some(Ino::ROOT).filter(|_| pair.old.is_some() && pair.new.is_some());
                names[side].push((dir, Box::from([]), Vec::new()));
            }
            for (dir, name) in &file.record.parents {
                if let Some(path) = paths.of(*dir, name)? {
                    let dir = if side == 0 { self.new_dir(*dir) } else { Some(*dir) };
                    names[side].push((dir, name.clone(), path));
                }
            }
        }
        let [mut old_names, mut new_names] = names;
        let mut both = Vec::new();
        old_names.retain(|(dir, name, path)| {
            let same = new_names
                .iter()
                .position(|(new_dir, new_name, _)| (new_dir, new_name) == (dir, name) && dir.is_some());
            if let Some(at) = same {
                both.push((path.clone(), new_names.remove(at).2));
            }
            same.is_none()
        });
        let change = self.compare(pair)?;
        let touched = || (self.times && change.touched()).then_some(ChangeKind::Metadata);
        if let Some(kind) = change.kind_in_place().or_else(touched) {
            for (old_path, path) in &both {
                out.push(change.at(kind, path.clone(), Some(old_path.clone()).filter(|old| old != path)));
            }
        }
        let kept = !both.is_empty();
        old_names.sort_by(|a, b| a.2.cmp(&b.2));
        new_names.sort_by(|a, b| a.2.cmp(&b.2));
        let mut old_names = old_names.into_iter().peekable();
        for (dir, name, path) in new_names {
            let over = dir.and_then(|dir| lost.get(&(dir, name.clone())).copied());
            let (over, over_in) = over.map(|(at, dir)| (&pairs[at], dir)).unzip();
            let is_dir = pair.new.as_ref().is_some_and(|file| file.inode.kind == FileType::Dir);
            let over_dir =
                over.is_some_and(|over| over.old.as_ref().is_some_and(|old| old.inode.kind == FileType::Dir));
            match (over, dir) {
                // Moved over a file that was there: for the path it is new contents.
                (Some(over), Some(dir)) if !is_dir && !over_dir => {
                    let old_path = match (over_in, &mut paths[0]) {
                        (Some(dir), Some(paths)) => paths.of(dir, &name)?.filter(|old| *old != path),
                        _ => None,
                    };
                    lost.remove(&(dir, name));
                    let replaced = self.compare_files(over.old.as_ref(), pair.new.as_ref())?;
                    if let Some(kind) = replaced.kind_in_place() {
                        out.push(replaced.at(kind, path, old_path));
                    }
                }
                _ => {
                    let from = if kept || pair.old.is_none() { None } else { old_names.next() };
                    out.push(match from {
                        Some((.., old_path)) => change.at(ChangeKind::Renamed, path, Some(old_path)),
                        None => change.at(ChangeKind::Added, path, None),
                    });
                }
            }
        }
        for (dir, name, path) in old_names {
            // Names that a rename took over have been told already.
            if pair.new.is_some() || dir.is_none_or(|dir| lost.contains_key(&(dir, name))) {
                out.push(change.at(ChangeKind::Deleted, path, None));
            }
        }
        Ok(())
    }

    fn compare(&self, pair: &Pair) -> Result<Compared> {
        self.compare_files(pair.old.as_ref(), pair.new.as_ref())
    }

    fn compare_files(&self, old: Option<&File>, new: Option<&File>) -> Result<Compared> {
        let mut compared = Compared {
            old: old.map(|file| (file.ino, file.inode)),
            new: new.map(|file| (file.ino, file.inode)),
            content: true,
            metadata: true,
        };
        if let (Some(old), Some(new)) = (old, new) {
            let fields = |inode: &Inode| (inode.mode, inode.uid, inode.gid);
            compared.metadata =
                fields(&old.inode) != fields(&new.inode) || old.record.xattrs != new.record.xattrs;
            let is_dir = old.inode.kind == FileType::Dir && new.inode.kind == FileType::Dir;
            compared.content = !is_dir
                && (old.inode.kind != new.inode.kind
                    || (old.inode.size, old.inode.rdev) != (new.inode.size, new.inode.rdev)
                    || !self.same_extents(&old.record, &new.record)?);
        }
        Ok(compared)
    }

    fn same_extents(&self, old: &Record, new: &Record) -> Result<bool> {
        if old.extents.len() != new.extents.len() {
            return Ok(false);
        }
        for ((old_at, old), (new_at, new)) in old.extents.iter().zip(&new.extents) {
            if old_at != new_at || !same_extent(self.objects, old, new)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn file(view: Option<TreeView<'_>>, ino: Ino) -> Result<Option<File>> {
    let Some(view) = view else { return Ok(None) };
    Ok(view.record(ino)?.and_then(|record| Some(File { ino, inode: record.inode?, record })))
}

/// What two files differ in, wherever they stand.
struct Compared {
    old: Option<(Ino, Inode)>,
    new: Option<(Ino, Inode)>,
    content: bool,
    metadata: bool,
}

impl Compared {
    /// The kind of change at a path that is in both trees.
    fn kind_in_place(&self) -> Option<ChangeKind> {
        match (self.old, self.new) {
            (Some((_, old)), Some((_, new))) if old.kind != new.kind => Some(ChangeKind::TypeChanged),
            _ if self.content => Some(ChangeKind::Modified),
            _ if self.metadata => Some(ChangeKind::Metadata),
            _ => None,
        }
    }

    fn touched(&self) -> bool {
        matches!((self.old, self.new), (Some((_, old)), Some((_, new))) if old.mtime != new.mtime)
    }

    fn at(&self, kind: ChangeKind, path: Vec<u8>, old_path: Option<Vec<u8>>) -> Change {
        let (mut old, mut new) = (self.old, self.new);
        let (mut content_changed, mut metadata_changed) = (self.content, self.metadata);
        match kind {
            ChangeKind::Added => old = None,
            ChangeKind::Deleted => new = None,
            _ => {}
        }
        if old.is_none() || new.is_none() {
            (content_changed, metadata_changed) = (true, true);
        }
        Change { kind, path, old_path, old, new, content_changed, metadata_changed }
    }
}
