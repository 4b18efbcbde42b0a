//! What a file system implements beside [`FileSystem`](crate::FileSystem) when it can be written to.

use std::time::Duration;

use crate::abi::{Attr, Statx};
use crate::filesystem::{Call, Entry, Opened, Reply};

/// A file that is to come to be. Its owner is the caller.
#[derive(Debug, Clone, Copy)]
pub struct NewNode<'a> {
    /// Type and permission bits, the caller's umask taken off.
    pub mode: u32,
    /// A device's number.
    pub rdev: u32,
    /// A symbolic link's target.
    pub target: &'a [u8],
}

/// A time to set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetTime {
    /// The present.
    Now,
    /// Seconds since 1970 and nanoseconds.
    At(i64, u32),
}

/// Attributes to set; `None` stays as it is.
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs)]
pub struct SetAttr {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// The set-id bits go, for somebody else changes the contents.
    pub drops_set_id: bool,
}

/// The writing half. Every change has to be as it will stay before the reply: a request that is sent again
/// ([`Call::resent`]) was perhaps done by a process that died before it could answer, and must not be done twice.
pub trait Writable: Send + Sync {
    /// Makes a file of any kind; `name` of `None` makes one without a name, which belongs in the folder.
    fn make(&self, call: &Call<'_>, parent: u64, name: Option<&[u8]>, new: NewNode<'_>) -> Reply<Entry>;

    /// What opening the file that was just made gives.
    fn opened(&self) -> Opened {
        Opened::default()
    }

    /// Gives a file one more name.
    fn link(&self, call: &Call<'_>, node: u64, parent: u64, name: &[u8]) -> Reply<Entry>;

    /// Takes a name away, of an empty folder or of anything else.
    fn remove(&self, call: &Call<'_>, parent: u64, name: &[u8], folder: bool) -> Reply<()>;

    /// Renames; `flags` are those of `renameat2`.
    fn rename(&self, call: &Call<'_>, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Reply<()>;

    /// Sets attributes.
    fn setattr(&self, call: &Call<'_>, node: u64, set: SetAttr) -> Reply<(Attr, Duration)>;

    /// Attributes with the time of birth.
    fn statx(&self, call: &Call<'_>, node: u64) -> Reply<(Statx, Duration)>;

    /// Writes bytes and says how many: fewer only where there is no room for all.
    fn write(&self, call: &Call<'_>, node: u64, offset: u64, bytes: &[u8], drops_set_id: bool) -> Reply<u32>;

    /// `mode` is that of `fallocate`.
    fn fallocate(&self, call: &Call<'_>, node: u64, offset: u64, len: u64, mode: u32) -> Reply<()>;

    /// Returns when everything of the file that was written is durable, and its name. Of a folder too.
    fn fsync(&self, call: &Call<'_>, node: u64) -> Reply<()>;

    /// Sets an attribute; `flags` are those of `setxattr`.
    fn setxattr(&self, call: &Call<'_>, node: u64, name: &[u8], value: &[u8], flags: u32) -> Reply<()>;

    /// Takes an attribute away.
    fn removexattr(&self, call: &Call<'_>, node: u64, name: &[u8]) -> Reply<()>;
}
