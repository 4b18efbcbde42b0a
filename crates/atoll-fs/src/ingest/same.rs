//! Whether a scanned folder certainly equals the tree of its last import. That is the usual case of an import
//! again, so it is found out without relating host files to the tree's: sorted names stand beside sorted names.

use atoll_store::Ino;
use atoll_store::tree::FileType;

use super::base::{Base, Recorded};
use super::fast::FastMap;
use crate::scan::{HostStat, Scan, join};

/// How many files such a folder has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Counts {
    /// Files of any kind; a file of several names counts once.
    pub files: u64,
    /// Folders, the root included.
    pub dirs: u64,
}

/// The counts when every name is the old one, every file is clean and nothing is missing; `None` when anything
/// at all differs or is in doubt. `base` is not indexed yet.
pub(super) fn unchanged(scan: &Scan, base: &Base) -> Option<Counts> {
    if !base.unclean.is_empty() || !base.absent.is_empty() {
        return None;
    }
    let mut walk = Walk { base, next: 0, linked: FastMap::default() };
    let mut counts = Counts { files: 0, dirs: 0 };
    let mut open: Vec<(Ino, Vec<u8>)> = vec![(Ino::ROOT, Vec::new())];
    while let Some((ino, path)) = open.pop() {
        let dir = scan.dirs.get(&path[..])?;
        let names = base.sorted.dir(ino);
        if names.len() != dir.entries.len() {
            return None;
        }
        let mut below = 0;
        for (entry, (_, name, dirent)) in dir.entries.iter().zip(names) {
            let stat = &entry.stat;
            let same_name = *name == entry.name && dirent.kind == stat.kind;
            if !same_name || dirent.ino == Ino::ROOT || dirent.ino.low() != stat.ino as u32 {
                return None;
            }
            if stat.kind == FileType::Dir {
                // Its own record is compared with what the scan saw when it was opened.
                open.push((dirent.ino, join(&path, name)));
                below += 1;
            } else {
                counts.files += u64::from(walk.file(dirent.ino, stat)?);
            }
        }
        let low = ino == Ino::ROOT || ino.low() == dir.stat.ino as u32;
        if !low || walk.clean(ino, &dir.stat)? != 2 + below {
            return None;
        }
        counts.dirs += 1;
    }
    walk.finish(counts)
}

struct Walk<'a> {
    base: &'a Base,
    /// Where the next inode probably stands: neighbours in a folder often have neighbouring numbers.
    next: usize,
    /// Host files that have, or may have, several names: their number in the tree, the names so far, those that
    /// the tree has, those that the host has.
    linked: FastMap<u64, (Ino, u32, u32, u32)>,
}

impl Walk<'_> {
    /// The link count in the tree of a file that is clean.
    fn clean(&mut self, ino: Ino, stat: &HostStat) -> Option<u32> {
        let inodes = &self.base.sorted.inodes;
        let at = match inodes.get(self.next) {
            Some((next, _)) if *next == ino => self.next,
            _ => inodes.binary_search_by_key(&ino, |(ino, _)| *ino).ok()?,
        };
        self.next = at + 1;
        let inode = &inodes[at].1;
        let recorded = Recorded::of_inode(ino, inode);
        let clean = inode.kind == stat.kind && recorded.same(stat) && stat.ctime < self.base.clean_before;
        clean.then_some(inode.nlink)
    }

    /// Whether a clean file is seen for the first time.
    fn file(&mut self, ino: Ino, stat: &HostStat) -> Option<bool> {
        let names = self.clean(ino, stat)?;
        if names == 1 && stat.nlink == 1 {
            return Some(true);
        }
        let (of, seen, ..) = self.linked.entry(stat.ino).or_insert((ino, 0, names, stat.nlink));
        *seen += 1;
        (*of == ino).then_some(*seen == 1)
    }

    /// The counts, if each file has all its names and the tree has no further files.
    fn finish(self, counts: Counts) -> Option<Counts> {
        let whole = self.linked.values().all(|(_, seen, names, host)| seen == names && seen <= host);
        let all = counts.files + counts.dirs == self.base.sorted.inodes.len() as u64;
        (whole && all).then_some(counts)
    }
}
