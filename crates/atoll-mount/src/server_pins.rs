//! Who uses a history mount: pins of mounted workspaces, and what the kernel's mount tables show.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_store::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::server_paths::HistoryPaths;

/// A pin's file: which mount it stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Pin {
    /// Where the workspace is mounted.
    mountpoint: PathBuf,
    /// `major:minor` of the mounted file system, as mount tables show it.
    dev: String,
}

/// Makes a pin for a workspace that is mounted at `mountpoint` now.
pub(crate) fn add(paths: &HistoryPaths, workspace: &str, mountpoint: &Path) -> Result<()> {
    let meta = fs::metadata(mountpoint).map_err(|error| Error::io("look at", mountpoint, error))?;
    let dev = format!("{}:{}", rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let dir = paths.pins();
    fs::create_dir_all(&dir).map_err(|error| Error::io("make the folder", &dir, error))?;
    let pin = Pin { mountpoint: mountpoint.to_owned(), dev };
    let path = dir.join(workspace);
    // Whole or not there: a reader must not take half of it for a stale one.
    let half = dir.join(format!(".{workspace}"));
    fs::write(&half, serde_json::to_vec(&pin).map_err(std::io::Error::from)?)
        .and_then(|()| fs::rename(&half, &path))
        .map_err(|error| Error::io("write", &path, error))
}

/// Takes a pin away; one that is not there is fine.
pub(crate) fn remove(paths: &HistoryPaths, workspace: &str) -> Result<()> {
    let path = paths.pins().join(workspace);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &path, error)),
        _ => Ok(()),
    }
}

/// The pinned workspaces.
pub(crate) fn names(paths: &HistoryPaths) -> Vec<String> {
    let Ok(dir) = fs::read_dir(paths.pins()) else { return Vec::new() };
    let mut names: Vec<String> = dir
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names
}

/// A sentence about what uses the history, if anything does. Pins whose mount is in no mount table are removed.
pub(crate) fn user(paths: &HistoryPaths) -> Option<String> {
    let tables = mount_tables();
    for name in names(paths) {
        let path = paths.pins().join(&name);
        let pin: Option<Pin> = fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let Some(pin) = pin else { return Some(format!("The workspace {name} is mounted.")) };
        if tables.iter().any(|table| table.lines().any(|line| line.split(' ').nth(2) == Some(&*pin.dev))) {
            return Some(format!("The workspace {name} is mounted at {}.", pin.mountpoint.display()));
        }
        log::info!("The pin of workspace {name} is removed: it is mounted nowhere any more.");
        let _ = fs::remove_file(&path);
    }
    // An overlay that somebody mounted without a pin, in whatever mount namespace.
    let root = escaped(&paths.root);
    let above = |line: &&str| line.contains(" - overlay ") && line.contains(&format!("{root}/"));
    let line = tables.iter().find_map(|table| table.lines().find(above))?;
    Some(format!("An overlay at {} has its lower folder here.", line.split(' ').nth(4).unwrap_or("?")))
}

/// The mount tables of all mount namespaces that a visible process is in.
fn mount_tables() -> Vec<String> {
    let mut seen = HashSet::new();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let pids = pids.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.filter_map(|pid| {
        let namespace = fs::read_link(format!("/proc/{pid}/ns/mnt")).ok()?;
        if !seen.insert(namespace) {
            return None;
        }
        let table = fs::read(format!("/proc/{pid}/mountinfo")).ok()?;
        Some(String::from_utf8_lossy(&table).into_owned())
    })
    .collect()
}

/// A path as mount tables write it.
fn escaped(path: &Path) -> String {
    let mut out = String::new();
    for char in path.to_string_lossy().chars() {
        match char {
            ' ' | '\t' | '\n' | '\\' | ',' => out.push_str(&format!("\\{:03o}", char as u32)),
            _ => out.push(char),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_of_a_mount_that_is_gone_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let paths = HistoryPaths::at(dir.path().to_owned());
        add(&paths, "one", Path::new("/proc")).unwrap();
        assert_eq!(names(&paths), ["one"]);
        assert!(user(&paths).unwrap().contains("one"));
        let stale = Pin { mountpoint: "/nowhere".into(), dev: "0:9999999".into() };
        fs::write(paths.pins().join("one"), serde_json::to_vec(&stale).unwrap()).unwrap();
        assert_eq!(user(&paths), None);
        assert!(names(&paths).is_empty());
        remove(&paths, "one").unwrap();
    }

    #[test]
    fn a_pin_that_cannot_be_read_counts() {
        let dir = tempfile::tempdir().unwrap();
        let paths = HistoryPaths::at(dir.path().to_owned());
        fs::create_dir(paths.pins()).unwrap();
        fs::write(paths.pins().join("two"), "half").unwrap();
        assert!(user(&paths).unwrap().contains("two"));
    }
}
