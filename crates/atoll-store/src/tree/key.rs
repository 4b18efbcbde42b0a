//! The tree's keys: `(inode number, kind, rest)`, ordered as their bytes are.

use crate::{Error, Ino, Result};

/// The kinds of keys, in their order within one inode.
const INODE: u8 = 1;
const PARENT: u8 = 2;
const XATTR: u8 = 3;
const DIRENT: u8 = 4;
const EXTENT: u8 = 5;

/// A key taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key<'a> {
    /// The inode's record.
    Inode(Ino),
    /// A way back: this inode has this name in this folder.
    Parent(Ino, Ino, &'a [u8]),
    /// An extended attribute.
    Xattr(Ino, &'a [u8]),
    /// A name in a folder.
    Dirent(Ino, &'a [u8]),
    /// A run of bytes at this offset.
    Extent(Ino, u64),
}

impl<'a> Key<'a> {
    /// The inode the key belongs to: its first eight bytes.
    pub fn ino(&self) -> Ino {
        match *self {
            Key::Inode(ino)
            | Key::Parent(ino, ..)
            | Key::Xattr(ino, _)
            | Key::Dirent(ino, _)
            | Key::Extent(ino, _) => ino,
        }
    }

    /// Appends the encoded key: inode number (8 bytes, big-endian), kind, rest. The order of the encoded
    /// bytes is the order of the tree.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.ino().key().to_be_bytes());
        match *self {
            Key::Inode(_) => out.push(INODE),
            Key::Parent(_, dir, name) => {
                out.push(PARENT);
                out.extend_from_slice(&dir.key().to_be_bytes());
                out.extend_from_slice(name);
            }
            Key::Xattr(_, name) => {
                out.push(XATTR);
                out.extend_from_slice(name);
            }
            Key::Dirent(_, name) => {
                out.push(DIRENT);
                out.extend_from_slice(name);
            }
            Key::Extent(_, offset) => {
                out.push(EXTENT);
                out.extend_from_slice(&offset.to_be_bytes());
            }
        }
    }

    /// The encoded key.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        self.encode(&mut out);
        out
    }

    /// Takes an encoded key apart.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not a key.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let bad = || Error::damaged(format!("A tree node holds a malformed key ({} bytes).", bytes.len()));
        let ino_at = |at: usize| {
            let number = bytes.get(at..at + 8)?;
            Ino::from_key(u64::from_be_bytes(number.try_into().ok()?))
        };
        let ino = ino_at(0).ok_or_else(bad)?;
        let rest = bytes.get(9..).ok_or_else(bad)?;
        let name_at = |at: usize| rest.get(at..).filter(|name| is_name(name)).ok_or_else(bad);
        Ok(match bytes[8] {
            INODE if rest.is_empty() => Key::Inode(ino),
            PARENT => Key::Parent(ino, ino_at(9).ok_or_else(bad)?, name_at(8)?),
            XATTR if !rest.is_empty() && rest.len() <= MAX_NAME && !rest.contains(&0) => {
                Key::Xattr(ino, rest)
            }
            DIRENT => Key::Dirent(ino, name_at(0)?),
            EXTENT => Key::Extent(ino, u64::from_be_bytes(rest.try_into().map_err(|_| bad())?)),
            _ => return Err(bad()),
        })
    }

    /// The range of encoded keys that are `ino`'s names in the folder `ino`: from, to (exclusive).
    pub fn dirents(dir: Ino) -> (Vec<u8>, Vec<u8>) {
        (prefix(dir, DIRENT), prefix(dir, DIRENT + 1))
    }

    /// The range of `ino`'s ways back.
    pub fn parents(ino: Ino) -> (Vec<u8>, Vec<u8>) {
        (prefix(ino, PARENT), prefix(ino, PARENT + 1))
    }

    /// The range of `ino`'s extended attributes.
    pub fn xattrs(ino: Ino) -> (Vec<u8>, Vec<u8>) {
        (prefix(ino, XATTR), prefix(ino, XATTR + 1))
    }

    /// The range of `ino`'s extents.
    pub fn extents(ino: Ino) -> (Vec<u8>, Vec<u8>) {
        (prefix(ino, EXTENT), prefix(ino, EXTENT + 1))
    }
}

/// No name is longer, of a file or of an attribute (Linux' file systems have at most 255 bytes, some others 255
/// characters).
pub const MAX_NAME: usize = 1024;

/// Whether a folder can hold this name. Keys with other names are damage: they never reach a caller that would
/// build a path from them.
pub fn is_name(name: &[u8]) -> bool {
    let special = name.is_empty() || name == b"." || name == b"..";
    !special && name.len() <= MAX_NAME && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

fn prefix(ino: Ino, kind: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(9);
    out.extend_from_slice(&ino.key().to_be_bytes());
    out.push(kind);
    out
}
