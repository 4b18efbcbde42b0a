//! Uppers in memory.

use std::path::Path;

use atoll_store::Result;

/// Mounts a tmpfs at `dir` (an existing, empty folder) for an upper: `size` bytes at most (`None`: half of the
/// memory, the kernel's default).
///
/// # Errors
/// `Permission` without the right to mount; `Busy` when something is mounted there.
pub fn mount_scratch(dir: &Path, size: Option<u64>) -> Result<()> {
    let _ = (dir, size);
    todo!()
}

/// Unmounts it; its contents are gone.
///
/// # Errors
/// `Busy` while an overlay over it is mounted; `NotFound` when there is none.
pub fn umount_scratch(dir: &Path) -> Result<()> {
    let _ = dir;
    todo!()
}
