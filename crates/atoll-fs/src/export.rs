//! A tree becomes a host folder; and the comparison of both, byte for byte.

mod compare;
pub(crate) mod meta;
mod write;

use std::path::Path;

use atoll_store::tree::{FileType, TreeView};
use atoll_store::{Code, Error, Ino, Result};

use crate::progress::Progress;
pub use compare::{CompareOptions, Mismatch, compare_folder};
pub(crate) use write::write_tree;

/// How to export.
#[derive(Debug, Clone, Copy, Default)]
pub struct ExportOptions {
    /// Return when the folder would survive a power cut.
    pub durable: bool,
    /// Write into a folder that is not empty: what the tree has replaces what is there, the rest stays.
    pub into_existing: bool,
    /// How many threads; 0 means one for each processor.
    pub threads: usize,
}

/// What an export did. Paths are relative to the folder, in bytes.
#[derive(Debug, Clone, Default)]
pub struct ExportReport {
    /// Files of any kind (inodes; folders not counted).
    pub files: u64,
    /// Folders, the root included.
    pub dirs: u64,
    /// Bytes written (holes not counted).
    pub bytes: u64,
    /// What could not be restored, with a word: `owner`, `mode`, `device`, `xattr NAME`; sorted.
    pub lost: Vec<(Vec<u8>, String)>,
}

/// Writes the tree's folder at `path` (`b""`: the whole tree) to `dir`, which must not exist or be empty.
///
/// # Errors
/// `NotFound` when the tree has no such path; `Usage` when it is no folder; `Exists` when `dir` has something in
/// it; `Conflict` when a folder of `dir` would have to give way to a file.
pub fn export_folder(
    tree: TreeView<'_>,
    path: &[u8],
    dir: &Path,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let ino = folder(tree, path)?;
    let written = write_tree(tree, ino, dir, options, progress)?;
    Ok(written.report)
}

/// The inode of a folder in a tree.
pub(crate) fn folder(tree: TreeView<'_>, path: &[u8]) -> Result<Ino> {
    let shown = || String::from_utf8_lossy(path).into_owned();
    match tree.resolve(path)? {
        Some((ino, inode)) if inode.kind == FileType::Dir => Ok(ino),
        Some(_) => {
            let message = format!("'{}' is not a folder; name a folder, or read the file itself.", shown());
            Err(Error::new(Code::Usage, message))
        }
        None => Err(Error::new(Code::NotFound, format!("The tree has no '{}'.", shown()))),
    }
}
