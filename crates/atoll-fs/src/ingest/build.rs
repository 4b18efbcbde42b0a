//! Builds the tree from the related nodes: only inodes that differ from the base tree give edits.

use atoll_store::tree::{Dirent, Edit, FileType, Inode, edit};
use atoll_store::{Ino, Num, Result};

use super::Target;
use super::assign::{Assigned, Node};
use super::base::Base;
use super::edits::{FileState, Names, edits};
use super::fast::{FastMap, FastSet};
use super::read::Content;
use crate::import::Report;

/// Makes the tree and counts in `report`. `contents` has what was read, by host number.
pub(super) fn build(
    target: &Target<'_>,
    base: &Base,
    assigned: &Assigned,
    contents: &FastMap<u64, Content>,
    report: &mut Report,
) -> Result<Num> {
    let nodes = &assigned.nodes;
    let builder = Builder { base, nodes, contents };
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    order.sort_unstable_by_key(|&at| nodes[at].ino);
    for node in nodes {
        let is_dir = node.stat.kind == FileType::Dir;
        report.dirs += u64::from(is_dir);
        report.files += u64::from(!is_dir);
        report.unchanged += u64::from(!is_dir && builder.content(node).is_none());
    }
    let sink = target.sink();
    let Some(root) = base.root else {
        let all = order.into_iter().flat_map(|at| builder.state(at).entries());
        return edit(sink, None, all.map(|(key, value)| (key, Some(value))));
    };
    let mut all: Vec<Edit> = Vec::new();
    let mut gone = builder.gone().into_iter().peekable();
    for at in order {
        let ino = nodes[at].ino;
        while let Some(gone) = gone.next_if(|gone| *gone < ino) {
            edits(sink, Some(root), gone, None, &mut all)?;
        }
        if builder.changed(at) {
            let before = nodes[at].in_base.then_some(root);
            edits(sink, before, ino, Some(&builder.state(at)), &mut all)?;
        }
    }
    for gone in gone {
        edits(sink, Some(root), gone, None, &mut all)?;
    }
    if all.is_empty() {
        return Ok(root);
    }
    edit(sink, Some(root), all)
}

struct Builder<'a> {
    base: &'a Base,
    nodes: &'a [Node],
    contents: &'a FastMap<u64, Content>,
}

impl Builder<'_> {
    fn content(&self, node: &Node) -> Option<&Content> {
        if node.kept { None } else { self.contents.get(&node.stat.ino) }
    }

    /// Files of the base tree that are no more, in order.
    fn gone(&self) -> Vec<Ino> {
        let here: FastSet<Ino> = self.nodes.iter().map(|node| node.ino).collect();
        let mut gone: Vec<Ino> = self.base.files.keys().copied().filter(|ino| !here.contains(ino)).collect();
        gone.sort_unstable();
        gone
    }

    /// The record in the tree. What the host says counts where it is not what it was when the file equalled
    /// the tree: an owner that could not be set is not lost that way.
    fn inode(&self, node: &Node) -> Inode {
        let content = self.content(node);
        let stat = content.map_or(&node.stat, |content| &content.stat);
        let is_dir = stat.kind == FileType::Dir;
        let below =
            || node.children.iter().filter(|(_, at)| self.nodes[*at].stat.kind == FileType::Dir).count();
        let nlink = if is_dir { 2 + below() } else { node.names.len() } as u32;
        let size = match content {
            Some(content) => content.size,
            None if matches!(stat.kind, FileType::File | FileType::Symlink) => stat.size,
            None => 0,
        };
        let now = Inode {
            birth: node.birth,
            kind: stat.kind,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            size,
            nlink,
            rdev: stat.rdev,
            mtime: stat.mtime,
            ctime: stat.ctime,
            btime: stat.btime,
        };
        let Some(file) = self.base.files.get(&node.ino).filter(|_| node.in_base) else { return now };
        let before = file.inode;
        if node.kept {
            return Inode { nlink, ..before };
        }
        let Some(recorded) = file.recorded else {
            let (euid, egid) = (rustix::process::geteuid(), rustix::process::getegid());
            // No record, and no right to have set another owner: the tree's owner stays.
            let kept = !euid.is_root() && (now.uid, now.gid) == (euid.as_raw(), egid.as_raw());
            return if kept { Inode { uid: before.uid, gid: before.gid, ..now } } else { now };
        };
        fn pick<T: PartialEq>(host: T, recorded: T, before: T) -> T {
            if host == recorded { before } else { host }
        }
        Inode {
            mode: pick(now.mode, recorded.mode, before.mode),
            uid: pick(now.uid, recorded.uid, before.uid),
            gid: pick(now.gid, recorded.gid, before.gid),
            size: if content.is_some() { size } else { before.size },
            rdev: pick(now.rdev, recorded.rdev, before.rdev),
            mtime: pick(now.mtime, recorded.mtime, before.mtime),
            ctime: pick(now.ctime, recorded.ctime, before.ctime),
            btime: pick(now.btime, recorded.btime, before.btime),
            ..now
        }
    }

    /// Whether the base tree may hold something else under this number.
    fn changed(&self, at: usize) -> bool {
        let node = &self.nodes[at];
        let Some(file) = self.base.files.get(&node.ino).filter(|_| node.in_base) else { return true };
        if self.content(node).is_some() || self.inode(node) != file.inode {
            return true;
        }
        let in_place = |dir: usize, name: &[u8]| {
            let dir = &self.nodes[dir];
            let there = if dir.in_base { self.base.lookup(dir.ino, name) } else { None };
            there.is_some_and(|dirent| dirent.ino == node.ino)
        };
        // Equal link counts and every name at its old place: the same names.
        if !node.names.iter().all(|(dir, name)| in_place(*dir, name)) {
            return true;
        }
        if node.stat.kind != FileType::Dir {
            return false;
        }
        let before = self.base.dirs.get(&node.ino).map_or(&[][..], Vec::as_slice);
        before.len() != node.children.len()
            || before.iter().zip(&node.children).any(|((old, dirent), (new, at))| {
                let child = &self.nodes[*at];
                old != new || dirent.ino != child.ino || dirent.kind != child.stat.kind
            })
    }

    fn state(&self, at: usize) -> FileState {
        let node = &self.nodes[at];
        let content = self.content(node);
        let mut parents: Vec<_> =
            node.names.iter().map(|(dir, name)| (self.nodes[*dir].ino, name.clone())).collect();
        parents.sort();
        let lost = self.base.files.get(&node.ino).map_or(&[][..], |file| &file.lost_xattrs);
        let xattrs = content.map(|content| content.xattrs.clone());
        FileState {
            ino: node.ino,
            inode: self.inode(node),
            parents,
            xattrs,
            kept_xattrs: if node.in_base { lost.to_vec() } else { Vec::new() },
            keep_privileged: node.in_base && !rustix::process::geteuid().is_root(),
            dirents: self.dirents(node),
            extents: content.map(|content| content.extents.clone()),
        }
    }

    fn dirents(&self, node: &Node) -> Names {
        let old = |name: &[u8]| if node.in_base { self.base.lookup(node.ino, name) } else { None };
        let before = self.base.dirs.get(&node.ino).filter(|_| node.in_base);
        let mut last = before.into_iter().flatten().map(|(_, dirent)| dirent.cookie).max().unwrap_or(0);
        let one = |(name, at): &(Box<[u8]>, usize)| {
            let cookie = old(name).map_or_else(
                || {
                    last += 1;
                    last
                },
                |dirent| dirent.cookie,
            );
            let child = &self.nodes[*at];
            (name.clone(), Dirent { ino: child.ino, kind: child.stat.kind, cookie })
        };
        node.children.iter().map(one).collect()
    }
}
