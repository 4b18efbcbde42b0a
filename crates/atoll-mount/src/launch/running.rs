//! What runs in a workspace now: `workspaces/ID/runs/PID.json`, locked for as long as its launcher lives.
//!
//! Capture freezes these commands when a tree does not hold still; unmount names them (a command may hold the
//! workspace through its own mount namespace only, where a look at open files finds nothing). The reader is
//! `python/atoll/run/active.py`.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::{Path, PathBuf};

use atoll_store::Result;
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use super::cgroup::Group;

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

    /// `program` is the name of the command's program: arguments may hold secrets.
    pub(super) fn write(&mut self, pid: i32, program: &str, group: &Group) -> Result<()> {
        let freezer = group.freezer().map(
            |(file, freeze, thaw)| json!({"file": file.to_string_lossy(), "freeze": freeze, "thaw": thaw}),
        );
        let record = json!({
            "schema": 1,
            "pid": pid,
            "launcher": std::process::id(),
            "program": program,
            "cgroup": group.path().map(|path| path.to_string_lossy()),
            "freezer": freezer,
        });
        self.file.rewind()?;
        self.file.write_all(record.to_string().as_bytes())?;
        Ok(())
    }

    /// Nothing of the command is left.
    pub(super) fn end(self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_locked_until_its_launcher_ends() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = Record::create(dir.path()).unwrap();
        record.write(7, "sleep", &Group::default()).unwrap();
        let other = File::open(&record.path).unwrap();
        assert!(flock(&other, FlockOperation::NonBlockingLockShared).is_err());
        let path = record.path.clone();
        let text: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!((text["pid"].as_i64(), text["program"].as_str()), (Some(7), Some("sleep")));
        record.end();
        assert!(!path.exists());
        flock(&other, FlockOperation::NonBlockingLockShared).unwrap();
    }
}
