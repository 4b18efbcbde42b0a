//! Which processes keep a mount busy.

use std::fs;
use std::path::{Path, PathBuf};

use atoll_store::{Error, Result};
use rustix::fs::{AtFlags, CWD, StatxFlags, makedev};

use super::table::{Mount, find_mount, mounts, mounts_in};

/// A process that uses a mount.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// Its name as `ps` shows it.
    pub name: String,
    /// How: `working folder`, `root folder`, `open file PATH`, `mapped file PATH`, `mount at PATH`,
    /// `in a mount namespace that shows it at PATH`.
    pub how: String,
}

/// The processes that use the file system mounted at `target`, sorted by id; one line for each. A mount on top of
/// it, or of a part of it elsewhere in this mount namespace, is listed too, with process 0.
///
/// # Errors
/// `Io` when `/proc` cannot be read.
pub fn holders(target: &Path) -> Result<Vec<Holder>> {
    let Some(mount) = find_mount(target)? else { return Ok(Vec::new()) };
    let dev = makedev(mount.dev.0, mount.dev.1);
    let mut found = Vec::new();
    for other in mounts()? {
        if other.target != mount.target && other.target.starts_with(&mount.target) {
            let how = format!("mount at {}", other.target.display());
            found.push(Holder { pid: 0, name: other.fs_type, how });
        }
    }
    found.extend(others(&mount)?);
    let proc = Path::new("/proc");
    for entry in fs::read_dir(proc).map_err(|error| Error::io("list", proc, error))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let process = entry.path();
        if let Some(how) = how(&process, dev) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
            found.push(Holder { pid, name: name.trim_end().to_owned(), how });
        }
    }
    found.sort();
    Ok(found)
}

/// Other mounts of the same file system that an unmount of this one does not reach, here and in other mount
/// namespaces: there somebody can go on writing, and the kernel keeps the upper for them. One process of each such
/// namespace.
///
/// # Errors
/// `Io` when `/proc` cannot be read.
pub(super) fn others(mount: &Mount) -> Result<Vec<Holder>> {
    let proc = Path::new("/proc");
    let mut seen = vec![fs::read_link("/proc/self/ns/mnt").unwrap_or_default()];
    let mut found = Vec::new();
    for other in mounts()?.into_iter().filter(|other| other.dev == mount.dev && other.id != mount.id) {
        let how = format!("mount at {}", other.target.display());
        found.push(Holder { pid: 0, name: other.fs_type, how });
    }
    for entry in fs::read_dir(proc).map_err(|error| Error::io("list", proc, error))?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let process = entry.path();
        let Ok(namespace) = fs::read_link(process.join("ns/mnt")) else { continue };
        if seen.contains(&namespace) {
            continue;
        }
        // Gone meanwhile, or not ours to look into.
        let Ok(mounts) = mounts_in(&process.join("mountinfo")) else { continue };
        seen.push(namespace);
        let follows = |other: &Mount| {
            mount.shared.is_some_and(|group| other.shared == Some(group) || other.master == Some(group))
        };
        if let Some(other) = mounts.iter().find(|other| other.dev == mount.dev && !follows(other)) {
            let name = fs::read_to_string(process.join("comm")).unwrap_or_default().trim_end().to_owned();
            let how = format!("in a mount namespace that shows it at {}", other.target.display());
            found.push(Holder { pid, name, how });
        }
    }
    Ok(found)
}

fn how(process: &Path, dev: u64) -> Option<String> {
    let link = |name: PathBuf| fs::read_link(name).unwrap_or_default();
    if device(&process.join("cwd")) == Some(dev) {
        return Some("working folder".to_owned());
    }
    if device(&process.join("root")) == Some(dev) {
        return Some("root folder".to_owned());
    }
    for (folder, what) in [("fd", "open file"), ("map_files", "mapped file")] {
        for entry in fs::read_dir(process.join(folder)).into_iter().flatten().flatten() {
            if device(&entry.path()) == Some(dev) {
                return Some(format!("{what} {}", link(entry.path()).display()));
            }
        }
    }
    (device(&process.join("exe")) == Some(dev))
        .then(|| format!("program {}", link(process.join("exe")).display()))
}

/// The device that a link of `/proc` leads to, without asking a server that may be dead.
fn device(link: &Path) -> Option<u64> {
    let stat = rustix::fs::statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some(makedev(stat.stx_dev_major, stat.stx_dev_minor))
}

/// The lines of an error: `name (pid): how`.
pub(super) fn listed(holders: &[Holder]) -> String {
    let line = |holder: &Holder| match holder.pid {
        0 => holder.how.clone(),
        pid => format!("{} (process {pid}, {})", holder.name, holder.how),
    };
    let mut lines: Vec<String> = holders.iter().take(10).map(line).collect();
    if holders.len() > 10 {
        lines.push(format!("{} more", holders.len() - 10));
    }
    lines.join(", ")
}
