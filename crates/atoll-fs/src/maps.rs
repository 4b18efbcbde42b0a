//! Which files of a file system are mapped shared and writable right now. A store through such a map into a
//! page that is dirty already changes neither mtime nor ctime (on tmpfs: no store does), so stat data says
//! nothing about these files.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::path::Path;

use atoll_store::{Error, Result};
use rustix::fs::makedev;

/// The files on the device `dev` (a `st_dev`) that some visible process has mapped shared and writable, as
/// `(st_dev, st_ino)`. An overlay's files are found under the overlay's own `st_dev` and `st_ino`.
///
/// Processes whose maps this process may not read (another user's) are passed over, and so are processes that
/// end meanwhile.
///
/// # Errors
/// `Io` when `/proc` cannot be listed.
pub fn writable_shared(dev: u64) -> Result<HashSet<(u64, u64)>> {
    let mut found = HashSet::new();
    let proc = Path::new("/proc");
    let entries = fs::read_dir(proc).map_err(|error| Error::io("list", proc, error))?;
    for entry in entries {
        let Ok(entry) = entry else { continue };
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let maps = match fs::read(proc.join(&name).join("maps")) {
            Ok(maps) => maps,
            // Gone, a kernel thread, or somebody else's.
            Err(_) => continue,
        };
        for line in maps.split(|byte| *byte == b'\n') {
            let Some(map) = Map::parse(line) else { continue };
            if map.dev == dev {
                found.insert((dev, map.ino));
            } else if let Some(file) = map.stat(pid).filter(|file| file.0 == dev) {
                // btrfs shows another device number in maps than in stat.
                found.insert(file);
            }
        }
    }
    Ok(found)
}

/// One shared writable map of a file.
struct Map<'a> {
    range: &'a str,
    dev: u64,
    ino: u64,
}

impl<'a> Map<'a> {
    /// From a line `7fc1-7fc2 rw-s 00000000 00:27 10043461   /path`; `None` for every other kind of map.
    fn parse(line: &'a [u8]) -> Option<Self> {
        // The path may be any bytes; what stands before it is ASCII.
        let mut fields = line.splitn(6, |byte| *byte == b' ').map(std::str::from_utf8);
        let range = fields.next()?.ok()?;
        let rights = fields.next()?.ok()?;
        if rights.as_bytes().get(1) != Some(&b'w') || rights.as_bytes().get(3) != Some(&b's') {
            return None;
        }
        let (_offset, dev) = (fields.next()?.ok()?, fields.next()?.ok()?);
        let (major, minor) = dev.split_once(':')?;
        let (major, minor) = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
        let ino: u64 = fields.next()?.ok()?.parse().ok()?;
        (ino != 0).then_some(Map { range, dev: makedev(major, minor), ino })
    }

    /// What `stat` says about the mapped file.
    fn stat(&self, pid: u32) -> Option<(u64, u64)> {
        let stat: io::Result<rustix::fs::Stat> =
            rustix::fs::stat(format!("/proc/{pid}/map_files/{}", self.range)).map_err(Into::into);
        stat.ok().map(|stat| (stat.st_dev, stat.st_ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_shared_writable_files_count() {
        let shared = b"7fc140dba000-7fc140dbd000 rw-s 00000000 00:27 10043461                   /m/a b\xff";
        let map = Map::parse(shared).unwrap();
        assert_eq!((map.dev, map.ino), (makedev(0, 0x27), 10_043_461));
        assert!(
            Map::parse(b"7fc140dba000-7fc140dbd000 -w-s 00000000 fe:00 9223372036864819258 /a").is_some()
        );
        for line in [
            &b"7fc1-7fc2 rw-p 00000000 fe:00 12 /private"[..],
            b"7fc1-7fc2 r--s 00000000 fe:00 12 /read only",
            b"7fc1-7fc2 rw-s 00000000 00:00 0 anonymous",
            b"",
        ] {
            assert!(Map::parse(line).is_none(), "{}", String::from_utf8_lossy(line));
        }
    }
}
