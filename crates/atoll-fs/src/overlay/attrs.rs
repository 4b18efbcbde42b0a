//! The extended attributes of an upper's file: overlayfs' own, which say how it relates to the lower, and the
//! others, which belong to the file.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::lower::Handle;
use crate::ingest::xattrs::{Xattrs, is_kept};

/// The prefix of overlayfs' own attributes.
const OWN: &[u8] = b"trusted.overlay.";

/// How a folder hides the lower's folder of the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Opaque {
    /// Not at all: it is merged with it.
    #[default]
    No,
    /// All of it.
    Yes,
    /// Not at all, but files in it can be whiteouts by an attribute.
    Whiteouts,
}

/// The attributes of one file.
#[derive(Debug, Clone, Default)]
pub(super) struct Attrs {
    /// The file's own, sorted.
    pub kept: Xattrs,
    /// It was copied up, or is a folder merged with a lower one; the handle is missing when the lower has none.
    pub origin: Option<Option<Handle>>,
    /// Where the lower folder (or file) is: a path from the root with a leading slash, or a name beside it.
    pub redirect: Option<Box<[u8]>>,
    /// See [`Opaque`].
    pub opaque: Opaque,
    /// Its data is still the lower's.
    pub metacopy: bool,
    /// It is a whiteout, if its folder says that such exist.
    pub whiteout: bool,
}

impl Attrs {
    /// Of an open file or folder.
    pub fn of(file: impl AsFd) -> rustix::io::Result<Attrs> {
        let file = file.as_fd();
        read(
            |buffer| rustix::fs::flistxattr(file, buffer),
            |name, buffer| rustix::fs::fgetxattr(file, name, buffer),
        )
    }

    /// Of a name in a folder that is not to be opened (a link, a device).
    pub fn at(dir: impl AsFd, name: &CStr) -> rustix::io::Result<Attrs> {
        // The calls on names take no folder's descriptor before kernel 6.13; procfs makes one part of a path.
        let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
        path.extend_from_slice(name.to_bytes());
        let path = &path[..];
        read(
            |buffer| rustix::fs::llistxattr(path, buffer),
            |name, buffer| rustix::fs::lgetxattr(path, name, buffer),
        )
    }

    fn set(&mut self, name: &[u8], value: &[u8]) {
        match name {
            b"origin" => self.origin = Some(handle(value)),
            b"redirect" => self.redirect = Some(value.into()),
            b"opaque" => {
                self.opaque = match value {
                    b"y" => Opaque::Yes,
                    b"x" => Opaque::Whiteouts,
                    _ => Opaque::No,
                }
            }
            b"metacopy" => self.metacopy = true,
            b"whiteout" => self.whiteout = true,
            // impure, nlink, upper, uuid, protattr; and `overlay.*`, an inner overlay's.
            _ => {}
        }
    }
}

fn read(
    list: impl Fn(&mut [u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&[u8], &mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Attrs> {
    let mut attrs = Attrs::default();
    let mut small = [0u8; 1024];
    let mut large = Vec::new();
    let names = match list(&mut small) {
        Ok(0) | Err(Errno::NOTSUP) => return Ok(attrs),
        Ok(length) => &small[..length],
        Err(Errno::RANGE) => {
            large.resize(64 << 10, 0);
            let length = list(&mut large)?;
            &large[..length]
        }
        Err(error) => return Err(error),
    };
    let mut value = vec![0; 64 << 10];
    for name in names.split(|&byte| byte == 0) {
        let own = name.strip_prefix(OWN);
        if own.is_none() && !is_kept(name) {
            continue;
        }
        match (get(name, &mut value), own) {
            (Ok(length), Some(own)) => attrs.set(own, &value[..length]),
            (Ok(length), None) => attrs.kept.push((name.into(), value[..length].into())),
            (Err(Errno::NODATA), _) => {}
            (Err(error), _) => return Err(error),
        }
    }
    attrs.kept.sort();
    Ok(attrs)
}

/// Takes overlayfs' form of a handle apart: version 0, magic 0xfb, length, flags, type, 16 bytes of the file
/// system's id, and the handle itself.
pub(super) fn handle(bytes: &[u8]) -> Option<Handle> {
    const HEADER: usize = 21;
    const BIG_ENDIAN: u8 = 1;
    const ANY_ENDIAN: u8 = 2;
    let fits =
        bytes.len() >= HEADER && bytes[0] == 0 && bytes[1] == 0xfb && usize::from(bytes[2]) == bytes.len();
    if !fits {
        return None;
    }
    let flags = bytes[3];
    if flags & ANY_ENDIAN == 0 && (flags & BIG_ENDIAN != 0) != cfg!(target_endian = "big") {
        return None;
    }
    Some(Handle { kind: bytes[4], bytes: bytes[HEADER..].to_vec() })
}

/// The handle that a file's name in the index folder is, in hexadecimal digits.
pub(super) fn handle_of_name(name: &[u8]) -> Option<Handle> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let bytes: Option<Vec<u8>> = match name.len() % 2 {
        0 => name.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect(),
        _ => None,
    };
    handle(&bytes?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_as_the_kernel_wrote_it() {
        let name = b"00fb1d0001000000000000000000000000000000003d40990021bf92a8";
        let handle = handle_of_name(name).unwrap();
        assert_eq!(handle.kind, 1);
        assert_eq!(handle.bytes, [0x3d, 0x40, 0x99, 0, 0x21, 0xbf, 0x92, 0xa8]);
        assert_eq!(handle_of_name(&name[..40]), None);
        assert_eq!(handle_of_name(b"00f"), None);
        assert_eq!(super::handle(b""), None);
    }
}
