//! Trees and tar archives (POSIX pax), streaming both ways.

use std::io::{Read, Write};

use atoll_store::tree::TreeView;
use atoll_store::{Hash, Result, Store};

use crate::import::Captured;
use crate::progress::Progress;

/// What [`export_tar`] wrote.
#[derive(Debug, Clone, Default)]
pub struct TarReport {
    /// Entries written.
    pub entries: u64,
    /// Bytes of contents.
    pub bytes: u64,
    /// What a tar cannot hold (sockets), sorted.
    pub skipped: Vec<Vec<u8>>,
}

/// Writes the tree's folder at `path` (`b""`: the whole tree) as a tar archive, entries in path order.
pub fn export_tar(
    tree: TreeView<'_>,
    path: &[u8],
    out: &mut dyn Write,
    progress: &dyn Progress,
) -> Result<TarReport> {
    let _ = (tree, path, out, progress);
    todo!()
}

/// How to read an archive.
#[derive(Debug, Clone, Default)]
pub struct ImportTarOptions {
    /// The commit whose inodes are kept where paths are the same.
    pub base: Option<Hash>,
    /// Where inode numbers and birth ids come from; `None` means the system.
    pub seed: Option<u64>,
}

/// Reads a tar archive into a new writer: the whole tree is what the archive holds.
///
/// # Errors
/// `Usage` when the archive is malformed or holds an absolute name or one with `..`; nothing is stored then.
pub fn import_tar(
    store: &Store,
    input: &mut dyn Read,
    options: &ImportTarOptions,
    progress: &dyn Progress,
) -> Result<Captured> {
    let _ = (store, input, options, progress);
    todo!()
}
