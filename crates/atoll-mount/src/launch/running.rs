//! What runs in a workspace now: `workspaces/ID/runs/PID.json`, locked for as long as its launcher lives.
//!
//! Capture freezes these commands when a tree does not hold still; unmount names them (a command may hold the
//! workspace through its own mount namespace only, where a look at open files finds nothing).

use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use atoll_store::Result;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::cgroup::Group;

/// A command in a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// Its first process.
    pub pid: i32,
    /// The launcher's process.
    pub launcher: i32,
    /// The name of its program, without arguments.
    pub program: String,
    /// The cgroup folder with its processes.
    pub cgroup: Option<PathBuf>,
    /// The file that freezes it, and what is written to it to freeze and to thaw.
    pub freezer: Option<(PathBuf, String, String)>,
}

impl Running {
    /// Stops all its processes where they are. Returns `false` when there is no freezer.
    pub fn freeze(&self) -> Result<bool> {
        let Some((file, freeze, _)) = &self.freezer else { return Ok(false) };
        fs::write(file, freeze)?;
        // Freezing takes effect a little later: wait until the kernel says so.
        let state = match file.file_name() {
            Some(name) if name == "freezer.state" => file.clone(),
            _ => file.with_file_name("cgroup.events"),
        };
        for _ in 0..2000 {
            let text = fs::read_to_string(&state)?;
            if text.trim() == "FROZEN" || text.lines().any(|line| line == "frozen 1") {
                return Ok(true);
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.thaw()?;
        Ok(false)
    }

    /// Lets them go on.
    pub fn thaw(&self) -> Result<()> {
        if let Some((file, _, thaw)) = &self.freezer {
            fs::write(file, thaw)?;
        }
        Ok(())
    }
}

/// The record of a command that has begun; removed with [`Record::end`].
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    path: PathBuf,
}

impl Record {
    pub(super) fn create(state_dir: &Path) -> Result<Self> {
        let folder = state_dir.join("runs");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.json", std::process::id()));
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        flock(&file, FlockOperation::LockExclusive).map_err(std::io::Error::from)?;
        Ok(Record { file, path })
    }

    pub(super) fn write(&mut self, pid: i32, program: &str, group: &Group) -> Result<()> {
        let record = Running {
            pid,
            launcher: std::process::id() as i32,
            program: program.to_owned(),
            cgroup: group.path().cloned(),
            freezer: group.freezer().map(|(file, on, off)| (file, on.to_owned(), off.to_owned())),
        };
        let text = serde_json::to_vec(&record).map_err(std::io::Error::from)?;
        self.file.rewind()?;
        self.file.write_all(&text)?;
        Ok(())
    }

    /// Nothing of the command is left.
    pub(super) fn end(self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The commands that run in the workspace whose folder in the store this is. Records of launchers that died are
/// left out when their cgroup is empty as well, and removed.
pub fn running(state_dir: &Path) -> Vec<Running> {
    let Ok(entries) = fs::read_dir(state_dir.join("runs")) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(mut file) = File::open(&path) else { continue };
        let locked = flock(&file, FlockOperation::NonBlockingLockShared).is_err();
        let mut text = String::new();
        let record =
            file.read_to_string(&mut text).ok().and_then(|_| serde_json::from_str::<Running>(&text).ok());
        match record {
            Some(record) if locked || populated(&record) => found.push(record),
            _ if locked => {}
            record => {
                // Its launcher left the cgroup to processes that have ended since; only an empty one can be removed.
                if let Some(cgroup) = record.and_then(|record| record.cgroup) {
                    let _ = fs::remove_dir(cgroup);
                }
                let _ = fs::remove_file(&path);
            }
        }
    }
    found
}

fn populated(record: &Running) -> bool {
    match &record.cgroup {
        Some(path) => fs::read_to_string(path.join("cgroup.procs")).is_ok_and(|text| !text.trim().is_empty()),
        None => super::procs::lookup(record.pid).is_some_and(|process| process.name == record.program),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_lasts_as_long_as_its_lock() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::create(dir.path()).unwrap();
        record.write(i32::MAX, "sleep", &Group::default()).unwrap();
        assert_eq!(running(dir.path())[0].program, "sleep");
        drop(record);
        assert_eq!(running(dir.path()), []);
        assert_eq!(fs::read_dir(dir.path().join("runs")).unwrap().count(), 0);
    }
}
