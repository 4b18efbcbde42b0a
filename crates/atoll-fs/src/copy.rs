//! The `copy` driver: a plain folder as a workspace, captured by comparing stat data as git's index does.

use std::path::{Path, PathBuf};

use atoll_store::{Hash, Result, Store};

use crate::export::ExportReport;
use crate::import::Captured;
use crate::progress::Progress;

/// Writes a commit's tree to `dir` (which must not exist or be empty) and records what the host made of it in
/// the index file. Nothing is shared with the store; reflinks are used where there is something to reflink.
pub fn materialise(
    store: &Store,
    commit: &Hash,
    dir: &Path,
    index: &Path,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let _ = (store, commit, dir, index, progress);
    todo!()
}

/// What to capture.
#[derive(Debug, Clone)]
pub struct CopyCapture {
    /// The workspace's folder.
    pub dir: PathBuf,
    /// Its index file.
    pub index: PathBuf,
    /// The commit that the folder was last known to equal (the workspace's head).
    pub head: Hash,
    /// How many threads; 0 means one for each processor.
    pub threads: usize,
    /// Where inode numbers and birth ids come from; `None` means the system.
    pub seed: Option<u64>,
}

/// The stat data that goes with a captured tree, to be saved once its commit is published.
pub struct PendingIndex {
    bytes: Vec<u8>,
    path: PathBuf,
}

impl PendingIndex {
    /// Binds the index to the commit and replaces the file. Losing it (a crash before) costs a full read at the
    /// next capture, nothing else.
    pub fn save(self, commit: &Hash) -> Result<()> {
        let _ = (&self.bytes, &self.path, commit);
        todo!()
    }
}

/// Reads what changed in the folder since its index was written into a new writer.
///
/// # Errors
/// `Changed` naming a folder or file that did not keep still; `NotFound` when the folder is gone.
pub fn capture(
    store: &Store,
    options: &CopyCapture,
    progress: &dyn Progress,
) -> Result<(Captured, PendingIndex)> {
    let _ = (store, options, progress);
    todo!()
}
