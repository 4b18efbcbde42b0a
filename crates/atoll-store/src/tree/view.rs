//! A tree as a file system is asked: names, inodes, extents, paths.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::tree::record::join;
use crate::tree::{Cursor, Dirent, Extent, Inode, Key, Value, Xattrs, get, scan};
use crate::{Error, Ino, Num, Objects, Result};

/// No path has more names: a longer way up means that a damaged tree has a loop.
const MAX_DEPTH: usize = 1 << 16;

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
        match get(self.objects, self.root, &Key::Inode(ino).to_vec())? {
            Some(Value::Inode(inode)) => Ok(Some(inode)),
            _ => Ok(None),
        }
    }

    /// What `name` is in the folder `dir`.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Dirent>> {
        match get(self.objects, self.root, &Key::Dirent(dir, name).to_vec())? {
            Some(Value::Dirent(dirent)) => Ok(Some(dirent)),
            _ => Ok(None),
        }
    }

    /// The names in a folder, sorted by name.
    pub fn readdir(&self, dir: Ino) -> Result<Vec<(Box<[u8]>, Dirent)>> {
        self.collect(Key::dirents(dir), |key, value| match (key, value) {
            (Key::Dirent(_, name), Value::Dirent(dirent)) => Some((name.into(), dirent)),
            _ => None,
        })
    }

    /// The extents of a file, by offset, that overlap `range` (bytes).
    pub fn extents(&self, ino: Ino, range: Range<u64>) -> Result<Vec<(u64, Extent)>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        // The last extent that begins at or before the range may reach into it.
        let mut cursor = Cursor::floor(self.objects, self.root, &Key::Extent(ino, range.start).to_vec())?;
        while let Some(key) = cursor.key() {
            match Key::decode(key)? {
                Key::Extent(of, offset) if of == ino && offset < range.end => {
                    if let Some(Value::Extent(extent)) = cursor.value()
                        && offset.saturating_add(extent.len()) > range.start
                    {
                        found.push((offset, extent));
                    }
                }
                key if key.ino() > ino || matches!(key, Key::Extent(of, _) if of == ino) => break,
                _ => {}
            }
            cursor.advance()?;
        }
        Ok(found)
    }

    fn collect<T>(
        &self,
        (from, to): (Vec<u8>, Vec<u8>),
        mut pick: impl FnMut(Key<'_>, Value) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut found = Vec::new();
        for item in scan(self.objects, self.root, &from, Some(&to)) {
            let (key, value) = item?;
            found.extend(pick(Key::decode(&key)?, value));
        }
        Ok(found)
    }

    /// The bytes of `range`, cut at `size`; holes read as zeros.
    ///
    /// # Errors
    /// `Damaged` when a chunk is missing or has another length than the tree says.
    pub fn read(&self, ino: Ino, size: u64, range: Range<u64>) -> Result<Bytes> {
        let end = range.end.min(size);
        if range.start >= end {
            return Ok(Bytes::new());
        }
        let range = range.start..end;
        let extents = self.extents(ino, range.clone())?;
        // One extent that covers it all: no copy.
        if let [(offset, extent)] = &extents[..]
            && *offset <= range.start
            && offset.saturating_add(extent.len()) >= end
        {
            let bytes = self.extent_bytes(extent)?;
            return Ok(bytes.slice((range.start - offset) as usize..(end - offset) as usize));
        }
        let length =
            usize::try_from(end - range.start).map_err(|_| Error::damaged("A range is too long to read."))?;
        let mut out = BytesMut::zeroed(length);
        for (offset, extent) in extents {
            let bytes = self.extent_bytes(&extent)?;
            let from = range.start.max(offset);
            let to = end.min(offset.saturating_add(extent.len()));
            let source = &bytes[(from - offset) as usize..(to - offset) as usize];
            out[(from - range.start) as usize..(to - range.start) as usize].copy_from_slice(source);
        }
        Ok(out.freeze())
    }

    fn extent_bytes(&self, extent: &Extent) -> Result<Bytes> {
        let bytes = match extent {
            Extent::Inline(bytes) => Bytes::copy_from_slice(bytes),
            Extent::Chunk { num, .. } => self.objects.chunk(*num)?,
        };
        if bytes.len() as u64 != extent.len() {
            return Err(Error::damaged("A chunk has another length than the tree says; run `atoll fsck`."));
        }
        Ok(bytes)
    }

    /// A symbolic link's target.
    pub fn readlink(&self, ino: Ino) -> Result<Bytes> {
        match get(self.objects, self.root, &Key::Extent(ino, 0).to_vec())? {
            Some(Value::Extent(extent)) => self.extent_bytes(&extent),
            _ => Err(Error::damaged("A symbolic link has no target in the tree; run `atoll fsck`.")),
        }
    }

    /// The extended attributes, sorted by name.
    pub fn xattrs(&self, ino: Ino) -> Result<Xattrs> {
        self.collect(Key::xattrs(ino), |key, value| match (key, value) {
            (Key::Xattr(_, name), Value::Xattr(bytes)) => Some((name.into(), bytes)),
            _ => None,
        })
    }

    /// The folder and name of each of an inode's names.
    pub fn parents(&self, ino: Ino) -> Result<Vec<(Ino, Box<[u8]>)>> {
        self.collect(Key::parents(ino), |key, _| match key {
            Key::Parent(_, dir, name) => Some((dir, name.into())),
            _ => None,
        })
    }

    /// One path of an inode from the root (without a leading slash; empty for the root); of several the
    /// smallest. `None` when it has none.
    pub fn path(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        if ino == Ino::ROOT {
            return Ok(Some(Vec::new()));
        }
        let mut paths = Vec::new();
        for (dir, name) in self.parents(ino)? {
            if let Some(path) = self.dir_path(dir)? {
                paths.push(join(&path, &name));
            }
        }
        Ok(paths.into_iter().min())
    }

    /// All paths of an inode, sorted: one, or several of a hard link.
    pub fn paths(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let mut paths = if ino == Ino::ROOT { vec![Vec::new()] } else { Vec::new() };
        for (dir, name) in self.parents(ino)? {
            if let Some(path) = self.dir_path(dir)? {
                paths.push(join(&path, &name));
            }
        }
        paths.sort();
        Ok(paths)
    }

    /// A folder has one way up; the first is taken.
    fn dir_path(&self, mut dir: Ino) -> Result<Option<Vec<u8>>> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        while dir != Ino::ROOT {
            let (from, to) = Key::parents(dir);
            let Some(first) = scan(self.objects, self.root, &from, Some(&to)).next() else { return Ok(None) };
            let (key, _) = first?;
            let Key::Parent(_, above, name) = Key::decode(&key)? else { return Ok(None) };
            if names.len() >= MAX_DEPTH {
                return Err(Error::damaged("Folders of the tree contain each other; run `atoll fsck`."));
            }
            names.push(name.into());
            dir = above;
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }

    /// The inode at a path (`/`-separated, `""` is the root). Symbolic links are not followed.
    pub fn resolve(&self, path: &[u8]) -> Result<Option<(Ino, Inode)>> {
        let mut ino = Ino::ROOT;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".") {
            match self.lookup(ino, name)? {
                Some(dirent) => ino = dirent.ino,
                None => return Ok(None),
            }
        }
        Ok(self.inode(ino)?.map(|inode| (ino, inode)))
    }
}
