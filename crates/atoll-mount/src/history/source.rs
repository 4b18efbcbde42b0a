//! What the history mount asks a store for.

use atoll_store::store::{RefName, RefState, Slot};
use atoll_store::tree::Time;
use atoll_store::{Code, Commit, Error, Hash, Num, Objects, Result, Store};

/// A store, as the history mount sees it.
pub trait Source: Send + Sync {
    /// Nodes and chunks.
    fn objects(&self) -> &dyn Objects;
    /// All refs, sorted.
    fn refs(&self) -> Result<Vec<(RefName, RefState)>>;
    /// The commit that a ref names.
    fn get_ref(&self, name: &RefName) -> Result<Option<Hash>>;
    /// A commit by its id.
    fn commit(&self, id: &Hash) -> Result<Commit>;
    /// The id behind a prefix of it.
    fn find_commit(&self, prefix: &str) -> Result<Hash>;
    /// The slot for a commit's tree, recorded before this returns.
    fn slot(&self, commit: &Hash) -> Result<Slot>;
    /// Which commit a slot stands for.
    fn slot_commit(&self, number: u16) -> Result<Option<(Hash, Slot)>>;
    /// When a ref last moved.
    fn changed(&self) -> Result<Time>;
    /// Where a chunk stands, as far as that is known: neighbours have neighbouring places.
    fn place(&self, chunk: Num) -> Option<(u64, u32)>;
    /// Makes what stands after a chunk at hand, so many places.
    fn read_ahead(&self, chunk: Num, places: u32) -> Result<()>;
    /// Whether a chunk can be had without reading the disk or decompressing.
    fn is_at_hand(&self, chunk: Num) -> bool;
}

impl Source for Store {
    fn objects(&self) -> &dyn Objects {
        self
    }

    fn refs(&self) -> Result<Vec<(RefName, RefState)>> {
        Store::refs(self)
    }

    fn get_ref(&self, name: &RefName) -> Result<Option<Hash>> {
        Ok(Store::get_ref(self, name)?.map(|state| state.commit))
    }

    fn commit(&self, id: &Hash) -> Result<Commit> {
        Store::commit(self, id)
    }

    fn find_commit(&self, prefix: &str) -> Result<Hash> {
        let id = self.resolve(prefix)?;
        // A branch may be called like the beginning of an id.
        let message = || format!("No commit's id begins with {prefix}.");
        if id.hex().starts_with(prefix) { Ok(id) } else { Err(Error::new(Code::NotFound, message())) }
    }

    fn slot(&self, commit: &Hash) -> Result<Slot> {
        Store::slot(self, commit)
    }

    fn slot_commit(&self, number: u16) -> Result<Option<(Hash, Slot)>> {
        Store::slot_commit(self, number)
    }

    fn changed(&self) -> Result<Time> {
        Ok(self.operations(1)?.first().map(|operation| operation.time).unwrap_or_default())
    }

    fn place(&self, chunk: Num) -> Option<(u64, u32)> {
        self.group_of(chunk)
    }

    fn read_ahead(&self, chunk: Num, places: u32) -> Result<()> {
        Store::read_ahead(self, chunk, places)
    }

    fn is_at_hand(&self, chunk: Num) -> bool {
        self.is_cached(chunk)
    }
}
