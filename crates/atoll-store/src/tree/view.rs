//! A tree as a file system is asked: names, inodes, extents, paths.

use std::ops::Range;

use bytes::Bytes;

use crate::tree::{Dirent, Extent, Inode};
use crate::{Ino, Num, Objects, Result};

/// A read-only view of one tree.
#[derive(Clone, Copy)]
pub struct TreeView<'a> {
    /// Where its nodes and chunks are.
    pub objects: &'a dyn Objects,
    /// Its root node.
    pub root: Num,
}

impl<'a> TreeView<'a> {
    /// The view of the tree at `root`.
    pub fn new(objects: &'a dyn Objects, root: Num) -> Self {
        TreeView { objects, root }
    }

    /// The inode's record.
    pub fn inode(&self, ino: Ino) -> Result<Option<Inode>> {
        let _ = ino;
        todo!()
    }

    /// What `name` is in the folder `dir`.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Dirent>> {
        let _ = (dir, name);
        todo!()
    }

    /// The names in a folder, sorted by name.
    pub fn readdir(&self, dir: Ino) -> Result<Vec<(Box<[u8]>, Dirent)>> {
        let _ = dir;
        todo!()
    }

    /// The extents of a file, by offset, that overlap `range` (bytes).
    pub fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(u64, Extent)>> {
        let _ = (ino, range);
        todo!()
    }

    /// The bytes of `range`, cut at `size`; holes read as zeros.
    pub fn read(&self, ino: Ino, size: u64, range: Range<u64>) -> Result<Bytes> {
        let _ = (ino, size, range);
        todo!()
    }

    /// A symbolic link's target.
    pub fn readlink(&self, ino: Ino) -> Result<Bytes> {
        let _ = ino;
        todo!()
    }

    /// The extended attributes, sorted by name.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<(Box<[u8]>, Box<[u8]>)>> {
        let _ = ino;
        todo!()
    }

    /// The folder and name of each of an inode's names.
    pub fn parents(&self, ino: Ino) -> Result<Vec<(Ino, Box<[u8]>)>> {
        let _ = ino;
        todo!()
    }

    /// One path of an inode from the root (without a leading slash; empty for the root); of several the
    /// smallest. `None` when it has none.
    pub fn path(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        let _ = ino;
        todo!()
    }

    /// The inode at a path (`/`-separated, `""` is the root). Symbolic links are not followed.
    pub fn resolve(&self, path: &[u8]) -> Result<Option<(Ino, Inode)>> {
        let _ = path;
        todo!()
    }
}
