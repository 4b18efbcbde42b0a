//! What a file system implements, and what it answers with.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use zerocopy::IntoBytes;

use crate::abi::{Attr, Dirent, EntryOut, StatFs};

/// A negative answer: an errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

/// An answer, or an errno.
pub type Reply<T> = Result<T, Errno>;

impl Errno {
    /// No such file.
    pub const ENOENT: Errno = Errno(libc::ENOENT);
    /// The file could not be read.
    pub const EIO: Errno = Errno(libc::EIO);
    /// Not implemented: most kinds of request are then never sent again on this connection.
    pub const ENOSYS: Errno = Errno(libc::ENOSYS);
    /// Not a folder.
    pub const ENOTDIR: Errno = Errno(libc::ENOTDIR);
    /// The node means another file by now, or none.
    pub const ESTALE: Errno = Errno(libc::ESTALE);
    /// Not supported for this file.
    pub const EOPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    /// Read-only.
    pub const EROFS: Errno = Errno(libc::EROFS);
    /// No such attribute.
    pub const ENODATA: Errno = Errno(libc::ENODATA);
    /// Not with this kind of file.
    pub const EINVAL: Errno = Errno(libc::EINVAL);
    /// No data at or after this offset.
    pub const ENXIO: Errno = Errno(libc::ENXIO);
    /// The answer does not fit what the caller has room for.
    pub const ERANGE: Errno = Errno(libc::ERANGE);
}

/// Who asks, and a way to say that the answer takes a while.
pub struct Call<'a> {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The process; 0 when it is in another pid namespace, or the kernel itself asks.
    pub pid: u32,
    /// The request's number, the same when it is sent again.
    pub request: u64,
    /// It was sent again, since a process that served died before it answered.
    pub resent: bool,
    pub(crate) hand_off: Option<&'a dyn Fn()>,
    pub(crate) handed: Cell<bool>,
}

impl Call<'_> {
    /// Says that the answer will take longer than waking a thread does (reading a disk, decompressing a
    /// large block): another thread takes over the waiting for requests meanwhile. More than once is once.
    pub fn slow(&self) {
        if let Some(hand_off) = self.hand_off
            && !self.handed.replace(true)
        {
            hand_off();
        }
    }
}

/// A name's answer: which node it is, and how long the kernel may believe it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The node id; 0: there is no such name, to be remembered for `valid`.
    pub node: u64,
    /// Together with the node id it names the file in exported handles.
    pub generation: u64,
    /// What `stat` shows.
    pub attr: Attr,
    /// How long the name may be kept.
    pub valid: Duration,
    /// How long the attributes may be kept.
    pub attr_valid: Duration,
}

impl Entry {
    /// "No such name", to be remembered for so long.
    pub fn none(valid: Duration) -> Self {
        Entry { node: 0, generation: 0, attr: Attr::default(), valid, attr_valid: valid }
    }

    pub(crate) fn wire(&self) -> EntryOut {
        EntryOut {
            nodeid: self.node,
            generation: self.generation,
            entry_valid: self.valid.as_secs(),
            attr_valid: self.attr_valid.as_secs(),
            entry_valid_nsec: self.valid.subsec_nanos(),
            attr_valid_nsec: self.attr_valid.subsec_nanos(),
            attr: self.attr,
        }
    }
}

/// The answer to a handle's look-up.
pub enum Found {
    /// At once.
    Now(Reply<Entry>),
    /// From a thread that serves no requests, so it may itself look at the mount.
    Later(Box<dyn FnOnce() -> Reply<Entry> + Send>),
}

/// An opened file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Opened {
    /// Comes back with every request on the opened file.
    pub handle: u64,
    /// `FOPEN_*` bits.
    pub flags: u32,
}

/// Where READ puts its bytes: shared ones are written to the kernel from where they are.
#[derive(Default)]
pub struct Data {
    pub(crate) parts: Vec<Bytes>,
    pub(crate) len: usize,
}

impl Data {
    /// Adds bytes.
    pub fn push(&mut self, bytes: Bytes) {
        self.len += bytes.len();
        if !bytes.is_empty() {
            self.parts.push(bytes);
        }
    }

    /// Adds zeros.
    pub fn zeros(&mut self, mut count: usize) {
        static ZEROS: [u8; 65536] = [0; 65536];
        while count > 0 {
            let now = count.min(ZEROS.len());
            self.push(Bytes::from_static(&ZEROS[..now]));
            count -= now;
        }
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn clear(&mut self) {
        self.parts.clear();
        self.len = 0;
    }
}

/// Where READDIR and READDIRPLUS put names, as far as there is room.
pub struct DirSink<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) end: usize,
    pub(crate) plus: bool,
}

impl DirSink<'_> {
    /// Whether entries are wanted with the names. A name may still be given without one.
    pub fn plus(&self) -> bool {
        self.plus
    }

    /// How much a name of so many bytes takes of the [`DirSink::room`].
    pub fn size_of(&self, name: usize) -> usize {
        let head = size_of::<Dirent>() + if self.plus { size_of::<EntryOut>() } else { 0 };
        (head + name).next_multiple_of(8)
    }

    /// How much room is left.
    pub fn room(&self) -> usize {
        self.end.saturating_sub(self.out.len())
    }

    /// Adds a name; `offset` is where a listing goes on after it, `kind` a `DT_*` number. An `entry` of `None`
    /// (or one with node 0) gives the name alone: the kernel asks when somebody looks. Returns whether it fit;
    /// once one did not, the listing has to end.
    pub fn add(&mut self, ino: u64, offset: u64, kind: u32, name: &[u8], entry: Option<&Entry>) -> bool {
        if self.size_of(name.len()) > self.room() {
            return false;
        }
        if self.plus {
            let wire = entry.map_or_else(EntryOut::default, Entry::wire);
            self.out.extend_from_slice(wire.as_bytes());
        }
        let head = Dirent { ino, off: offset, namelen: name.len() as u32, kind };
        self.out.extend_from_slice(head.as_bytes());
        self.out.extend_from_slice(name);
        // 16 and 128 + 24 are multiples of 8, so padding the whole buffer pads this name.
        self.out.resize(self.out.len().next_multiple_of(8), 0);
        true
    }
}

/// A file system, as the kernel asks it. Methods take `&self` and may be called from several threads. What is
/// not implemented answers ENOSYS, which makes the kernel do without for the rest of the connection (for OPEN
/// and OPENDIR: files and folders then need no opening, and what was read stays cached).
pub trait FileSystem: Send + Sync {
    /// The writing half; without one everything that would change something answers EROFS.
    fn writable(&self) -> Option<&dyn crate::Writable> {
        None
    }

    /// The node behind a name in a folder. `..` is asked for exported handles.
    fn lookup(&self, call: &Call<'_>, parent: u64, name: &[u8]) -> Reply<Entry>;

    /// The node of an exported handle (the kernel's LOOKUP of `.`), which it has nothing of.
    ///
    /// The kernel makes a nameless entry of it, which on Linux 6.18 never passes a check (it seems to be older
    /// than the connection's epoch): overlayfs turns that into ESTALE, the second time that a copied-up file
    /// is looked at. When the kernel has an entry by a path meanwhile, it takes that one.
    fn lookup_handle(&self, call: &Call<'_>, node: u64) -> Found {
        Found::Now(self.lookup(call, node, b"."))
    }

    /// A node's attributes, and for how long they may be kept.
    fn getattr(&self, call: &Call<'_>, node: u64) -> Reply<(Attr, Duration)>;

    /// The names in a folder, starting after the one that was given `offset`; 0 is the beginning.
    fn readdir(&self, call: &Call<'_>, node: u64, offset: u64, sink: &mut DirSink<'_>) -> Reply<()>;

    /// Up to `size` bytes from `offset` on; fewer only at the end of the file.
    fn read(
        &self,
        call: &Call<'_>,
        node: u64,
        handle: u64,
        offset: u64,
        size: u32,
        out: &mut Data,
    ) -> Reply<()>;

    /// A symbolic link's target.
    fn readlink(&self, call: &Call<'_>, node: u64) -> Reply<Bytes>;

    /// The kernel holds `count` fewer references to the node. A file system whose node ids mean the same for
    /// ever ignores it.
    fn forget(&self, node: u64, count: u64) {
        let _ = (node, count);
    }

    /// Opens a file.
    fn open(&self, call: &Call<'_>, node: u64, flags: u32) -> Reply<Opened> {
        let _ = (call, node, flags);
        Err(Errno::ENOSYS)
    }

    /// Opens a folder.
    fn opendir(&self, call: &Call<'_>, node: u64) -> Reply<Opened> {
        let _ = (call, node);
        Err(Errno::ENOSYS)
    }

    /// An extended attribute.
    fn getxattr(&self, call: &Call<'_>, node: u64, name: &[u8]) -> Reply<Bytes> {
        let _ = (call, node, name);
        Err(Errno::ENOSYS)
    }

    /// The names of all extended attributes, each with a NUL after it.
    fn listxattr(&self, call: &Call<'_>, node: u64) -> Reply<Bytes> {
        let _ = (call, node);
        Err(Errno::ENOSYS)
    }

    /// The next data (`SEEK_DATA`) or hole (`SEEK_HOLE`) at or after an offset.
    fn lseek(&self, call: &Call<'_>, node: u64, offset: u64, whence: u32) -> Reply<u64> {
        let _ = (call, node, offset, whence);
        Err(Errno::ENOSYS)
    }

    /// What `df` shows.
    fn statfs(&self, call: &Call<'_>) -> Reply<StatFs>;
}
