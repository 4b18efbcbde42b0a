//! A store on disk, used by many processes at once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::tree::{Node, Time};
use crate::{Commit, Hash, NewCommit, Num, Objects, Result, Sink};

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

/// An open store; clones share it. Safe to use from several threads.
#[derive(Clone)]
pub struct Store {}

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
#[derive(Debug, Clone)]
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

impl Store {
    /// Makes a store in `dir`, which must not exist or be empty.
    pub fn create(dir: &Path, profile: Profile) -> Result<Store> {
        let _ = (dir, profile);
        todo!()
    }

    /// Opens the store in `dir`; replays what the operation log has and the database lacks.
    pub fn open(dir: &Path) -> Result<Store> {
        let _ = dir;
        todo!()
    }

    /// The store's folder.
    pub fn dir(&self) -> &Path {
        todo!()
    }

    /// Its random id, 32 hexadecimal digits.
    pub fn id(&self) -> &str {
        todo!()
    }

    /// Starts collecting objects for one operation.
    pub fn writer(&self) -> Result<Writer> {
        todo!()
    }

    /// Makes the writer's objects, the commits and the ref moves part of the store, all or nothing, and
    /// returns when they would survive a power cut (profile `Full`).
    ///
    /// # Errors
    /// `Moved` when a ref does not hold `old` any more. `Changed` when gc removed an object that the writer had
    /// found and not written: the caller makes the tree again with a new writer.
    pub fn publish(&self, writer: Writer, operation: NewOperation) -> Result<Published> {
        let _ = (writer, operation);
        todo!()
    }

    /// A commit by its full id.
    pub fn commit(&self, id: &Hash) -> Result<Commit> {
        let _ = id;
        todo!()
    }

    /// The id that a reference means: a branch, a tag, `NAME~3`, `NAME^`, a unique prefix of 4 or more digits.
    ///
    /// # Errors
    /// `NotFound` (with the nearest names), `Ambiguous` (with the candidates).
    pub fn resolve(&self, reference: &str) -> Result<Hash> {
        let _ = reference;
        todo!()
    }

    /// One ref.
    pub fn get_ref(&self, name: &RefName) -> Result<Option<RefState>> {
        let _ = name;
        todo!()
    }

    /// All refs, sorted.
    pub fn refs(&self) -> Result<Vec<(RefName, RefState)>> {
        todo!()
    }

    /// The newest `limit` operations, newest first.
    pub fn operations(&self, limit: usize) -> Result<Vec<Operation>> {
        let _ = limit;
        todo!()
    }
}

impl Objects for Store {
    fn node(&self, num: Num) -> Result<Arc<Node>> {
        let _ = num;
        todo!()
    }
    fn chunk(&self, num: Num) -> Result<Bytes> {
        let _ = num;
        todo!()
    }
    fn hash(&self, num: Num) -> Result<Hash> {
        let _ = num;
        todo!()
    }
    fn find(&self, hash: &Hash) -> Result<Option<Num>> {
        let _ = hash;
        todo!()
    }
}

/// Takes new objects for one operation; they become part of the store with [`Store::publish`], and are gone
/// when the writer is dropped before. Threads may share it; each takes its own [`Batch`] for chunks.
pub struct Writer {}

impl Writer {
    /// A new batch of chunks.
    pub fn batch(&self) -> Batch<'_> {
        Batch { _writer: self }
    }
}

impl Objects for Writer {
    fn node(&self, num: Num) -> Result<Arc<Node>> {
        let _ = num;
        todo!()
    }
    fn chunk(&self, num: Num) -> Result<Bytes> {
        let _ = num;
        todo!()
    }
    fn hash(&self, num: Num) -> Result<Hash> {
        let _ = num;
        todo!()
    }
    fn find(&self, hash: &Hash) -> Result<Option<Num>> {
        let _ = hash;
        todo!()
    }
}

impl Sink for Writer {
    fn put_node(&self, node: Node, replaces: Option<Num>) -> Result<Num> {
        let _ = (node, replaces);
        todo!()
    }
    fn put_chunk(&self, bytes: &[u8]) -> Result<Num> {
        let _ = bytes;
        todo!()
    }
}

/// One thread's chunks on their way into a writer, compressed together in groups of up to 256 KiB. A number
/// is good in a tree at once; the bytes are written when the group is full and with `finish`.
pub struct Batch<'a> {
    _writer: &'a Writer,
}

impl Batch<'_> {
    /// Stores a chunk, or finds it.
    pub fn put(&mut self, bytes: &[u8]) -> Result<Num> {
        let _ = bytes;
        todo!()
    }

    /// Writes what is left. A batch dropped without it makes `publish` fail.
    pub fn finish(self) -> Result<()> {
        todo!()
    }
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

impl Store {
    /// All workspaces.
    pub fn workspaces(&self) -> Result<Vec<Workspace>> {
        todo!()
    }

    /// Stores or replaces a workspace's record, in the database and in `workspaces/ID/workspace.json`, durably.
    /// Their bases and heads are gc roots.
    ///
    /// # Errors
    /// `Exists` when another workspace has the branch.
    pub fn put_workspace(&self, workspace: &Workspace) -> Result<()> {
        let _ = workspace;
        todo!()
    }

    /// Forgets a workspace (its folder is the caller's to remove).
    pub fn remove_workspace(&self, id: &str) -> Result<()> {
        let _ = id;
        todo!()
    }

    /// The history mount's slot for a commit's tree: 1 to 8191, with its generation; recorded and synced before it
    /// returns. The same commit has the same slot for as long as it is pinned (live workspaces pin theirs).
    pub fn slot(&self, commit: &Hash) -> Result<Slot> {
        let _ = commit;
        todo!()
    }

    /// Which commit a slot stands for.
    pub fn slot_commit(&self, number: u16) -> Result<Option<(Hash, Slot)>> {
        let _ = number;
        todo!()
    }
}

/// A place of a tree in the history mount's node ids: `(number << 50) | inode key`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// 1 to 8191.
    pub number: u16,
    /// Grows when the number is used for another commit.
    pub generation: u32,
}
