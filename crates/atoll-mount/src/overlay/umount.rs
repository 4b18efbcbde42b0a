//! Unmounts a workspace; never lazily.

use std::path::Path;

use atoll_store::Result;

/// Unmounts the overlay at `target`.
///
/// # Errors
/// `Busy` naming each process (and its id) that stands in it or holds a file of it; `NotFound` when nothing is
/// mounted there.
pub fn umount(target: &Path) -> Result<()> {
    let _ = target;
    todo!()
}
