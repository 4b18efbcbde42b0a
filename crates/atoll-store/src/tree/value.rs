//! What stands behind a tree's keys.

use serde::{Deserialize, Serialize};

use crate::{BirthId, Ino, Num};

/// What kind of file an inode is. The numbers are the format's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum FileType {
    /// A regular file.
    File = 1,
    /// A folder.
    Dir = 2,
    /// A symbolic link; its target is the inline extent at offset 0.
    Symlink = 3,
    /// A named pipe.
    Fifo = 4,
    /// A socket.
    Socket = 5,
    /// A character device.
    Char = 6,
    /// A block device.
    Block = 7,
}

impl FileType {
    /// From the format's number.
    pub fn from_number(number: u8) -> Option<Self> {
        use FileType::*;
        [File, Dir, Symlink, Fifo, Socket, Char, Block].into_iter().find(|kind| *kind as u8 == number)
    }
}

/// A point in time: seconds since 1970 and nanoseconds below one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC; negative before.
    pub sec: i64,
    /// 0 to 999,999,999.
    pub nsec: u32,
}

/// The record of a file, whatever its names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// Identity across inode numbers.
    pub birth: BirthId,
    /// What it is.
    pub kind: FileType,
    /// The 12 permission bits, set-id and sticky bits included.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes; a symbolic link's is its target's length; a folder's is 0.
    pub size: u64,
    /// Names of a file; a folder has 2 and one for each folder in it.
    pub nlink: u32,
    /// Device number of a device, else 0.
    pub rdev: u64,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation, as far as it is known.
    pub btime: Time,
}

/// Extended attributes: name and value, by name.
pub type Xattrs = Vec<(Box<[u8]>, Box<[u8]>)>;

/// A name in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dirent {
    /// Whose name it is.
    pub ino: Ino,
    /// Its kind, so that a listing needs no inode.
    pub kind: FileType,
    /// The readdir position: unique in the folder, never changed, 1 or more.
    pub cookie: u64,
}

/// A run of a file's bytes. What no extent covers is a hole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extent {
    /// The bytes themselves: contents of at most [`INLINE_MAX`] bytes, and every symbolic link's target.
    Inline(Box<[u8]>),
    /// A stored chunk of `len` bytes.
    Chunk {
        /// The chunk's number in this store.
        num: Num,
        /// Its length in bytes.
        len: u32,
    },
}

/// Files of at most this many bytes stand in the tree itself. Part of the format: equal contents must give
/// equal trees.
pub const INLINE_MAX: usize = 128;

/// What a key holds; the variant always fits the key's kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Behind `(ino, INODE)`.
    Inode(Inode),
    /// Behind `(ino, PARENT, dir, name)`: the key says it all.
    Parent,
    /// Behind `(ino, XATTR, name)`.
    Xattr(Box<[u8]>),
    /// Behind `(dir, DIRENT, name)`.
    Dirent(Dirent),
    /// Behind `(ino, EXTENT, offset)`.
    Extent(Extent),
}

impl Extent {
    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Extent::Inline(bytes) => bytes.len() as u64,
            Extent::Chunk { len, .. } => u64::from(*len),
        }
    }

    /// Never: an extent has a byte at least.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
