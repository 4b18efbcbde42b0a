//! Uppers in memory.

use std::path::Path;

use atoll_store::{Code, Error, Result};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags};

use super::table::{Mount, find_mount, mounts};

/// Mounts a tmpfs at `dir` (an existing, empty folder) for an upper: `size` bytes at most (`None`: half of the
/// memory, the kernel's default).
///
/// # Errors
/// `Permission` without the right to mount; `Busy` when something is mounted there.
pub fn mount_scratch(dir: &Path, size: Option<u64>) -> Result<()> {
    if let Some(there) = find_mount(dir)? {
        let text = format!("{} is a mount ({}) already; unmount it first.", dir.display(), there.fs_type);
        return Err(Error::new(Code::Busy, text));
    }
    let mounted = || -> rustix::io::Result<()> {
        let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key: &str, value: &str| rustix::mount::fsconfig_set_string(&context, key, value);
        set("source", "atoll")?;
        set("mode", "0700")?;
        // The upper holds an inode for every small file: the default limit of one for each page of the half of
        // memory would end many small files long before the bytes do.
        set("nr_inodes", "0")?;
        if let Some(size) = size {
            set("size", &size.to_string())?;
        }
        rustix::mount::fsconfig_create(&context)?;
        let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        rustix::mount::move_mount(&mount, "", rustix::fs::CWD, dir, flags)
    };
    mounted().map_err(|error| Error::io("mount a scratch in memory at", dir, error.into()))
}

/// Unmounts it; its contents are gone.
///
/// # Errors
/// `Busy` while an overlay over it is mounted; `NotFound` when there is none.
pub fn umount_scratch(dir: &Path) -> Result<()> {
    if find_mount(dir)?.is_none_or(|mount| mount.fs_type != "tmpfs" || mount.source != "atoll") {
        let text = format!("There is no scratch in memory at {}.", dir.display());
        return Err(Error::new(Code::NotFound, text));
    }
    let busy = || {
        let text =
            format!("The scratch in memory at {} is in use; unmount its workspace first.", dir.display());
        Error::new(Code::Busy, text)
    };
    // An overlay holds the file system but not this mount of it: the kernel would let go of the only way in.
    if mounts()?.iter().filter_map(Mount::upper).any(|upper| upper.starts_with(dir)) {
        return Err(busy());
    }
    rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW).map_err(|error| match error {
        Errno::BUSY => busy(),
        error => Error::io("unmount the scratch in memory at", dir, error.into()),
    })
}
