//! The tree that a folder is compared with, in memory: who has which name, and what stat data a file had when
//! it was last known to equal the tree.

use std::collections::{HashMap, HashSet};

use atoll_store::tree::{Dirent, FileType, Inode, Loaded, Time, load_all};
use atoll_store::{Ino, Num, Objects, Result};

use super::Names;
use super::fast::FastMap;
use crate::scan::HostStat;

/// What the host said about a file when it equalled the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// The host's inode number (an import: its low 32 bits).
    pub ino: u64,
    /// See [`HostStat`].
    pub mode: u16,
    /// See [`HostStat`].
    pub uid: u32,
    /// See [`HostStat`].
    pub gid: u32,
    /// See [`HostStat`].
    pub size: u64,
    /// See [`HostStat`].
    pub rdev: u64,
    /// See [`HostStat`].
    pub mtime: Time,
    /// See [`HostStat`].
    pub ctime: Time,
    /// See [`HostStat`].
    pub btime: Time,
}

impl Recorded {
    /// What an import recorded: the tree itself has it.
    pub fn of_inode(ino: Ino, inode: &Inode) -> Recorded {
        Recorded {
            ino: u64::from(ino.low()),
            mode: inode.mode,
            uid: inode.uid,
            gid: inode.gid,
            size: inode.size,
            rdev: inode.rdev,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
        }
    }

    /// What the host says now.
    pub fn of_host(stat: &HostStat) -> Recorded {
        Recorded {
            ino: stat.ino,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            size: if stat.kind == FileType::Dir { 0 } else { stat.size },
            rdev: stat.rdev,
            mtime: stat.mtime,
            ctime: stat.ctime,
            btime: stat.btime,
        }
    }

    /// Whether nothing that the host tells has changed, its inode number aside.
    pub(super) fn same(&self, stat: &HostStat) -> bool {
        let now = Recorded { ino: self.ino, ..Recorded::of_host(stat) };
        *self == now
    }
}

/// What an index knows about one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// The host's stat data.
    pub recorded: Recorded,
    /// Attributes of the tree that the host could not take.
    pub lost_xattrs: Vec<Box<[u8]>>,
}

/// How host inode numbers and the tree's relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// The tree's low 32 bits are the host's (an import).
    Low32,
    /// An index knows the host's numbers (the copy driver).
    Indexed,
}

/// A file of the base tree.
pub struct BaseFile {
    /// Its record.
    pub inode: Inode,
    /// The host's stat data; `None` when the index does not know it (then it is never clean).
    pub recorded: Option<Recorded>,
    /// Extended attributes that the host could not take and that are therefore kept.
    pub lost_xattrs: Vec<Box<[u8]>>,
}

/// Nearly always one file has a host number; the others stand behind it.
type Many = (Ino, Vec<Ino>);

fn note(by_host: &mut FastMap<u64, Many>, number: u64, ino: Ino) {
    by_host.entry(number).and_modify(|(_, more)| more.push(ino)).or_insert((ino, Vec::new()));
}

/// The base tree, in memory.
pub struct Base {
    /// Its root.
    pub root: Option<Num>,
    /// Every file of it.
    pub files: FastMap<Ino, BaseFile>,
    /// Every folder's names, sorted.
    pub dirs: FastMap<Ino, Names>,
    /// Files with a ctime at or after this are never clean.
    pub clean_before: Time,
    /// Files whose stat data says nothing (they were mapped).
    pub unclean: HashSet<Ino>,
    /// Files that were not made on the host (a device without the right to): kept while their folder is there.
    pub absent: HashSet<Ino>,
    /// How numbers relate.
    pub numbers: Numbers,
    /// The tree as it was loaded, until [`Base::relate`] makes `files` and `dirs` of it.
    pub(super) sorted: Loaded,
    by_host: FastMap<u64, Many>,
}

impl Base {
    /// As `clean_before`: no file is clean.
    pub const NEVER: Time = Time { sec: i64::MIN, nsec: 0 };

    /// Nothing.
    pub fn empty() -> Base {
        Base {
            root: None,
            files: FastMap::default(),
            dirs: FastMap::default(),
            clean_before: Base::NEVER,
            unclean: HashSet::new(),
            absent: HashSet::new(),
            numbers: Numbers::Low32,
            sorted: Loaded::default(),
            by_host: FastMap::default(),
        }
    }

    /// Loads a tree whose own records are the host's stat data (an import's).
    pub fn load(objects: &dyn Objects, root: Num, clean_before: Time) -> Result<Base> {
        let mut base = Base::load_sorted(objects, root, clean_before)?;
        base.relate();
        Ok(base)
    }

    /// The same for [`super::folder::read_folder`], which calls [`Base::relate`] only when something changed.
    pub fn load_sorted(objects: &dyn Objects, root: Num, clean_before: Time) -> Result<Base> {
        let sorted = load_all(objects, root)?;
        Ok(Base { root: Some(root), clean_before, sorted, ..Base::empty() })
    }

    /// Makes the maps by inode number.
    pub(super) fn relate(&mut self) {
        let Loaded { inodes, dirents, .. } = std::mem::take(&mut self.sorted);
        self.files.reserve(inodes.len());
        self.by_host.reserve(inodes.len());
        for (ino, inode) in inodes {
            let recorded = Some(Recorded::of_inode(ino, &inode));
            self.files.insert(ino, BaseFile { inode, recorded, lost_xattrs: Vec::new() });
            note(&mut self.by_host, u64::from(ino.low()), ino);
        }
        let mut dirents = dirents.into_iter().peekable();
        while let Some((dir, name, dirent)) = dirents.next() {
            let mut names = vec![(name, dirent)];
            while let Some((_, name, dirent)) = dirents.next_if(|(of, ..)| *of == dir) {
                names.push((name, dirent));
            }
            self.dirs.insert(dir, names);
        }
    }

    /// Replaces the records by an index's: what it does not know is never clean, and is taken for the file that
    /// the tree has under that name. An ordinary user's host never had another owner, a device, or a trusted
    /// attribute: without a record those are kept as they are.
    pub fn index(&mut self, mut records: HashMap<Ino, Known>) {
        let lost_index = records.is_empty();
        if lost_index && !rustix::process::geteuid().is_root() {
            let device = |file: &BaseFile| matches!(file.inode.kind, FileType::Char | FileType::Block);
            self.absent.extend(self.files.iter().filter(|(_, file)| device(file)).map(|(ino, _)| *ino));
        }
        self.numbers = Numbers::Indexed;
        self.by_host.clear();
        for (ino, file) in &mut self.files {
            (file.recorded, file.lost_xattrs) = match records.remove(ino) {
                Some(Known { recorded, lost_xattrs }) => {
                    note(&mut self.by_host, recorded.ino, *ino);
                    (Some(recorded), lost_xattrs)
                }
                None => (None, Vec::new()),
            };
        }
    }

    /// What a folder of the tree has under a name.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Option<&Dirent> {
        let names = self.dirs.get(&dir)?;
        names.binary_search_by(|(have, _)| (**have).cmp(name)).ok().map(|at| &names[at].1)
    }

    fn host_number(&self, stat: &HostStat) -> u64 {
        match self.numbers {
            Numbers::Low32 => u64::from(stat.ino as u32),
            Numbers::Indexed => stat.ino,
        }
    }

    /// Whether the host file is the tree's file `ino` that it finds under the same name: same kind, same number.
    pub fn is_at_its_place(&self, ino: Ino, stat: &HostStat) -> bool {
        let Some(file) = self.files.get(&ino) else { return false };
        if file.inode.kind != stat.kind {
            return false;
        }
        match file.recorded {
            _ if ino == Ino::ROOT => true,
            Some(recorded) => recorded.ino == self.host_number(stat),
            None => self.numbers == Numbers::Indexed,
        }
    }

    /// The tree's file that the host file is under another name, if any: same number, same kind, same birth.
    pub fn moved(&self, stat: &HostStat) -> impl Iterator<Item = Ino> {
        let known = self.by_host.get(&self.host_number(stat));
        let no_time = Time::default();
        known
            .into_iter()
            .flat_map(|(first, more)| std::iter::once(*first).chain(more.iter().copied()))
            .filter(move |ino| {
                let Some(file) = self.files.get(ino) else { return false };
                let Some(recorded) = file.recorded else { return false };
                // Where the host knows no birth, an unchanged file tells by its other times; a folder cannot.
                let same = if stat.btime != no_time || recorded.btime != no_time {
                    recorded.btime == stat.btime
                } else {
                    stat.kind != FileType::Dir && (recorded.mtime, recorded.size) == (stat.mtime, stat.size)
                };
                *ino != Ino::ROOT && file.inode.kind == stat.kind && same
            })
    }

    /// Whether the host file certainly still equals the tree's file: its contents need no look.
    pub fn is_clean(&self, ino: Ino, stat: &HostStat) -> bool {
        let Some(recorded) = self.files.get(&ino).and_then(|file| file.recorded) else { return false };
        recorded.same(stat) && stat.ctime < self.clean_before && !self.unclean.contains(&ino)
    }
}
