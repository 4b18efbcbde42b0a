//! What differs between two trees, as people see it: paths.

use crate::tree::Inode;
use crate::{Num, Objects, Result};

/// How a path changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChangeKind {
    /// Only in the new tree.
    Added,
    /// Only in the old tree.
    Deleted,
    /// Contents (or a link's target, or a device's number) differ.
    Modified,
    /// Only mode, owner, extended attributes or (when asked for) mtime differ.
    Metadata,
    /// The same file under another name; contents may have changed too (`content_changed`).
    Renamed,
    /// Another kind of file at the same path.
    TypeChanged,
}

/// One changed path. A renamed folder is one change; what is in it and did not change is not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// How.
    pub kind: ChangeKind,
    /// The path in the new tree (of a deletion: in the old one).
    pub path: Vec<u8>,
    /// Of a rename: the path in the old tree.
    pub old_path: Option<Vec<u8>>,
    /// The inode in the old tree.
    pub old: Option<(crate::Ino, Inode)>,
    /// The inode in the new tree.
    pub new: Option<(crate::Ino, Inode)>,
    /// Whether the bytes differ.
    pub content_changed: bool,
}

/// The changes from `old` to `new`, sorted by path. Files match by inode number and birth id; a file that was
/// replaced at its path (save by rename) is `Modified`. A folder whose only change is its times, link count
/// or size is not listed.
pub fn changes(objects: &dyn Objects, old: Option<Num>, new: Option<Num>) -> Result<Vec<Change>> {
    let _ = (objects, old, new);
    todo!()
}
