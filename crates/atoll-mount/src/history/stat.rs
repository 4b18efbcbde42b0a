//! Reads a tree's inodes.

use atoll_fuse::abi::Attr;
use atoll_store::tree::{Cursor, FileType, Inode, Key, Value};
use atoll_store::{Ino, Num, Objects, Result};

/// An inode and how much of it is not holes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub ino: Ino,
    pub inode: Inode,
    /// Bytes that are there; programs tell a sparse file by it.
    pub allocated: u64,
}

/// Reads inodes of one tree; cheap when they are asked for in ascending order.
pub(super) struct Stats<'a> {
    objects: &'a dyn Objects,
    root: Num,
    cursor: Option<(Ino, Cursor<'a>)>,
    key: Vec<u8>,
}

impl<'a> Stats<'a> {
    pub fn new(objects: &'a dyn Objects, root: Num) -> Self {
        Stats { objects, root, cursor: None, key: Vec::with_capacity(24) }
    }

    /// The inode `ino`; `None` when the tree has none.
    pub fn get(&mut self, ino: Ino) -> Result<Option<Stat>> {
        self.key.clear();
        Key::Inode(ino).encode(&mut self.key);
        let mut cursor = match self.cursor.take() {
            Some((last, mut cursor)) if last < ino => {
                cursor.skip_to(&self.key)?;
                cursor
            }
            _ => Cursor::seek(self.objects, self.root, &self.key)?,
        };
        if cursor.key() != Some(&self.key[..]) {
            return Ok(None);
        }
        let Some(Value::Inode(inode)) = cursor.value() else { return Ok(None) };
        let mut allocated = 0;
        if inode.kind == FileType::File && inode.size > 0 {
            self.key.clear();
            Key::Extent(ino, 0).encode(&mut self.key);
            cursor.skip_to(&self.key)?;
            // An extent's key begins as the one just made does: inode number and kind.
            while cursor.key().is_some_and(|key| key.starts_with(&self.key[..9])) {
                if let Some(Value::Extent(extent)) = cursor.value() {
                    allocated += extent.len();
                }
                cursor.advance()?;
            }
        }
        self.cursor = Some((ino, cursor));
        Ok(Some(Stat { ino, inode, allocated }))
    }
}

impl Stat {
    /// What `stat` shows.
    pub fn attr(&self) -> Attr {
        crate::stat::attr(self.ino, &self.inode, self.allocated)
    }
}
