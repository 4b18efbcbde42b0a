//! Capture of an overlay's upper folder: the base tree and what the upper says about it become the new tree.
//!
//! An upper holds copied-up and new files, whiteouts, opaque folders, redirects (a base folder that was moved)
//! and files without data whose data is still the lower's (metacopy). The lower is always the commit
//! `base`; `head` is what was captured last. The index remembers the upper's stat data at that time, so that
//! a second capture reads only what changed since.

mod attrs;
mod edits;
mod freeze;
mod index;
mod keys;
mod links;
mod live;
mod looked;
mod lower;
mod plan;
mod read;
mod reset;
mod run;

use std::path::PathBuf;

use atoll_store::{Error, Hash, Result, Store};

pub use freeze::{CgroupFreezer, Freezer};
pub use lower::{Handle, HistoryIds, LowerIds};
pub use reset::{UpperState, recover_upper, reset_upper, upper_is_empty};

use crate::import::Captured;
use crate::progress::Progress;
use run::Capture;

/// What to capture.
pub struct OverlayCapture<'a> {
    /// The overlay's upper folder.
    pub upper: PathBuf,
    /// Its work folder (hard links of inherited files stand in `index` below it).
    pub work: PathBuf,
    /// The workspace's index file.
    pub index: PathBuf,
    /// The workspace's id: where the random bits of new inode numbers come from.
    pub workspace: String,
    /// The commit that the lower shows.
    pub base: Hash,
    /// The commit captured last; `base` when there is none.
    pub head: Hash,
    /// Relates the lower's files to the base tree.
    pub lower: &'a dyn LowerIds,
    /// Where the overlay is mounted; `None` when it is not, so that nobody can write.
    pub mountpoint: Option<PathBuf>,
    /// Stops the workspace's processes when they never keep still.
    pub freezer: Option<&'a dyn Freezer>,
    /// False reads every file again. Right for the last capture of an upper on tmpfs, where a store through a
    /// map that was made and undone between two captures leaves no trace in stat data.
    pub trust_index: bool,
    /// The file that remembers what was read, for a capture that only looks: its result cannot be published.
    pub looked: Option<PathBuf>,
    /// How many threads; 0 means one for each processor.
    pub threads: usize,
    /// Where birth ids and random bits come from; `None` means the system.
    pub seed: Option<u64>,
}

/// What a capture had to do beside reading files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// How often the upper was walked; more than 1 when it changed meanwhile.
    pub passes: u32,
    /// Whether the processes were frozen.
    pub frozen: bool,
    /// Files that are mapped shared and writable, and were read for that.
    pub mapped: u64,
    /// Whether the index of the last capture was used.
    pub index_used: bool,
}

/// A captured upper.
pub struct OverlayCaptured {
    /// The tree and its writer; `captured.report.changed` is whether it differs from the head's.
    pub captured: Captured,
    /// To be saved once the commit is published (or nothing changed).
    pub index: PendingIndex,
    /// What else there is to say.
    pub notes: Notes,
}

/// The stat data that goes with a captured tree.
pub struct PendingIndex {
    bytes: Vec<u8>,
    path: PathBuf,
}

impl PendingIndex {
    /// Binds the index to the commit that the captured tree became (the head, when nothing changed) and replaces
    /// the file. Losing it (a crash before) costs a full read at the next capture, nothing else.
    pub fn save(self, commit: &Hash) -> Result<()> {
        index::write(&self.path, self.bytes, commit)
    }
}

/// Reads what changed in the upper since its index was written into a new writer.
///
/// # Errors
/// `Changed` naming a folder or file that did not keep still; `Damaged` when the upper does not belong to this
/// base; `NotFound` when it is gone.
pub fn capture(
    store: &Store,
    options: &OverlayCapture<'_>,
    progress: &dyn Progress,
) -> Result<OverlayCaptured> {
    match Capture::new(store, options, progress)?.run(options.trust_index)? {
        Some(captured) => Ok(captured),
        // The upper lost something that was captured (a power cut): only the base is firm ground.
        None => Capture::new(store, options, progress)?.run(false)?.ok_or_else(|| {
            Error::damaged("The workspace's upper folder contradicts itself, so it cannot be captured.")
        }),
    }
}
