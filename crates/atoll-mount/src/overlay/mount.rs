//! Mounts an overlay by the new mount API, so that no path needs escaping.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use atoll_store::{Code, Error, Result};
use rustix::fs::{Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};

use super::probe::why_not;
use super::table::find_mount;

/// What `fsync` in the workspace means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FsyncMode {
    /// The upper's file system syncs: what it always means.
    #[default]
    Real,
    /// `fsync` does nothing; the commit is what lasts (the kernel's `volatile`).
    Commit,
}

/// A workspace's overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The commit's folder in the history mount.
    pub lower: PathBuf,
    /// Where changes go. Made, with the lower's mode, owner, times and attributes, when it does not exist.
    pub upper: PathBuf,
    /// The kernel's own folder beside it, on the same file system. Made when it does not exist.
    pub work: PathBuf,
    /// What `fsync` means.
    pub fsync: FsyncMode,
}

/// A mount namespace that was made while this upper was mounted has a copy, and keeps the upper in use until it lets
/// go of it: what `atoll run` makes does so at once.
const TRIES: u32 = 25;

/// Mounts the overlay at `target`, an existing folder.
///
/// # Errors
/// `Busy` when an atoll workspace is mounted there already; `Permission` without the right to mount; `Unsupported`
/// when the upper cannot live where it is, or the kernel is too old.
pub fn mount(overlay: &Overlay, target: &Path) -> Result<()> {
    if let Some(there) = find_mount(target)?.filter(super::Mount::is_workspace) {
        let upper = there.upper().unwrap_or_default();
        return Err(Error::new(
            Code::Busy,
            format!(
                "A workspace (its changes go to {}) is mounted at {} already; unmount it first, or mount at another \
                 folder.",
                upper.display(),
                target.display()
            ),
        ));
    }
    prepare(overlay)?;
    let mut tries = 0;
    let mount = loop {
        match open(overlay, &overlay.upper) {
            Err(error) if error.code == Code::Busy && tries < TRIES => {
                tries += 1;
                thread::sleep(Duration::from_millis(20));
            }
            other => break other?,
        }
    };
    rustix::mount::move_mount(&mount, "", rustix::fs::CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
        .map_err(|error| Error::io("mount the workspace at", target, error.into()))
}

/// A detached mount of the overlay. A refusal names the folder `named`.
pub(super) fn open(overlay: &Overlay, named: &Path) -> Result<OwnedFd> {
    let refused = |error: Errno| why_not(overlay, named, error);
    let context = rustix::mount::fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).map_err(refused)?;
    let result = configure(&context, overlay).and_then(|()| {
        rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
    });
    result.map_err(refused)
}

fn configure(context: &OwnedFd, overlay: &Overlay) -> rustix::io::Result<()> {
    let set = |key: &str, value: &str| rustix::mount::fsconfig_set_string(context, key, value);
    set("source", "atoll")?;
    let mut open = Vec::new();
    // Before kernel 6.8 there is no `lowerdir+`, and `lowerdir` takes a list in which colons are escaped.
    match set_folder(context, "lowerdir+", &overlay.lower, &mut open) {
        Err(Errno::INVAL) => {
            rustix::mount::fsconfig_set_string(context, "lowerdir", &*escaped(&overlay.lower, b":\\"))?;
        }
        other => other?,
    }
    set_folder(context, "upperdir", &overlay.upper, &mut open)?;
    set_folder(context, "workdir", &overlay.work, &mut open)?;
    for key in ["redirect_dir", "index", "xino", "metacopy"] {
        set(key, "on")?;
    }
    if overlay.fsync == FsyncMode::Commit {
        rustix::mount::fsconfig_set_flag(context, "volatile")?;
    }
    rustix::mount::fsconfig_create(context)
}

/// Values of more than 255 bytes are refused; a descriptor's path is short. The kernel takes backslashes away, but
/// for `lowerdir+`, although nothing needs them here.
fn set_folder(
    context: &OwnedFd,
    key: &str,
    folder: &Path,
    open: &mut Vec<OwnedFd>,
) -> rustix::io::Result<()> {
    let special: &[u8] = if key == "lowerdir+" { b"" } else { b"\\" };
    let value = escaped(folder, special);
    if value.len() < 256 {
        return rustix::mount::fsconfig_set_string(context, key, &*value);
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let short = format!("/proc/self/fd/{}", folder.as_raw_fd());
    open.push(folder);
    rustix::mount::fsconfig_set_string(context, key, short)
}

fn escaped(path: &Path, special: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for &byte in path.as_os_str().as_bytes() {
        if special.contains(&byte) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out
}

/// Makes the upper and the work folder where they do not exist. The merged root shows the upper's attributes, so
/// a new upper takes the lower's.
fn prepare(overlay: &Overlay) -> Result<()> {
    make(&overlay.work)?;
    if overlay.upper.exists() {
        return Ok(());
    }
    // Under another name until its attributes are right: a crash must not leave a half-made upper.
    let new = overlay.upper.with_extension("new");
    make(&new)?;
    copy_attributes(&overlay.lower, &new)
        .map_err(|error| Error::io("prepare the upper folder", &new, error))?;
    fs::rename(&new, &overlay.upper).map_err(|error| Error::io("make", &overlay.upper, error))
}

fn make(folder: &Path) -> Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::io("make the folder", folder, error))
        }
        _ => Ok(()),
    }
}

fn copy_attributes(from: &Path, to: &Path) -> io::Result<()> {
    let stat = fs::metadata(from)?;
    let (from, to) = (File::open(from)?, File::open(to)?);
    rustix::fs::fchown(to.as_fd(), Some(Uid::from_raw(stat.uid())), Some(Gid::from_raw(stat.gid())))?;
    rustix::fs::fchmod(to.as_fd(), Mode::from_raw_mode(stat.mode() & 0o7777))?;
    let mut names = vec![0; 64 << 10];
    let length = match rustix::fs::flistxattr(&from, &mut names[..]) {
        Ok(length) => length,
        Err(Errno::NOSYS | Errno::NOTSUP) => 0,
        Err(error) => return Err(error.into()),
    };
    let mut value = vec![0; 64 << 10];
    for name in names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        if !name.starts_with(b"trusted.overlay.") {
            let length = rustix::fs::fgetxattr(&from, name, &mut value[..])?;
            rustix::fs::fsetxattr(&to, name, &value[..length], XattrFlags::empty())?;
        }
    }
    let mtime = Timespec { tv_sec: stat.mtime(), tv_nsec: stat.mtime_nsec() as _ };
    rustix::fs::futimens(&to, &Timestamps { last_access: mtime, last_modification: mtime })?;
    Ok(())
}
