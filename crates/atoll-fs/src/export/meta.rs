//! Owner, mode, attributes and times of a file that was just made.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use atoll_store::tree::{FileType, Inode, Time};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::ingest::xattrs::{self, Xattrs};

/// What could not be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Owner or group.
    Owner,
    /// Set-id or sticky bits.
    Mode,
    /// The whole file: only root makes devices.
    Device,
    /// This attribute.
    Xattr(Box<[u8]>),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lost::Owner => f.write_str("owner"),
            Lost::Mode => f.write_str("mode"),
            Lost::Device => f.write_str("device"),
            Lost::Xattr(name) => write!(f, "xattr {}", String::from_utf8_lossy(name)),
        }
    }
}

/// Of a file or folder that is open. Owner first (a change of it takes set-id bits and capabilities away), the
/// mode after the attributes (setting those needs the right to write), times last.
pub(crate) fn restore_open(file: &File, inode: &Inode, xattrs: &Xattrs) -> rustix::io::Result<Vec<Lost>> {
    let mut lost = Vec::new();
    let now = crate::scan::HostStat::of(file)?;
    if (now.uid, now.gid) != (inode.uid, inode.gid) {
        owner(&mut lost, |uid, gid| rustix::fs::fchown(file, uid, gid), inode)?;
    }
    for (name, value) in xattrs {
        attribute(&mut lost, name, rustix::fs::fsetxattr(file, &name[..], value, XattrFlags::empty()))?;
    }
    rustix::fs::fchmod(file, Mode::from_raw_mode(u32::from(inode.mode)))?;
    // Somebody who is not in the file's group loses the set-group-id bit without an error.
    if inode.mode & 0o7000 != 0 && crate::scan::HostStat::of(file)?.mode != inode.mode {
        lost.push(Lost::Mode);
    }
    rustix::fs::futimens(file, &times(inode.mtime))?;
    Ok(lost)
}

/// Of a name that cannot be opened: a link, a pipe, a socket, a device.
pub(crate) fn restore_at(
    dir: &OwnedFd,
    name: &[u8],
    inode: &Inode,
    xattrs: &Xattrs,
) -> rustix::io::Result<Vec<Lost>> {
    let mut lost = Vec::new();
    let now = crate::scan::HostStat::at(dir, name)?;
    if (now.uid, now.gid) != (inode.uid, inode.gid) {
        let chown = |uid, gid| rustix::fs::chownat(dir.as_fd(), name, uid, gid, AtFlags::SYMLINK_NOFOLLOW);
        owner(&mut lost, chown, inode)?;
    }
    for (attribute_name, value) in xattrs {
        attribute(&mut lost, attribute_name, xattrs::set_at(dir, name, attribute_name, value))?;
    }
    // Nobody can change a link's mode; it is always all bits.
    if inode.kind != FileType::Symlink {
        rustix::fs::chmodat(dir, name, Mode::from_raw_mode(u32::from(inode.mode)), AtFlags::empty())?;
    }
    rustix::fs::utimensat(dir, name, &times(inode.mtime), AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(lost)
}

fn owner(
    lost: &mut Vec<Lost>,
    chown: impl Fn(Option<Uid>, Option<Gid>) -> rustix::io::Result<()>,
    inode: &Inode,
) -> rustix::io::Result<()> {
    let (uid, gid) = (Uid::from_raw(inode.uid), Gid::from_raw(inode.gid));
    match chown(Some(uid), Some(gid)) {
        // The group alone can be had by its members; an id that the user namespace lacks is EINVAL.
        Err(Errno::PERM | Errno::INVAL) => {
            lost.push(Lost::Owner);
            match chown(None, Some(gid)) {
                Err(Errno::PERM | Errno::INVAL) => Ok(()),
                other => other,
            }
        }
        other => other,
    }
}

fn attribute(lost: &mut Vec<Lost>, name: &[u8], result: rustix::io::Result<()>) -> rustix::io::Result<()> {
    match result {
        Ok(()) => Ok(()),
        // No right, not supported here, or larger than this file system takes.
        Err(
            Errno::PERM
            | Errno::ACCESS
            | Errno::NOTSUP
            | Errno::NOSPC
            | Errno::TOOBIG
            | Errno::RANGE
            | Errno::INVAL,
        ) => {
            lost.push(Lost::Xattr(name.into()));
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// For a file that has this modification time; its access time is not kept, so it gets the same.
pub(crate) fn times(mtime: Time) -> Timestamps {
    let mtime = Timespec { tv_sec: mtime.sec, tv_nsec: i64::from(mtime.nsec) };
    Timestamps { last_access: mtime, last_modification: mtime }
}
