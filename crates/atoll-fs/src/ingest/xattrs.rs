//! Extended attributes: which ones belong into a tree, and how they are read and set.

use std::os::fd::{AsFd, AsRawFd};

use rustix::fs::XattrFlags;
use rustix::io::Errno;

/// Name and value of each attribute, sorted by name.
pub type Xattrs = Vec<(Box<[u8]>, Box<[u8]>)>;

/// Whether an attribute is part of a file. Left out: overlayfs' own, labels and seals that the host's policy
/// sets and that mean nothing elsewhere, and views of other attributes.
pub fn is_kept(name: &[u8]) -> bool {
    let own = [&b"user."[..], b"security.", b"trusted.", b"system.posix_acl_"];
    let left_out = [&b"trusted.overlay."[..], b"security.selinux", b"security.evm", b"security.ima"];
    own.iter().any(|prefix| name.starts_with(prefix))
        && !left_out.iter().any(|prefix| name.starts_with(prefix))
}

/// The kept attributes of an open file or folder (not of a descriptor opened with `O_PATH`).
pub fn read(file: impl AsFd) -> rustix::io::Result<Xattrs> {
    let file = file.as_fd();
    collect(
        |buffer| rustix::fs::flistxattr(file, buffer),
        |name, buffer| rustix::fs::fgetxattr(file, name, buffer),
    )
}

/// The kept attributes of a name in a folder that cannot be opened for reading (a link, a device).
pub fn read_at(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Xattrs> {
    let path = at(dir, name);
    collect(
        |buffer| rustix::fs::llistxattr(&path[..], buffer),
        |name, buffer| rustix::fs::lgetxattr(&path[..], name, buffer),
    )
}

/// Sets an attribute of a name in a folder without following a link.
pub fn set_at(dir: impl AsFd, name: &[u8], attribute: &[u8], value: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::lsetxattr(&at(dir, name)[..], attribute, value, XattrFlags::empty())
}

/// Takes an attribute of a name in a folder away without following a link.
pub fn remove_at(dir: impl AsFd, name: &[u8], attribute: &[u8]) -> rustix::io::Result<()> {
    rustix::fs::lremovexattr(&at(dir, name)[..], attribute)
}

/// The calls on names take no folder's descriptor before kernel 6.13; procfs makes one part of a path.
fn at(dir: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

fn collect(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&[u8], &mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Xattrs> {
    // Nearly always there is none, and an asked-for size could be too small by the time of the second call.
    let mut small = [0u8; 1024];
    let names = match list(&mut small) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(Vec::new()),
        Ok(length) => small[..length].to_vec(),
        Err(Errno::RANGE) => {
            let mut large = vec![0; 64 << 10];
            let length = list(&mut large)?;
            large.truncate(length);
            large
        }
        Err(error) => return Err(error),
    };
    let mut found = Xattrs::new();
    let mut buffer = vec![0; 64 << 10];
    for name in names.split(|&byte| byte == 0).filter(|name| is_kept(name)) {
        match get(name, &mut buffer) {
            Ok(length) => found.push((name.into(), buffer[..length].into())),
            Err(Errno::NODATA) => {}
            // Listed, but not for us to read: another user's trusted or security attribute.
            Err(Errno::PERM | Errno::ACCESS) if !name.starts_with(b"user.") => {}
            Err(error) => return Err(error),
        }
    }
    found.sort();
    Ok(found)
}
