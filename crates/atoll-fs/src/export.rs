//! A tree becomes a host folder; and the comparison of both, byte for byte.

use std::path::Path;

use atoll_store::Result;
use atoll_store::tree::TreeView;

use crate::progress::Progress;

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
/// `NotFound` when the tree has no such path; `Exists` when `dir` has something in it.
pub fn export_folder(
    tree: TreeView<'_>,
    path: &[u8],
    dir: &Path,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let _ = (tree, path, dir, options, progress);
    todo!()
}

/// One way in which a folder differs from a tree: the path, and what (`contents`, `mode`, `missing`, …).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mismatch {
    /// Relative to the folder.
    pub path: Vec<u8>,
    /// What differs, in words.
    pub what: String,
}

/// What [`compare_folder`] looks at beside names, kinds, contents, targets and permission bits.
#[derive(Debug, Clone, Copy)]
pub struct CompareOptions {
    /// Owner and group.
    pub owner: bool,
    /// Modification times (never a folder's when `dir_times` is false).
    pub mtime: bool,
    /// Modification times of folders.
    pub dir_times: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Which names share an inode.
    pub links: bool,
    /// Where the holes are (a folder may have fewer than the tree, never more data).
    pub holes: bool,
    /// Stop after this many.
    pub limit: usize,
}

impl Default for CompareOptions {
    fn default() -> Self {
        CompareOptions {
            owner: true,
            mtime: true,
            dir_times: true,
            xattrs: true,
            links: true,
            holes: false,
            limit: 100,
        }
    }
}

/// Compares a folder with the tree's folder at `path`, every byte; the result is empty when they are equal.
pub fn compare_folder(
    tree: TreeView<'_>,
    path: &[u8],
    dir: &Path,
    options: &CompareOptions,
    progress: &dyn Progress,
) -> Result<Vec<Mismatch>> {
    let _ = (tree, path, dir, options, progress);
    todo!()
}
