//! Stops the processes of a workspace while its upper is read, for those that never keep still.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use atoll_store::{Code, Error, Result};

/// Stops and continues the processes that write to a workspace.
pub trait Freezer: Sync {
    /// Returns when every process stands still.
    fn freeze(&self) -> Result<()>;

    /// Lets them go on. Called after every `freeze` that returned well.
    fn thaw(&self) -> Result<()>;
}

/// A cgroup's freezer: `cgroup.freeze` (v2) or `freezer.state` (v1) in this folder.
#[derive(Debug, Clone)]
pub struct CgroupFreezer {
    /// The cgroup's folder.
    pub cgroup: PathBuf,
    /// How long the processes may take to stop (one in an uninterruptible call stops when the call ends).
    pub patience: Duration,
}

impl CgroupFreezer {
    /// The freezer of this cgroup, with 5 s of patience.
    pub fn new(cgroup: impl Into<PathBuf>) -> Self {
        CgroupFreezer { cgroup: cgroup.into(), patience: Duration::from_secs(5) }
    }

    fn v2(&self) -> bool {
        self.cgroup.join("cgroup.freeze").exists()
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.cgroup.join(name);
        fs::write(&path, text).map_err(|error| Error::io("write to", &path, error))
    }

    fn frozen(&self) -> Result<bool> {
        let read = |path: &Path| fs::read_to_string(path).map_err(|error| Error::io("read", path, error));
        if self.v2() {
            Ok(read(&self.cgroup.join("cgroup.events"))?.lines().any(|line| line == "frozen 1"))
        } else {
            Ok(read(&self.cgroup.join("freezer.state"))?.trim() == "FROZEN")
        }
    }
}

impl Freezer for CgroupFreezer {
    fn freeze(&self) -> Result<()> {
        if self.v2() {
            self.write("cgroup.freeze", "1")?
        } else {
            self.write("freezer.state", "FROZEN")?
        }
        let end = Instant::now() + self.patience;
        while !self.frozen()? {
            if Instant::now() >= end {
                self.thaw()?;
                return Err(Error::new(
                    Code::Busy,
                    format!(
                        "The processes in {} did not stop within {} s, so the workspace could not be captured; \
                         end them or try again.",
                        self.cgroup.display(),
                        self.patience.as_secs()
                    ),
                ));
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn thaw(&self) -> Result<()> {
        if self.v2() { self.write("cgroup.freeze", "0") } else { self.write("freezer.state", "THAWED") }
    }
}
