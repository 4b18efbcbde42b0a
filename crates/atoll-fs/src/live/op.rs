//! The changes of a workspace, with everything that was chosen for them (numbers, times, positions, places):
//! applied to the same state they give the same state, so that a journal of them is the workspace.

use atoll_store::Ino;
use atoll_store::tree::{Inode, Time};
use serde::{Deserialize, Serialize};

use super::content::Place;
use super::node::{Name, Node};

/// A name and its position in its folder's listings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    pub dir: Ino,
    pub name: Name,
    pub cookie: u64,
}

/// Attributes to set; `None` stays as it is.
#[allow(missing_docs)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attrs {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<Time>,
    pub mtime: Option<Time>,
}

/// One change. Times are those of the change: the inode's ctime, and mtime where contents change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// A file comes to be; without a name it lives as long as somebody holds it.
    Create { ino: Ino, inode: Inode, target: Option<Name>, xattrs: Vec<(Name, Name)>, entry: Option<Entry> },
    /// A file gets one more name.
    Link { ino: Ino, entry: Entry, time: Time },
    /// A name goes, of a file or of an empty folder.
    Remove { dir: Ino, name: Name, time: Time },
    /// A name becomes another, in the place of what has that.
    Rename { dir: Ino, name: Name, to: Entry, time: Time },
    /// Two names change what they mean.
    Exchange { one: (Ino, Name), other: (Ino, Name), time: Time },
    /// `mode` in `attrs` also carries the set-id bits that a change of owner or size takes away.
    Set { ino: Ino, attrs: Attrs, time: Time },
    /// Bytes, at `place`, or (`None`) behind this change in the journal.
    Write { ino: Ino, offset: u64, len: u64, place: Option<Place>, mode: Option<u16>, time: Time },
    /// A hole; with a new size where the file grows by it.
    Punch { ino: Ino, start: u64, end: u64, size: u64, mode: Option<u16>, time: Time },
    /// An extended attribute is set, or (`None`) removed; an access list may change the mode.
    Xattr { ino: Ino, name: Name, value: Option<Name>, mode: Option<u16>, time: Time },
    /// Nobody holds a file without a name any more.
    Reap { ino: Ino },
    /// A file as it was when the journal began: what came before is not kept change by change.
    Put { ino: Ino, node: Box<Node> },
    /// A file of the base that was gone when the journal began.
    Dead { ino: Ino },
    /// All changes up to this one (counted from the journal's beginning) are on the disk, their bytes too.
    Mark { changes: u64 },
}
