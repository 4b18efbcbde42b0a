//! Whether a path of the target is what a tree has there.

use std::os::unix::fs::FileExt;

use atoll_store::tree::{FileType, Inode, TreeView};
use atoll_store::{Error, Ino, Result};

use super::target::Target;
use crate::scan::HostStat;

/// How much is compared at once.
const PIECE: u64 = 1 << 20;

/// Whether kind, mode and contents at `path` are the tree's. Contents are read: a folder that only looks unchanged is
/// not worth a lost edit. Of a folder only the kind counts.
pub(super) fn is_as(
    target: &Target,
    path: &[u8],
    here: &HostStat,
    tree: TreeView<'_>,
    (ino, inode): (Ino, Inode),
) -> Result<bool> {
    if here.kind != inode.kind {
        return Ok(false);
    }
    match inode.kind {
        FileType::Dir => Ok(true),
        FileType::Symlink => {
            let (dir, name) =
                target.folder_of(path).map_err(|error| target.failed("look at", path, error))?;
            let found = rustix::fs::readlinkat(&*dir, name, Vec::new())
                .map_err(|e| target.failed("read", path, e))?;
            Ok(found.as_bytes() == &tree.readlink(ino)?[..])
        }
        FileType::File => Ok(here.mode == inode.mode
            && here.size == inode.size
            && same_bytes(target, path, tree, ino, inode.size)?),
        FileType::Char | FileType::Block => Ok(here.mode == inode.mode && here.rdev == inode.rdev),
        FileType::Fifo | FileType::Socket => Ok(here.mode == inode.mode),
    }
}

fn same_bytes(target: &Target, path: &[u8], tree: TreeView<'_>, ino: Ino, size: u64) -> Result<bool> {
    let file = target.open_file(path)?;
    let mut buffer = Vec::new();
    let mut at = 0;
    while at < size {
        let expected = tree.read(ino, size, at..at + PIECE)?;
        buffer.resize(expected.len(), 0);
        match file.read_exact_at(&mut buffer, at) {
            Ok(()) if buffer == expected[..] => at += expected.len() as u64,
            Ok(()) => return Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(Error::io("read", &target.path, error)),
        }
    }
    Ok(true)
}
