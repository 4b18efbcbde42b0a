//! Which processes keep a mount busy.

use std::path::Path;

use atoll_store::Result;

/// A process that uses a mount.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Its id.
    pub pid: u32,
    /// Its name as `ps` shows it.
    pub name: String,
    /// How: `working folder`, `root folder`, `open file PATH`, `mapped file PATH`, `mount at PATH`.
    pub how: String,
}

/// The processes that use the file system mounted at `target`, sorted by id; one line for each.
///
/// # Errors
/// `Io` when `/proc` cannot be read.
pub fn holders(target: &Path) -> Result<Vec<Holder>> {
    let _ = target;
    todo!()
}
