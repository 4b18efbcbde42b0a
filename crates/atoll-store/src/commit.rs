//! A commit: a tree, its parents, and who made it, when and why.

use std::collections::BTreeMap;

use crate::tree::{ContentSum, Time};
use crate::{Hash, Num};

/// Counts over a whole tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Regular files (inodes, not names).
    pub files: u64,
    /// Folders, the root included.
    pub dirs: u64,
    /// Everything else.
    pub others: u64,
    /// Bytes in regular files, holes included.
    pub bytes: u64,
    /// Extended attributes.
    pub xattrs: u64,
}

/// A commit that is to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewCommit {
    /// The tree's root node.
    pub root: Num,
    /// The second hash's sum.
    pub content: ContentSum,
    /// Counts.
    pub summary: Summary,
    /// The commits it came from, the first one first.
    pub parents: Vec<Hash>,
    /// Who: `name <mail>` or a user name.
    pub author: String,
    /// When.
    pub time: Time,
    /// The author's offset from UTC in minutes.
    pub utc_offset: i16,
    /// Why.
    pub message: String,
    /// Free metadata: keys to JSON texts (the command, its exit code, the agent, the tool call).
    pub meta: BTreeMap<String, String>,
}

/// A stored commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The hash of its record.
    pub id: Hash,
    /// The root node's hash, the same in every store.
    pub tree: Hash,
    /// Everything else; `root` is this store's number for `tree`.
    pub record: NewCommit,
}
