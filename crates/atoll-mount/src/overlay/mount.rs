//! Mounts an overlay by the new mount API, so that no path needs escaping.

use std::path::{Path, PathBuf};

use atoll_store::Result;

/// What `fsync` in the workspace means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FsyncMode {
    /// The upper's file system syncs: what it always means.
    #[default]
    Real,
    /// `fsync` does nothing; the commit is what lasts (the kernel's `volatile`).
    Commit,
}

/// A workspace's overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// The commit's folder in the history mount.
    pub lower: PathBuf,
    /// Where changes go.
    pub upper: PathBuf,
    /// The kernel's own folder beside it, on the same file system.
    pub work: PathBuf,
    /// What `fsync` means.
    pub fsync: FsyncMode,
}

/// Mounts the overlay at `target`, an existing folder.
///
/// # Errors
/// `Busy` when something is mounted there; `Permission` without the right to mount; `Unsupported` when the upper
/// cannot live where it is, or the kernel is too old.
pub fn mount(overlay: &Overlay, target: &Path) -> Result<()> {
    let _ = (overlay, target);
    todo!()
}
