//! A host folder becomes a tree; again later, only what changed is read.

use std::collections::BTreeMap;
use std::path::PathBuf;

use atoll_store::store::{NewOperation, Published, RefName};
use atoll_store::tree::{ContentSum, Time};
use atoll_store::{Hash, Num, Result, Store, Summary, Writer};

use crate::progress::Progress;

/// What to import, and how.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The folder.
    pub folder: PathBuf,
    /// The commit to import over: the folder's last import (see [`last_import`]). `None` reads everything.
    pub base: Option<Hash>,
    /// More patterns in `.gitignore` syntax, relative to the folder; they go before every `.atollignore`.
    pub excludes: Vec<String>,
    /// Leave out what cannot be read, instead of stopping there.
    pub skip_unreadable: bool,
    /// How many threads; 0 means one for each processor.
    pub threads: usize,
    /// Where inode numbers' random bits and birth ids come from; `None` means the system. Tests fix it.
    pub seed: Option<u64>,
}

/// Why something in a folder did not become part of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// Another file system (or a bind mount) is mounted there.
    Mount,
    /// It is an atoll store.
    Store,
    /// It was gone when it was to be read.
    Vanished,
    /// It could not be read, and `skip_unreadable` was given.
    Unreadable,
    /// A git worktree's administration whose worktree lies outside of the folder.
    Worktree,
}

impl SkipReason {
    /// The stable name: `mount`, `store`, …
    pub fn name(self) -> &'static str {
        match self {
            SkipReason::Mount => "mount",
            SkipReason::Store => "store",
            SkipReason::Vanished => "vanished",
            SkipReason::Unreadable => "unreadable",
            SkipReason::Worktree => "worktree",
        }
    }
}

/// What an import or a capture of a folder saw and did. Paths are relative to the folder, in bytes.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Files of any kind that the tree has (names; folders not counted).
    pub files: u64,
    /// Folders, the root included.
    pub dirs: u64,
    /// Files whose contents were read.
    pub read_files: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Files that were taken over without a look at their contents.
    pub unchanged: u64,
    /// What was left out, sorted by path.
    pub skipped: Vec<(Vec<u8>, SkipReason)>,
    /// Names left out by patterns (folders count once).
    pub ignored: u64,
    /// Newly read files that look like secrets, sorted.
    pub secrets: Vec<Vec<u8>>,
    /// Git files whose absolute paths were made relative in the tree, sorted.
    pub rewritten: Vec<Vec<u8>>,
    /// Whether the tree differs from the base's.
    pub changed: bool,
}

/// A tree that was made and waits for [`Store::publish`].
pub struct Captured {
    /// Its root.
    pub root: Num,
    /// Its second hash's sum.
    pub content: ContentSum,
    /// Its counts.
    pub summary: Summary,
    /// Holds the new objects.
    pub writer: Writer,
    /// What was seen and done.
    pub report: Report,
    /// Metadata that belongs into the commit (`import`: what the next import needs).
    pub meta: BTreeMap<String, String>,
}

/// Reads a folder into a new writer. Nothing is in the store until the caller publishes it.
///
/// # Errors
/// `Busy` when git is running in the folder; `Unsupported` when a `.git` would reach out of it; `Permission`
/// naming what could not be read; `Changed` naming what did not keep still; `Usage` when the folder is a store.
pub fn import_folder(store: &Store, options: &ImportOptions, progress: &dyn Progress) -> Result<Captured> {
    let _ = (store, options, progress);
    todo!()
}

/// The commit that a captured tree becomes, and the branch that it moves.
#[derive(Debug, Clone)]
pub struct CommitRequest {
    /// The branch.
    pub branch: String,
    /// What the branch must hold (`None`: it must not exist); it is also the new commit's first parent.
    pub head: Option<Hash>,
    /// See [`atoll_store::NewCommit`].
    pub author: String,
    /// See [`atoll_store::NewCommit`].
    pub time: Time,
    /// See [`atoll_store::NewCommit`].
    pub utc_offset: i16,
    /// See [`atoll_store::NewCommit`].
    pub message: String,
    /// More metadata; the capture's own is added.
    pub meta: BTreeMap<String, String>,
    /// Makes the branch remember this host folder (an import).
    pub folder: Option<Vec<u8>>,
    /// Kind, note, workspace; commits and changes are filled in.
    pub operation: NewOperation,
    /// Publish a commit also when the tree equals the head's.
    pub allow_empty: bool,
}

/// What [`commit_captured`] did.
#[derive(Debug, Clone)]
pub struct Committed {
    /// The branch's commit now: the new one, or the head when nothing changed.
    pub commit: Hash,
    /// `None` when nothing changed and nothing was published.
    pub published: Option<Published>,
    /// The capture's report.
    pub report: Report,
}

/// Captures and publishes; captures again when gc took away what the capture had found (`Changed` of publish).
///
/// # Errors
/// Those of `capture` and of [`Store::publish`]; `Moved` when the branch does not hold `head`.
pub fn commit_captured(
    store: &Store,
    request: &CommitRequest,
    capture: &mut dyn FnMut() -> Result<Captured>,
) -> Result<Committed> {
    let _ = (store, request, capture, RefName::Branch(String::new()));
    todo!()
}

/// The newest import of `folder` (bytes of an absolute path) on the first-parent line from `head`.
pub fn last_import(store: &Store, head: &Hash, folder: &[u8]) -> Result<Option<Hash>> {
    let _ = (store, head, folder);
    todo!()
}
