//! What the store takes and gives: refs, operations, workspaces, slots.

use std::fmt;
use std::path::PathBuf;

use crate::tree::Time;
use crate::{Hash, NewCommit};

/// When `publish` returns: after the disk has it (`Full`), or sooner. Stands in `atoll.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Survives a power cut. The default.
    Full,
    /// Survives the death of the process; the last seconds may go with the power.
    Normal,
    /// Nothing is synced.
    Off,
}

/// A branch or a tag. Displayed and stored as `branch/NAME` or `tag/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefName {
    /// A movable name.
    Branch(String),
    /// A fixed name.
    Tag(String),
}

/// What a ref holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefState {
    /// The commit it names.
    pub commit: Hash,
    /// The commit the branch was forked at (its first commit when it was not forked): what `apply` and `diff`
    /// measure a run's changes from.
    pub base: Hash,
    /// The host folder that its history was imported from, as bytes of an absolute path.
    pub folder: Option<Vec<u8>>,
}

/// A ref's move within an operation, decided by compare-and-swap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefChange {
    /// Which.
    pub name: RefName,
    /// What it must hold now: `None` means it must not exist.
    pub old: Option<RefState>,
    /// What it holds afterwards: `None` deletes it.
    pub new: Option<RefState>,
}

/// What is about to be done, as `publish` takes it.
#[derive(Debug, Clone, Default)]
pub struct NewOperation {
    /// One word: `import`, `commit`, `fork`, `drop`, `branch`, `tag`, `restore`, `undo`, …
    pub kind: String,
    /// A sentence for `op log`.
    pub note: String,
    /// The workspace it came from.
    pub workspace: Option<String>,
    /// The operation that this one takes back.
    pub undoes: Option<u64>,
    /// Commits that come into being, parents first.
    pub commits: Vec<NewCommit>,
    /// The refs that move, all or none.
    pub changes: Vec<RefChange>,
}

/// A recorded operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// Its place in the log: 1, 2, …
    pub seq: u64,
    /// When it was published.
    pub time: Time,
    /// `user@host`.
    pub user: String,
    /// See [`NewOperation`].
    pub kind: String,
    /// See [`NewOperation`].
    pub note: String,
    /// See [`NewOperation`].
    pub workspace: Option<String>,
    /// See [`NewOperation`].
    pub undoes: Option<u64>,
    /// See [`NewOperation`].
    pub changes: Vec<RefChange>,
}

/// What `publish` did.
#[derive(Debug, Clone)]
pub struct Published {
    /// The operation's place in the log.
    pub seq: u64,
    /// The ids of its commits, in the order given.
    pub commits: Vec<Hash>,
    /// Bytes that the store grew by (packs and operation log).
    pub stored_bytes: u64,
}

/// A workspace as the store remembers it (also when it is not mounted).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// 16 random hexadecimal digits; its folder is `workspaces/ID`.
    pub id: String,
    /// The branch it commits to.
    pub branch: String,
    /// `overlay`, `copy`, later `fuse`.
    pub driver: String,
    /// The commit that its present base (overlay: its lower) shows.
    pub base: Hash,
    /// The last commit it captured or began at: what `status` compares with.
    pub head: Hash,
    /// Where it is or was mounted.
    pub mountpoint: Option<PathBuf>,
    /// Driver settings as JSON text, the driver's own.
    pub settings: String,
    /// When it was made.
    pub created: Time,
}

/// A place of a tree in the history mount's node ids: `(number << 50) | inode key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// 1 to 8191.
    pub number: u16,
    /// Grows when the number is used for another commit.
    pub generation: u32,
}

impl Profile {
    /// Its name in `atoll.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Full => "full",
            Profile::Normal => "normal",
            Profile::Off => "off",
        }
    }

    /// From its name.
    pub fn from_name(name: &str) -> Option<Profile> {
        [Profile::Full, Profile::Normal, Profile::Off].into_iter().find(|profile| profile.name() == name)
    }
}

impl RefName {
    /// From the stored form, `branch/NAME` or `tag/NAME`.
    pub fn from_stored(text: &str) -> Option<RefName> {
        if let Some(name) = text.strip_prefix("branch/") {
            return Some(RefName::Branch(name.to_owned()));
        }
        text.strip_prefix("tag/").map(|name| RefName::Tag(name.to_owned()))
    }

    /// The name without its kind.
    pub fn short(&self) -> &str {
        match self {
            RefName::Branch(name) | RefName::Tag(name) => name,
        }
    }
}

impl fmt::Display for RefName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RefName::Branch(name) => write!(f, "branch/{name}"),
            RefName::Tag(name) => write!(f, "tag/{name}"),
        }
    }
}
