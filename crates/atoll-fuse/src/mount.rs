//! How a FUSE mount comes to be, and goes: by the kernel's mount calls where the process has the right (root,
//! also in a user namespace of its own), else through the set-id helper `fusermount3`.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::CWD;
use rustix::io::Errno as SysErrno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};

/// The descriptor of a connection: who reads it serves the mount; when its last copy is closed the mount
/// answers ENOTCONN.
pub type Device = OwnedFd;

/// What a mount is to look like.
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// What `mount` shows as its source.
    pub name: String,
    /// The part after `fuse.` of its type.
    pub subtype: String,
    /// Users other than the mounting one may look at it (permissions are checked by the kernel either way).
    pub allow_other: bool,
    /// No writing.
    pub read_only: bool,
    /// Set-id bits and device files in it mean something; only root can have that.
    pub trusted: bool,
}

/// Mounts on the folder `dir`. The kernel waits for an answer to its INIT: the caller has to serve the device.
///
/// # Errors
/// The system's; `PermissionDenied` with a sentence where neither way is open.
pub fn mount(dir: &Path, options: &MountOptions) -> io::Result<Device> {
    match mount_by_kernel(dir, options) {
        Err(SysErrno::PERM | SysErrno::ACCESS) => mount_by_helper(dir, options),
        result => result.map_err(Into::into),
    }
}

fn mount_by_kernel(dir: &Path, options: &MountOptions) -> Result<Device, SysErrno> {
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open("/dev/fuse")
        .map_err(|error| SysErrno::from_io_error(&error).unwrap_or(SysErrno::IO))?;
    let fs = rustix::mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |key: &str, value: &str| rustix::mount::fsconfig_set_string(&fs, key, value);
    set("source", &options.name)?;
    set("subtype", &options.subtype)?;
    set("fd", &device.as_raw_fd().to_string())?;
    set("rootmode", "040755")?;
    set("user_id", &rustix::process::getuid().as_raw().to_string())?;
    set("group_id", &rustix::process::getgid().as_raw().to_string())?;
    rustix::mount::fsconfig_set_flag(&fs, "default_permissions")?;
    if options.allow_other {
        rustix::mount::fsconfig_set_flag(&fs, "allow_other")?;
    }
    if options.read_only {
        rustix::mount::fsconfig_set_flag(&fs, "ro")?;
    }
    rustix::mount::fsconfig_create(&fs)?;
    let mut attributes = MountAttrFlags::empty();
    if !options.trusted {
        attributes |= MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    }
    if options.read_only {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOATIME;
    }
    let mount = rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    rustix::mount::move_mount(&mount, "", CWD, dir, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?;
    Ok(device.into())
}

/// `fusermount3` mounts and sends the descriptor back through a socket, which it gets as its standard input.
fn mount_by_helper(dir: &Path, options: &MountOptions) -> io::Result<Device> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut list = OsString::from("default_permissions,nosuid,nodev");
    list.push(format!(",fsname={},subtype={}", escaped(&options.name), escaped(&options.subtype)));
    if options.allow_other {
        list.push(",allow_other");
    }
    if options.read_only {
        list.push(",ro");
    }
    let output = Command::new("fusermount3")
        .arg("-o")
        .arg(list)
        .arg("--")
        .arg(dir)
        .env("_FUSE_COMMFD", "0")
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                io::ErrorKind::PermissionDenied,
                "This user may not mount, and the helper fusermount3 is not installed (package fuse3).",
            ),
            _ => error,
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("fusermount3 could not mount on {}: {}", dir.display(), said.trim()),
        ));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&ours, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(mut descriptors) = message
            && let Some(device) = descriptors.next()
        {
            return Ok(device);
        }
    }
    Err(io::Error::other("fusermount3 mounted but sent no descriptor."))
}

/// Commas end an option for `fusermount3`, a backslash keeps them.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace(',', "\\,")
}

/// Unmounts `dir`. Not lazily unless `detach`: a mount in use answers `ResourceBusy`.
///
/// # Errors
/// The system's, or what `fusermount3` said.
pub fn unmount(dir: &Path, detach: bool) -> io::Result<()> {
    let mut flags = UnmountFlags::NOFOLLOW;
    if detach {
        flags |= UnmountFlags::DETACH;
    }
    match rustix::mount::unmount(dir, flags) {
        Err(SysErrno::PERM) => {
            let mut command = Command::new("fusermount3");
            command.arg(if detach { "-uz" } else { "-u" }).arg("--").arg(dir);
            let output = command.stdin(Stdio::null()).output()?;
            if output.status.success() {
                return Ok(());
            }
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let busy = said.contains("busy");
            let kind = if busy { io::ErrorKind::ResourceBusy } else { io::ErrorKind::PermissionDenied };
            Err(io::Error::new(kind, said))
        }
        result => result.map_err(Into::into),
    }
}
