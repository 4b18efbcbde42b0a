//! Whether an upper can live in a folder.

use std::path::Path;

use atoll_store::Result;

/// What a folder is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fitness {
    /// An upper can live here.
    Fit,
    /// It cannot: one sentence that names the reason and the volume or flag that mends it.
    Unfit(String),
}

/// Tries, without leaving anything behind, whether an upper can live in `dir` and an overlay can be mounted by
/// this process.
///
/// # Errors
/// `Io` when the folder cannot be written to.
pub fn probe_upper(dir: &Path) -> Result<Fitness> {
    let _ = dir;
    todo!()
}
