//! `/proc/self/mountinfo`, as far as the launcher needs it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) root: PathBuf,
    pub(super) point: PathBuf,
    pub(super) options: String,
    pub(super) kind: String,
    pub(super) source: String,
    pub(super) super_options: String,
}

/// Blanks, tabs, newlines and backslashes stand as three octal digits.
fn unescape(field: &str) -> PathBuf {
    let bytes: Vec<u8> = field.chars().map(|c| c as u32 as u8).collect();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let octal = (bytes[at] == b'\\')
            .then(|| bytes.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

fn parse(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let front: Vec<&str> = front.split(' ').collect();
    let back: Vec<&str> = back.split(' ').collect();
    Some(Mount {
        root: unescape(front.get(3)?),
        point: unescape(front.get(4)?),
        options: (*front.get(5)?).to_owned(),
        kind: (*back.first()?).to_owned(),
        source: (*back.get(1)?).to_owned(),
        super_options: back.get(2).copied().unwrap_or_default().to_owned(),
    })
}

/// All mounts that this process sees, in the order they were made.
pub(super) fn all() -> Vec<Mount> {
    let bytes = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    // Names need not be UTF-8: one character for each byte, until `unescape` makes them bytes again.
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    text.lines().filter_map(parse).collect()
}

/// The mounts at or below a path, the deepest last.
pub(super) fn below(path: &Path) -> Vec<Mount> {
    all().into_iter().filter(|mount| mount.point.starts_with(path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_a_line_with_blanks_in_it() {
        let line = r"36 35 98:0 /a\040b /mnt/x\134y rw,noatime shared:1 - ext4 /dev/root rw,errors=continue";
        let mount = parse(line).unwrap();
        assert_eq!(mount.root, Path::new("/a b"));
        assert_eq!(mount.point, Path::new(r"/mnt/x\y"));
        assert_eq!(mount.options, "rw,noatime");
        assert_eq!(mount.kind, "ext4");
        assert_eq!(mount.super_options, "rw,errors=continue");
    }

    #[test]
    fn sees_the_root() {
        assert!(all().iter().any(|mount| mount.point == Path::new("/")));
    }
}
