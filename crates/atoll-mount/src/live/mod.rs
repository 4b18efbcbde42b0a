//! A live workspace as the kernel asks it: translation only. A file's node id is its inode number's key, so it is
//! the same after every restart.
//!
//! Nobody but the kernel changes the workspace, so the kernel may keep all that it was told for ever. It is told
//! every name that it keeps (`hold`), and says when it forgets: until then a file without a name stays.

mod changes;
pub mod client;
pub mod server;
pub mod supervisor;

use std::time::Duration;

use atoll_fs::live::{Live, Part, Stat, Who};
use atoll_fuse::abi::{Attr, SEEK_DATA, SEEK_HOLE, StatFs};
use atoll_fuse::{Call, Data, DirSink, Entry, Errno, FOREVER, FileSystem, Reply, Writable};
use atoll_store::Ino;
use atoll_store::tree::FileType;
use bytes::Bytes;

use crate::stat;

/// The first offsets of a listing stand for `.` and `..`; a name's is its position behind them.
const DOTS: u64 = 2;
/// How many names are asked for at once: more than the kernel has room for in one request of 128 KiB.
const STEP: usize = 512;

/// Adapts a workspace.
pub struct LiveFs {
    live: Live,
    /// A folder on the file system that holds the bytes, for `df`.
    place: std::fs::File,
}

impl LiveFs {
    /// Over an open workspace; `place` is a folder on the file system that its bytes are on.
    pub fn new(live: Live, place: std::fs::File) -> Self {
        LiveFs { live, place }
    }

    /// The workspace.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// How many bytes are left on the file system that holds the workspace's.
    pub fn room(&self) -> u64 {
        rustix::fs::fstatvfs(&self.place).map_or(u64::MAX, |below| below.f_bavail * below.f_frsize)
    }

    /// The entry of a file, which the kernel knows once more with it.
    fn entry(&self, stat: &Stat) -> Entry {
        self.live.hold(stat.ino);
        let attr = attr(stat);
        Entry { node: stat.ino.key(), generation: 0, attr, valid: FOREVER, attr_valid: FOREVER }
    }
}

impl FileSystem for LiveFs {
    fn writable(&self) -> Option<&dyn Writable> {
        Some(self)
    }

    fn lookup(&self, _: &Call<'_>, parent: u64, name: &[u8]) -> Reply<Entry> {
        let found = self.live.lookup(ino(parent)?, name).map_err(errno)?;
        Ok(found.map_or(Entry::none(FOREVER), |stat| self.entry(&stat)))
    }

    fn getattr(&self, _: &Call<'_>, node: u64) -> Reply<(Attr, Duration)> {
        let stat = self.live.stat(ino(node)?).map_err(errno)?;
        Ok((attr(&stat), FOREVER))
    }

    fn readdir(&self, _: &Call<'_>, node: u64, offset: u64, sink: &mut DirSink<'_>) -> Reply<()> {
        let dir = ino(node)?;
        for (at, name) in [(0, &b"."[..]), (1, b"..")] {
            if offset > at {
                continue;
            }
            let which = if at == 0 { dir } else { self.live.parent(dir).unwrap_or(dir) };
            if !sink.add(which.shown(), at + 1, stat::dirent_type(FileType::Dir), name, None) {
                return Ok(());
            }
        }
        let mut from = offset.saturating_sub(DOTS);
        loop {
            let names = self.live.list(dir, from, STEP).map_err(errno)?;
            let Some(last) = names.last() else { return Ok(()) };
            from = last.cookie + 1;
            for name in names {
                if sink.size_of(name.name.len()) > sink.room() {
                    return Ok(());
                }
                // One that is gone meanwhile is shown without its attributes, as by any listing.
                let stat = if sink.plus() { self.live.stat(name.ino).ok() } else { None };
                let entry = stat.map(|stat| self.entry(&stat));
                let kind = stat::dirent_type(name.kind);
                sink.add(name.ino.shown(), name.cookie + DOTS + 1, kind, &name.name, entry.as_ref());
            }
        }
    }

    fn read(&self, call: &Call<'_>, node: u64, _: u64, offset: u64, size: u32, out: &mut Data) -> Reply<()> {
        for part in self.live.read(ino(node)?, offset, size.into(), &|| call.slow()).map_err(errno)? {
            match part {
                Part::Bytes(bytes) => out.push(bytes),
                Part::Zeros(count) => out.zeros(count as usize),
            }
        }
        Ok(())
    }

    fn readlink(&self, _: &Call<'_>, node: u64) -> Reply<Bytes> {
        self.live.readlink(ino(node)?).map_err(errno)
    }

    fn forget(&self, node: u64, count: u64) {
        if let Ok(ino) = ino(node) {
            self.live.release(ino, count);
        }
    }

    fn getxattr(&self, _: &Call<'_>, node: u64, name: &[u8]) -> Reply<Bytes> {
        self.live.xattr(ino(node)?, name).map_err(errno)
    }

    fn listxattr(&self, _: &Call<'_>, node: u64) -> Reply<Bytes> {
        self.live.xattrs(ino(node)?).map_err(errno)
    }

    fn lseek(&self, _: &Call<'_>, node: u64, offset: u64, whence: u32) -> Reply<u64> {
        match whence {
            SEEK_DATA | SEEK_HOLE => self.live.seek(ino(node)?, offset, whence == SEEK_DATA).map_err(errno),
            _ => Err(Errno::EINVAL),
        }
    }

    fn statfs(&self, _: &Call<'_>) -> Reply<StatFs> {
        let below = rustix::fs::fstatfs(&self.place).map_err(errno)?;
        Ok(StatFs {
            blocks: below.f_blocks,
            bfree: below.f_bfree,
            bavail: below.f_bavail,
            files: below.f_files,
            ffree: below.f_ffree,
            bsize: below.f_bsize as u32,
            namelen: 255,
            frsize: below.f_frsize as u32,
            ..StatFs::default()
        })
    }
}

fn ino(node: u64) -> Reply<Ino> {
    Ino::from_key(node).ok_or(Errno::ESTALE)
}

fn errno(errno: rustix::io::Errno) -> Errno {
    Errno(errno.raw_os_error())
}

fn who(call: &Call<'_>) -> Who {
    Who { request: call.request, uid: call.uid, gid: call.gid }
}

fn attr(stat: &Stat) -> Attr {
    let (atime, atimensec) = stat::time(stat.atime);
    Attr { atime, atimensec, ..stat::attr(stat.ino, &stat.inode, stat.allocated) }
}
