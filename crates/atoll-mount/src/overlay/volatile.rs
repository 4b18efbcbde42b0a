//! The marker that the kernel leaves in the work folder of an overlay whose `fsync` does nothing.

use std::path::{Path, PathBuf};

use atoll_store::Result;

/// Whether the overlay of this work folder was mounted volatile and not unmounted cleanly since.
pub fn is_volatile(work: &Path) -> bool {
    work.join("work/incompat/volatile").exists()
}

/// After a clean unmount: syncs the upper's file system and removes the marker, so that it can be mounted again.
///
/// # Errors
/// `Io` when the sync failed: then the marker stays, and the upper is not to be trusted.
pub fn clear_volatile(upper: &Path, work: &Path) -> Result<()> {
    let _ = (upper, work);
    todo!()
}

/// After a crash: renames `upper` and `work` to names with `.aside-N` and makes empty ones. Returns where the
/// old upper is now.
///
/// # Errors
/// `Io` when a rename fails.
pub fn set_aside(upper: &Path, work: &Path) -> Result<PathBuf> {
    let _ = (upper, work);
    todo!()
}
