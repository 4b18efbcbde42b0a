//! From what an inode holds, before and after, to the edits of the tree.

use atoll_store::tree::{Dirent, Edit, Extent, Inode, Key, Value, scan};
use atoll_store::{Ino, Num, Objects, Result};

use super::Extents;
use super::xattrs::Xattrs;

/// A folder's names, sorted.
pub type Names = Vec<(Box<[u8]>, Dirent)>;

/// The names of one file: folder and name.
pub type Parents = Vec<(Ino, Box<[u8]>)>;

/// Everything that a tree keeps under one inode number.
#[derive(Debug, Clone)]
pub struct FileState {
    /// The number.
    pub ino: Ino,
    /// The record.
    pub inode: Inode,
    /// The names it has: folder and name. The root has none.
    pub parents: Parents,
    /// Its extended attributes; `None` leaves those that the base tree has.
    pub xattrs: Option<Xattrs>,
    /// Attributes of the base tree that stay although `xattrs` lacks them.
    pub kept_xattrs: Vec<Box<[u8]>>,
    /// The same for every attribute that an ordinary user cannot set or see.
    pub keep_privileged: bool,
    /// A folder's names.
    pub dirents: Names,
    /// A file's contents, or a link's target; `None` leaves what the base tree has.
    pub extents: Option<Extents>,
}

impl FileState {
    /// Its entries in the tree's order.
    pub fn entries(&self) -> Vec<(Vec<u8>, Value)> {
        let mut entries = Vec::with_capacity(3 + self.dirents.len());
        entries.push((Key::Inode(self.ino).to_vec(), Value::Inode(self.inode)));
        for (dir, name) in &self.parents {
            entries.push((Key::Parent(self.ino, *dir, name).to_vec(), Value::Parent));
        }
        for (name, value) in self.xattrs.iter().flatten() {
            entries.push((Key::Xattr(self.ino, name).to_vec(), Value::Xattr(value.clone())));
        }
        for (name, dirent) in &self.dirents {
            entries.push((Key::Dirent(self.ino, name).to_vec(), Value::Dirent(*dirent)));
        }
        for (offset, extent) in self.extents.iter().flatten() {
            entries.push((Key::Extent(self.ino, *offset).to_vec(), Value::Extent(extent.clone())));
        }
        if !entries.is_sorted_by(|a, b| a.0 < b.0) {
            entries.sort_by(|a, b| a.0.cmp(&b.0));
        }
        entries
    }
}

/// A symbolic link's target as contents.
pub fn target(bytes: &[u8]) -> Extents {
    vec![(0, Extent::Inline(bytes.into()))]
}

/// The edits that make `ino` hold exactly `after` (`None`: nothing), given the tree `base` that has it now.
/// Keys whose value stays are left out. Edits of several inodes are in order when the inodes are.
pub fn edits(
    objects: &dyn Objects,
    base: Option<Num>,
    ino: Ino,
    after: Option<&FileState>,
    out: &mut Vec<Edit>,
) -> Result<()> {
    let keeps = |key: &[u8]| match Key::decode(key) {
        Ok(Key::Xattr(_, name)) => after.is_some_and(|after| {
            let privileged = name.starts_with(b"trusted.") || name.starts_with(b"security.");
            after.xattrs.is_none()
                || (after.keep_privileged && privileged)
                || after.kept_xattrs.iter().any(|kept| **kept == *name)
        }),
        Ok(Key::Extent(..)) => after.is_some_and(|after| after.extents.is_none()),
        _ => false,
    };
    let mut after = after.map(FileState::entries).unwrap_or_default().into_iter().peekable();
    if let Some(base) = base {
        let from = Key::Inode(ino).to_vec();
        let to = (ino.key() + 1).to_be_bytes();
        for entry in scan(objects, base, &from, Some(&to)) {
            let (key, value) = entry?;
            while let Some((new, value)) = after.next_if(|(new, _)| *new < key) {
                out.push((new, Some(value)));
            }
            match after.next_if(|(new, _)| *new == key) {
                Some((_, new)) if new == value => {}
                Some((_, new)) => out.push((key, Some(new))),
                None if keeps(&key) => {}
                None => out.push((key, None)),
            }
        }
    }
    out.extend(after.map(|(key, value)| (key, Some(value))));
    Ok(())
}
