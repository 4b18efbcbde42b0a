//! From an archive's members to a tree.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read;

use atoll_store::tree::{Dirent, Edit, FileType, Inode, Time, edit};
use atoll_store::{BirthId, Code, Error, Hash, Ino, Objects, Result, Store};
use tar::EntryType;

use super::reader::{Archive, Member};
use crate::import::{Captured, Report, captured};
use crate::ingest::assign::Ids;
use crate::ingest::base::Base;
use crate::ingest::contents::StreamError;
use crate::ingest::edits::target;
use crate::ingest::{Extents, FileState, Ingest, Names, Parents, edits, xattrs};
use crate::progress::{Phase, Progress, check};

/// How to read an archive.
#[derive(Debug, Clone, Default)]
pub struct ImportTarOptions {
    /// The commit whose inodes are kept where paths are the same.
    pub base: Option<Hash>,
    /// Where inode numbers and birth ids come from; `None` means the system.
    pub seed: Option<u64>,
}

/// Reads a tar archive (not compressed) into a new writer: the whole tree is what the archive holds. A later
/// member replaces an earlier one of the same name; folders that no member describes are made.
///
/// # Errors
/// `Usage` when the archive is malformed or holds a name that leads elsewhere (absolute, with `..`, or below
/// something that is no folder); nothing is stored then.
pub fn import_tar(
    store: &Store,
    input: &mut dyn Read,
    options: &ImportTarOptions,
    progress: &dyn Progress,
) -> Result<Captured> {
    let before = options.base.map(|id| store.commit(&id)).transpose()?;
    let base = match &before {
        None => Base::empty(),
        Some(commit) => Base::load(store, commit.record.root, Base::NEVER)?,
    };
    let writer = store.writer()?;
    let mut report = Report::default();
    let mut ingest = Ingest::new(writer.batch());
    let mut files = Files::new();
    let mut archive = Archive::new(input);
    while let Some(member) = archive.next()? {
        check(progress)?;
        let bytes = ingest.bytes;
        files.add(&mut archive, member, &mut ingest)?;
        progress.advance(Phase::Read, 1, ingest.bytes - bytes);
    }
    report.read_bytes = ingest.bytes;
    ingest.finish()?;
    let edits = files.edits(&writer, &base, Ids::new(options.seed)?, &mut report)?;
    let root = match (base.root, edits.is_empty()) {
        (Some(root), true) => root,
        (root, _) => edit(&writer, root, edits)?,
    };
    report.changed = base.root != Some(root);
    captured(before.as_ref(), writer, root, report, BTreeMap::new(), progress)
}

/// A file of the archive.
struct File {
    inode: Inode,
    xattrs: xattrs::Xattrs,
    extents: Extents,
    names: BTreeMap<Box<[u8]>, usize>,
    /// Whether a member described it (a folder may only be implied).
    told: bool,
}

struct Files {
    all: Vec<File>,
}

impl Files {
    fn new() -> Files {
        Files { all: vec![File::new(FileType::Dir)] }
    }

    fn add(&mut self, archive: &mut Archive<'_>, member: Member, ingest: &mut Ingest<'_>) -> Result<()> {
        let names = components(&member.path)?;
        let kind = match member.entry_type {
            EntryType::Link => {
                let file = self
                    .find(&components(&member.link)?)
                    .filter(|&at| self.all[at].inode.kind != FileType::Dir);
                let file = file.ok_or_else(|| {
                    let (path, link) = (shown(&member.path), shown(&member.link));
                    archive.malformed(&format!(
                        "'{path}' is a hard link to '{link}', which is no file before it"
                    ))
                })?;
                return self.place(&names, file);
            }
            EntryType::Directory => FileType::Dir,
            EntryType::Symlink => FileType::Symlink,
            EntryType::Fifo => FileType::Fifo,
            EntryType::Char => FileType::Char,
            EntryType::Block => FileType::Block,
            // Old archives mark folders by a slash at the end alone.
            EntryType::Regular if member.path.ends_with(b"/") && member.stored == 0 => FileType::Dir,
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => FileType::File,
            other => {
                let path = shown(&member.path);
                return Err(
                    archive.malformed(&format!("'{path}' is of an unknown kind ({})", other.as_byte()))
                );
            }
        };
        let mut file = File::new(kind);
        file.told = true;
        file.inode = Inode {
            mode: if kind == FileType::Symlink { 0o777 } else { member.mode },
            uid: member.uid,
            gid: member.gid,
            rdev: member.rdev,
            mtime: member.mtime,
            ctime: member.mtime,
            btime: member.mtime,
            ..file.inode
        };
        file.xattrs = member.xattrs.into_iter().filter(|(name, _)| xattrs::is_kept(name)).collect();
        match kind {
            FileType::Symlink => {
                file.inode.size = member.link.len() as u64;
                file.extents = target(&member.link);
            }
            FileType::File => {
                let mut contents = archive.contents();
                let (size, extents) = match &member.sparse {
                    Some(map) => (map.size, ingest.regions(&mut contents, map.size, &map.regions)),
                    None => (member.stored, ingest.stream(&mut contents, member.stored)),
                };
                file.inode.size = size;
                file.extents = extents.map_err(|error| match error {
                    StreamError::Short => archive.malformed("it ends too early"),
                    StreamError::Read(error) => Error {
                        message: format!("atoll could not read the archive: {error}"),
                        ..Error::from(error)
                    },
                    StreamError::Store(error) => error,
                })?;
            }
            _ => {}
        }
        if kind == FileType::Dir {
            // A folder's own member may come after what is in it.
            if let Some(at) = self.find(&names).filter(|&at| self.all[at].inode.kind == FileType::Dir) {
                file.names = std::mem::take(&mut self.all[at].names);
                self.all[at] = file;
                return Ok(());
            }
        }
        self.all.push(file);
        self.place(&names, self.all.len() - 1)
    }

    fn find(&self, names: &[&[u8]]) -> Option<usize> {
        names.iter().try_fold(0, |at, name| self.all[at].names.get(*name).copied())
    }

    /// Gives a file a name, in place of what had it.
    fn place(&mut self, names: &[&[u8]], file: usize) -> Result<()> {
        let refused = |what: &str| {
            let path = shown(&names.join(&b'/'));
            Error::new(Code::Usage, format!("The tar archive holds '{path}', {what}. Nothing was imported."))
        };
        let Some((last, above)) = names.split_last() else {
            return Err(refused("a name for the folder itself that is no folder"));
        };
        let mut at = 0;
        for name in above {
            at = match self.all[at].names.get(*name) {
                Some(&next) if self.all[next].inode.kind == FileType::Dir => next,
                Some(_) => return Err(refused("which is below something that is no folder")),
                None => {
                    self.all.push(File::new(FileType::Dir));
                    let next = self.all.len() - 1;
                    self.all[at].names.insert((*name).into(), next);
                    next
                }
            };
        }
        if let Some(&there) = self.all[at].names.get(*last)
            && self.all[there].inode.kind == FileType::Dir
            && !self.all[there].names.is_empty()
        {
            return Err(refused("which would replace a folder that is not empty"));
        }
        self.all[at].names.insert((*last).into(), file);
        Ok(())
    }

    /// The edits that make the base tree this one.
    fn edits(
        mut self,
        objects: &dyn Objects,
        base: &Base,
        mut ids: Ids,
        report: &mut Report,
    ) -> Result<Vec<Edit>> {
        // Walk in path order: numbers then are neighbours where names are.
        let mut numbers: HashMap<usize, Ino> = HashMap::from([(0, Ino::ROOT)]);
        let mut parents: HashMap<usize, Parents> = HashMap::new();
        let mut taken: HashSet<Ino> = HashSet::from([Ino::ROOT]);
        let mut order = vec![0];
        let mut open = vec![0];
        let mut low = 1u32;
        while let Some(dir) = open.pop() {
            let dir_ino = numbers[&dir];
            let mut below = Vec::new();
            for (name, &at) in &self.all[dir].names {
                parents.entry(at).or_default().push((dir_ino, name.clone()));
                if numbers.contains_key(&at) {
                    continue;
                }
                let kind = self.all[at].inode.kind;
                let there = base
                    .lookup(dir_ino, name)
                    .filter(|dirent| dirent.kind == kind && !taken.contains(&dirent.ino));
                low += 1;
                let ino = there.map_or_else(
                    || ids.ino(low, |ino| taken.contains(&ino) || base.files.contains_key(&ino)),
                    |dirent| dirent.ino,
                );
                taken.insert(ino);
                numbers.insert(at, ino);
                order.push(at);
                if kind == FileType::Dir {
                    below.push(at);
                }
            }
            open.extend(below.into_iter().rev());
        }
        order.sort_unstable_by_key(|at| numbers[at]);
        let mut all = Vec::new();
        let mut gone: Vec<Ino> = base.files.keys().copied().filter(|ino| !taken.contains(ino)).collect();
        gone.sort_unstable();
        let mut gone = gone.into_iter().peekable();
        for at in order {
            let ino = numbers[&at];
            while let Some(gone) = gone.next_if(|gone| *gone < ino) {
                edits(objects, base.root, gone, None, &mut all)?;
            }
            let is_dir = self.all[at].inode.kind == FileType::Dir;
            report.dirs += u64::from(is_dir);
            report.files += u64::from(!is_dir);
            report.read_files += u64::from(self.all[at].inode.kind == FileType::File);
            let dirents = self.dirents(at, ino, base, &numbers);
            let names = parents.remove(&at).unwrap_or_default();
            let folders = dirents.iter().filter(|(_, dirent)| dirent.kind == FileType::Dir).count();
            let nlink = if is_dir { 2 + folders } else { names.len() } as u32;
            let file = &mut self.all[at];
            let known = base.files.get(&ino).map(|file| &file.inode);
            let birth = known.map_or_else(|| ids.birth(), |inode| inode.birth);
            let mut inode = Inode { birth, nlink, ..file.inode };
            // A folder that nothing describes keeps what the base tree says about it.
            if let (false, Some(known)) = (file.told, known) {
                inode = Inode { nlink, ..*known };
            }
            let xattrs = (file.told || known.is_none()).then(|| std::mem::take(&mut file.xattrs));
            let state = FileState {
                ino,
                inode,
                parents: names,
                xattrs,
                kept_xattrs: Vec::new(),
                keep_privileged: false,
                dirents,
                extents: Some(std::mem::take(&mut file.extents)),
            };
            edits(objects, base.root.filter(|_| known.is_some()), ino, Some(&state), &mut all)?;
        }
        for gone in gone {
            edits(objects, base.root, gone, None, &mut all)?;
        }
        Ok(all)
    }

    fn dirents(&self, at: usize, ino: Ino, base: &Base, numbers: &HashMap<usize, Ino>) -> Names {
        let mut last =
            base.dirs.get(&ino).into_iter().flatten().map(|(_, dirent)| dirent.cookie).max().unwrap_or(0);
        let mut dirents = Vec::new();
        for (name, at) in &self.all[at].names {
            let cookie = base.lookup(ino, name).map_or_else(
                || {
                    last += 1;
                    last
                },
                |dirent| dirent.cookie,
            );
            dirents.push((name.clone(), Dirent { ino: numbers[at], kind: self.all[*at].inode.kind, cookie }));
        }
        dirents
    }
}

impl File {
    fn new(kind: FileType) -> File {
        let zero = Time::default();
        let inode = Inode {
            birth: BirthId(0),
            kind,
            mode: 0o755,
            uid: 0,
            gid: 0,
            size: 0,
            nlink: 0,
            rdev: 0,
            mtime: zero,
            ctime: zero,
            btime: zero,
        };
        File { inode, xattrs: Vec::new(), extents: Extents::new(), names: BTreeMap::new(), told: false }
    }
}

/// A member's name in components; what would lead out of the tree is refused, not bent.
fn components(path: &[u8]) -> Result<Vec<&[u8]>> {
    let refused = |what: &str| {
        let path = shown(path);
        Err(Error::new(
            Code::Usage,
            format!("The tar archive holds the name '{path}', which {what}. Nothing was imported."),
        ))
    };
    if path.starts_with(b"/") {
        return refused("is absolute");
    }
    let names: Vec<&[u8]> =
        path.split(|&byte| byte == b'/').filter(|name| !matches!(*name, b"" | b".")).collect();
    if names.contains(&&b".."[..]) {
        return refused("leads upwards");
    }
    if names.iter().any(|name| name.len() > 255 || name.contains(&0)) {
        return refused("no file can have");
    }
    Ok(names)
}

fn shown(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}
