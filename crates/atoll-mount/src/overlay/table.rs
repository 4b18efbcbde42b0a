//! What is mounted where: `/proc/self/mountinfo`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use atoll_store::{Error, Result};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// The mount's number.
    pub id: u64,
    /// `st_dev` of the file system as (major, minor).
    pub dev: (u32, u32),
    /// The folder of the file system that is mounted.
    pub root: PathBuf,
    /// Where.
    pub target: PathBuf,
    /// The mount's own flags, separated by commas: `rw,nosuid,relatime`.
    pub flags: String,
    /// `overlay`, `tmpfs`, `fuse.atoll`, …
    pub fs_type: String,
    /// What the mounter called it; `atoll` for ours.
    pub source: String,
    /// The file system's own options; flags have an empty value. Repeated ones (`lowerdir+`) keep the last.
    pub options: BTreeMap<String, String>,
    /// The group of mounts, in other namespaces too, that are mounted and unmounted together with this one.
    pub shared: Option<u64>,
    /// The group that this one follows.
    pub master: Option<u64>,
}

impl Mount {
    /// Whether atoll mounted this as a workspace.
    pub fn is_workspace(&self) -> bool {
        self.fs_type == "overlay" && self.source == "atoll" || self.is_live()
    }

    /// Whether it is a workspace that the `fuse` driver serves.
    pub fn is_live(&self) -> bool {
        self.fs_type == "fuse.atoll-live"
    }

    /// Of an overlay: where changes go.
    pub fn upper(&self) -> Option<PathBuf> {
        let text = self.options.get("upperdir").filter(|_| self.fs_type == "overlay")?;
        // The kernel takes a backslash before any character away, and shows the option as it was given.
        let mut plain = String::with_capacity(text.len());
        let mut rest = text.chars();
        while let Some(next) = rest.next() {
            plain.extend(if next == '\\' { rest.next() } else { Some(next) });
        }
        Some(PathBuf::from(plain))
    }

    /// Whether what is mounted here answers at all: not when the history server below it is gone for good. Waits
    /// for a server that hangs.
    pub fn is_alive(&self) -> bool {
        // The root's own attributes are the upper's; only its listing asks below.
        fs::read_dir(&self.target).and_then(|mut names| names.next().transpose()).is_ok()
    }

    /// Whether `fsync` does nothing in this overlay.
    pub fn is_volatile(&self) -> bool {
        self.options.contains_key("volatile")
            || self.options.get("fsync").is_some_and(|mode| mode == "volatile")
    }
}

/// All mounts that this process sees, in the order of the kernel (a later one covers an earlier one).
///
/// # Errors
/// `Io` when `/proc` is not there.
pub fn mounts() -> Result<Vec<Mount>> {
    let path = Path::new("/proc/self/mountinfo");
    mounts_in(path).map_err(|error| Error::io("read", path, error))
}

/// The mounts of a process, from its `mountinfo`.
pub(super) fn mounts_in(path: &Path) -> io::Result<Vec<Mount>> {
    Ok(fs::read(path)?.split(|byte| *byte == b'\n').filter_map(parse).collect())
}

/// The mount whose target is exactly `target`; the topmost, when several are.
///
/// # Errors
/// `Io` when `/proc` is not there.
pub fn find_mount(target: &Path) -> Result<Option<Mount>> {
    // No canonicalize here: it would ask a dead FUSE server. The folder above is enough.
    let target = match (target.parent(), target.file_name()) {
        (Some(parent), Some(name)) => match fs::canonicalize(parent) {
            Ok(parent) => parent.join(name),
            Err(_) => target.to_path_buf(),
        },
        _ => target.to_path_buf(),
    };
    Ok(mounts()?.into_iter().rev().find(|mount| mount.target == target))
}

/// From `36 35 98:0 /root /target rw,noatime master:1 - ext4 /dev/root rw,errors=continue`.
fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    let text = |at: usize| fields.get(at).map(|field| String::from_utf8_lossy(&unescape(field)).into_owned());
    let path = |at: usize| fields.get(at).map(|field| PathBuf::from(OsString::from_vec(unescape(field))));
    let (major, minor) = text(2)?.split_once(':').map(|(a, b)| (a.to_owned(), b.to_owned()))?;
    let options = fields.get(dash + 3).map(|field| options(field)).unwrap_or_default();
    let group = |name: &str| {
        let field = fields[6.min(dash)..dash].iter().find_map(|field| field.strip_prefix(name.as_bytes()))?;
        std::str::from_utf8(field).ok()?.parse().ok()
    };
    Some(Mount {
        id: text(0)?.parse().ok()?,
        dev: (major.parse().ok()?, minor.parse().ok()?),
        root: path(3)?,
        target: path(4)?,
        flags: text(5)?,
        fs_type: text(dash + 1)?,
        source: text(dash + 2)?,
        options,
        shared: group("shared:"),
        master: group("master:"),
    })
}

/// Options are separated by commas; a comma within a value stands as `\054`.
fn options(field: &[u8]) -> BTreeMap<String, String> {
    field
        .split(|byte| *byte == b',')
        .map(|option| {
            let at = option.iter().position(|byte| *byte == b'=');
            let (name, value) = at.map_or((option, &b""[..]), |at| (&option[..at], &option[at + 1..]));
            let text = |bytes| String::from_utf8_lossy(&unescape(bytes)).into_owned();
            (text(name), text(value))
        })
        .collect()
}

/// Undoes the kernel's `\ooo`.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = (field[at] == b'\\')
            .then(|| field.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        if let Some(byte) = octal {
            out.push(byte);
            at += 4;
        } else {
            out.push(field[at]);
            at += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_taken_apart() {
        let line = br"44 27 0:39 / /tmp/a\040b rw,relatime shared:5 - overlay atoll rw,lowerdir+=/l\054x,upperdir=/u,metacopy=on";
        let mount = parse(line).unwrap();
        assert_eq!((mount.id, mount.dev), (44, (0, 39)));
        assert_eq!(mount.target, Path::new("/tmp/a b"));
        assert!(mount.is_workspace());
        assert_eq!(mount.options["lowerdir+"], "/l,x");
        assert_eq!(mount.options["upperdir"], "/u");
        assert_eq!(mount.options["rw"], "");
        assert_eq!((mount.shared, mount.master), (Some(5), None));
        assert!(parse(b"").is_none());
    }

    #[test]
    fn proc_is_found() {
        assert_eq!(find_mount(Path::new("/proc")).unwrap().unwrap().fs_type, "proc");
        assert!(find_mount(Path::new("/proc/self")).unwrap().is_none());
    }
}
