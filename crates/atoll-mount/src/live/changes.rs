//! The writing half. A request that was sent again and was done before its server died gets the answer that it
//! would have had.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_fs::live::{Attrs, Done, Having, New, RenameMode, Stat};
use atoll_fuse::abi::{Attr, Statx, StatxTime};
use atoll_fuse::{Call, Entry, Errno, FOREVER, NewNode, Reply, SetAttr, SetTime, Writable};
use atoll_store::tree::{FileType, Time};
use rustix::fs::{FallocateFlags, FileType as Kind, RenameFlags, XattrFlags};
use rustix::io::Errno as SysErrno;

use super::{LiveFs, attr, errno, ino, who};

/// `STATX_BASIC_STATS` and `STATX_BTIME`.
const STATX_ALL: u32 = 0x7ff | 0x800;

impl LiveFs {
    /// What the request did when it came first, if it did.
    fn done(&self, call: &Call<'_>) -> Option<Done> {
        if call.resent { self.live.done(call.request) } else { None }
    }

    /// The file that the request made or changed when it came first.
    fn done_file(&self, call: &Call<'_>) -> Option<Reply<Stat>> {
        match self.done(call)? {
            Done::File(ino) => Some(self.live.stat(ino).map_err(errno)),
            _ => Some(Err(Errno::EIO)),
        }
    }
}

impl Writable for LiveFs {
    fn make(&self, call: &Call<'_>, parent: u64, name: Option<&[u8]>, new: NewNode<'_>) -> Reply<Entry> {
        if let Some(done) = self.done_file(call) {
            return done.map(|stat| self.entry(&stat));
        }
        let new = New {
            kind: kind(new.mode).ok_or(Errno::EINVAL)?,
            mode: (new.mode & 0o7777) as u16,
            rdev: new.rdev.into(),
            target: new.target,
        };
        let made = self.live.create(who(call), ino(parent)?, name, new).map_err(errno)?;
        Ok(self.entry(&made))
    }

    fn link(&self, call: &Call<'_>, node: u64, parent: u64, name: &[u8]) -> Reply<Entry> {
        if let Some(done) = self.done_file(call) {
            return done.map(|stat| self.entry(&stat));
        }
        let linked = self.live.link(who(call), ino(node)?, ino(parent)?, name).map_err(errno)?;
        Ok(self.entry(&linked))
    }

    fn remove(&self, call: &Call<'_>, parent: u64, name: &[u8], folder: bool) -> Reply<()> {
        if self.done(call).is_some() {
            return Ok(());
        }
        self.live.remove(who(call), ino(parent)?, name, folder).map_err(errno)
    }

    fn rename(&self, call: &Call<'_>, from: (u64, &[u8]), to: (u64, &[u8]), flags: u32) -> Reply<()> {
        if self.done(call).is_some() {
            return Ok(());
        }
        let flags = RenameFlags::from_bits_retain(flags);
        let mode = match flags {
            _ if flags.is_empty() => RenameMode::Replace,
            RenameFlags::NOREPLACE => RenameMode::NoReplace,
            RenameFlags::EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        self.live.rename(who(call), (ino(from.0)?, from.1), (ino(to.0)?, to.1), mode).map_err(errno)
    }

    fn setattr(&self, call: &Call<'_>, node: u64, set: SetAttr) -> Reply<(Attr, Duration)> {
        if let Some(done) = self.done_file(call) {
            return done.map(|stat| (attr(&stat), FOREVER));
        }
        let attrs = Attrs {
            mode: set.mode.map(|mode| (mode & 0o7777) as u16),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: set.atime.map(time),
            mtime: set.mtime.map(time),
        };
        let stat = self.live.set(who(call), ino(node)?, attrs, set.drops_set_id).map_err(errno)?;
        Ok((attr(&stat), FOREVER))
    }

    fn statx(&self, _: &Call<'_>, node: u64) -> Reply<(Statx, Duration)> {
        let stat = self.live.stat(ino(node)?).map_err(errno)?;
        let shown = attr(&stat);
        let moment = |time: Time| StatxTime { sec: time.sec, nsec: time.nsec, reserved: 0 };
        let statx = Statx {
            mask: STATX_ALL,
            blksize: shown.blksize,
            nlink: shown.nlink,
            uid: shown.uid,
            gid: shown.gid,
            mode: shown.mode as u16,
            ino: shown.ino,
            size: shown.size,
            blocks: shown.blocks,
            atime: moment(stat.atime),
            btime: moment(stat.inode.btime),
            ctime: moment(stat.inode.ctime),
            mtime: moment(stat.inode.mtime),
            rdev_major: rustix::fs::major(stat.inode.rdev),
            rdev_minor: rustix::fs::minor(stat.inode.rdev),
            ..Statx::default()
        };
        Ok((statx, FOREVER))
    }

    fn write(&self, call: &Call<'_>, node: u64, offset: u64, bytes: &[u8], drops_set_id: bool) -> Reply<u32> {
        if let Some(Done::Written(len)) = self.done(call) {
            return Ok(len as u32);
        }
        let written = self.live.write(who(call), ino(node)?, offset, bytes, drops_set_id);
        written.map(|len| len as u32).map_err(errno)
    }

    fn fallocate(&self, call: &Call<'_>, node: u64, offset: u64, len: u64, mode: u32) -> Reply<()> {
        if self.done(call).is_some() {
            return Ok(());
        }
        let end = offset.checked_add(len).ok_or(errno(SysErrno::FBIG))?;
        let mut mode = FallocateFlags::from_bits_retain(mode);
        let keep = mode.contains(FallocateFlags::KEEP_SIZE);
        mode.remove(FallocateFlags::KEEP_SIZE);
        let hole = match mode {
            _ if mode.is_empty() => false,
            FallocateFlags::ZERO_RANGE => true,
            FallocateFlags::PUNCH_HOLE if keep => true,
            _ => return Err(Errno::EOPNOTSUPP),
        };
        self.live.fallocate(who(call), ino(node)?, offset..end, hole, keep).map_err(errno)
    }

    fn fsync(&self, call: &Call<'_>, node: u64) -> Reply<()> {
        ino(node)?;
        call.slow();
        self.live.sync().map_err(errno)
    }

    fn setxattr(&self, call: &Call<'_>, node: u64, name: &[u8], value: &[u8], flags: u32) -> Reply<()> {
        if self.done(call).is_some() {
            return Ok(());
        }
        // Access lists are not kept: whoever sets one has to know.
        if name.starts_with(b"system.posix_acl_") {
            return Err(Errno::EOPNOTSUPP);
        }
        let flags = XattrFlags::from_bits_retain(flags);
        let having = match flags {
            _ if flags.is_empty() => Having::Any,
            XattrFlags::CREATE => Having::Not,
            XattrFlags::REPLACE => Having::Already,
            _ => return Err(Errno::EINVAL),
        };
        self.live.set_xattr(who(call), ino(node)?, name, value, having).map_err(errno)
    }

    fn removexattr(&self, call: &Call<'_>, node: u64, name: &[u8]) -> Reply<()> {
        if self.done(call).is_some() {
            return Ok(());
        }
        self.live.remove_xattr(who(call), ino(node)?, name).map_err(errno)
    }
}

fn kind(mode: u32) -> Option<FileType> {
    Some(match Kind::from_raw_mode(mode) {
        Kind::RegularFile => FileType::File,
        Kind::Directory => FileType::Dir,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice => FileType::Char,
        Kind::BlockDevice => FileType::Block,
        // mknod without a type makes a regular file (POSIX).
        Kind::Unknown if mode >> 12 == 0 => FileType::File,
        Kind::Unknown => return None,
    })
}

fn time(time: SetTime) -> Time {
    match time {
        SetTime::At(sec, nsec) => Time { sec, nsec },
        SetTime::Now => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            Time { sec: now.as_secs() as i64, nsec: now.subsec_nanos() }
        }
    }
}
