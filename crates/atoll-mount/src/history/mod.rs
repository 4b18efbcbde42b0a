//! The history mount's file system: every tree of a store is a folder.
//!
//! ```text
//! /branches/NAME   link to the commit's folder          /commits/ID   a tree, or a link to the other mount
//! /tags/NAME       link to the commit's folder
//! ```

mod above;
mod ahead;
mod handles;
mod ids;
mod source;
mod stat;
mod tree;
mod trees;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atoll_fuse::abi::{Attr, SEEK_DATA, SEEK_HOLE, StatFs};
use atoll_fuse::{Call, Data, DirSink, Entry, Errno, FOREVER, FileSystem, Found, Reply};
use atoll_store::{Commit, Ino};
use bytes::Bytes;

use above::Above;
use ahead::Ahead;
use handles::Handles;
use ids::Node;
pub use source::Source;
use tree::{InTree, Resume};
use trees::Trees;

/// Which of the two mounts: ENOSYS to a request for an attribute holds for a whole connection, so trees with
/// extended attributes and trees without live apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Trees without extended attributes.
    Plain,
    /// Trees with them.
    Xattr,
}

impl Side {
    /// Where a commit's tree is.
    pub fn of(commit: &Commit) -> Self {
        if commit.record.summary.xattrs > 0 { Side::Xattr } else { Side::Plain }
    }

    /// The mount's folder in HISTORY.
    pub fn folder(self) -> &'static str {
        match self {
            Side::Plain => "plain",
            Side::Xattr => "xattr",
        }
    }
}

/// One of the two mounts of a store.
pub struct HistoryFs {
    source: Arc<dyn Source>,
    side: Side,
    trees: Arc<Trees>,
    above: Above,
    resume: Resume,
    handles: Arc<Handles>,
    ahead: Arc<Ahead>,
}

impl HistoryFs {
    /// Both mounts of a store. `root` is HISTORY, the folder that they are mounted in.
    pub fn both(source: Arc<dyn Source>, root: &Path) -> [HistoryFs; 2] {
        let trees = Arc::new(Trees::default());
        let ahead = Arc::new(Ahead::new(source.clone()));
        [Side::Plain, Side::Xattr].map(|side| HistoryFs {
            ahead: ahead.clone(),
            handles: Arc::new(Handles::new(root.join(side.folder()))),
            source: source.clone(),
            side,
            trees: trees.clone(),
            above: Above::new(side),
            resume: tree::resume(),
        })
    }

    /// Which of the two it is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Closes what it holds of its own mount, so that this can be unmounted.
    pub fn let_go(&self) {
        self.handles.let_go();
    }

    fn tree(&self, slot: u16) -> Reply<InTree<'_>> {
        let source = &*self.source;
        match self.trees.in_slot(source, slot) {
            Ok(Some(tree)) => Ok(InTree { source, tree }),
            Ok(None) => Err(Errno::ESTALE),
            Err(error) => {
                log::error!("The tree in slot {slot} could not be opened: {error}");
                Err(tree::errno(&error))
            }
        }
    }

    fn in_tree(&self, node: u64) -> Reply<(InTree<'_>, Ino)> {
        match ids::split(node) {
            Some(Node::InTree(slot, ino)) => Ok((self.tree(slot)?, ino)),
            _ => Err(Errno::EINVAL),
        }
    }
}

impl FileSystem for HistoryFs {
    fn lookup(&self, _: &Call<'_>, parent: u64, name: &[u8]) -> Reply<Entry> {
        match ids::split(parent).ok_or(Errno::ESTALE)? {
            Node::Above(id) => self.above.lookup(&*self.source, &self.trees, id, name),
            Node::InTree(slot, ino) => match self.tree(slot)?.lookup(ino, name)? {
                Some(entry) => Ok(entry),
                None => self.above.commits(&*self.source),
            },
        }
    }

    fn lookup_handle(&self, call: &Call<'_>, node: u64) -> Found {
        let Some(Node::InTree(slot, ino)) = ids::split(node) else {
            return Found::Now(self.lookup(call, node, b"."));
        };
        let found = self.tree(slot).and_then(|tree| Ok((tree.entry_of(ino)?, tree.tree)));
        match found {
            // The kernel asks for folders only to connect them to their parents.
            Ok((entry, tree)) if entry.attr.mode >> 12 != 4 => {
                let (handles, source) = (self.handles.clone(), self.source.clone());
                Found::Later(Box::new(move || {
                    handles.connect(&*source, &tree, ino);
                    Ok(entry)
                }))
            }
            found => Found::Now(found.map(|(entry, _)| entry)),
        }
    }

    fn getattr(&self, _: &Call<'_>, node: u64) -> Reply<(Attr, Duration)> {
        match ids::split(node).ok_or(Errno::ESTALE)? {
            Node::Above(id) => self.above.getattr(&*self.source, id),
            Node::InTree(slot, ino) => Ok((self.tree(slot)?.getattr(ino)?, FOREVER)),
        }
    }

    fn readdir(&self, _: &Call<'_>, node: u64, offset: u64, sink: &mut DirSink<'_>) -> Reply<()> {
        match ids::split(node).ok_or(Errno::ESTALE)? {
            Node::Above(id) => self.above.readdir(&*self.source, &self.trees, id, offset, sink),
            Node::InTree(slot, ino) => self.tree(slot)?.readdir(ino, offset, &self.resume, sink),
        }
    }

    fn read(&self, call: &Call<'_>, node: u64, _: u64, offset: u64, size: u32, out: &mut Data) -> Reply<()> {
        let (tree, ino) = self.in_tree(node)?;
        tree.read(call, &self.ahead, ino, offset..offset.saturating_add(u64::from(size)), out)
    }

    fn readlink(&self, _: &Call<'_>, node: u64) -> Reply<Bytes> {
        match ids::split(node).ok_or(Errno::ESTALE)? {
            Node::Above(id) => self.above.readlink(id),
            Node::InTree(slot, ino) => self.tree(slot)?.readlink(ino),
        }
    }

    fn getxattr(&self, _: &Call<'_>, node: u64, name: &[u8]) -> Reply<Bytes> {
        match (self.side, ids::split(node)) {
            (Side::Plain, _) => Err(Errno::ENOSYS),
            (_, Some(Node::InTree(slot, ino))) => self.tree(slot)?.getxattr(ino, name),
            _ => Err(Errno::ENODATA),
        }
    }

    fn listxattr(&self, _: &Call<'_>, node: u64) -> Reply<Bytes> {
        match (self.side, ids::split(node)) {
            (Side::Plain, _) => Err(Errno::ENOSYS),
            (_, Some(Node::InTree(slot, ino))) => self.tree(slot)?.listxattr(ino),
            _ => Ok(Bytes::new()),
        }
    }

    fn lseek(&self, _: &Call<'_>, node: u64, offset: u64, whence: u32) -> Reply<u64> {
        let (tree, ino) = self.in_tree(node)?;
        match whence {
            SEEK_DATA | SEEK_HOLE => tree.lseek(ino, offset, whence == SEEK_DATA),
            _ => Err(Errno::EINVAL),
        }
    }

    fn statfs(&self, _: &Call<'_>) -> Reply<StatFs> {
        Ok(StatFs { bsize: 4096, frsize: 4096, namelen: 255, ..StatFs::default() })
    }
}
