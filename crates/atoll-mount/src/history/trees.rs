//! Which tree is in which slot, as far as it was asked for.

use std::collections::HashMap;
use std::sync::Arc;

use atoll_store::store::Slot;
use atoll_store::{Hash, Num, Result};
use parking_lot::RwLock;

use super::source::Source;

/// A tree that is served.
#[derive(Debug)]
pub(super) struct Tree {
    /// Its commit: of several with the same tree each has its own slot.
    pub commit: Hash,
    /// Its place in the node ids.
    pub slot: Slot,
    /// Its root node.
    pub root: Num,
}

/// The trees by slot, found again in the store after a restart.
#[derive(Default)]
pub(super) struct Trees {
    slots: RwLock<HashMap<u16, Arc<Tree>>>,
}

impl Trees {
    /// The tree in a slot; `None` when there is none.
    pub fn in_slot(&self, source: &dyn Source, number: u16) -> Result<Option<Arc<Tree>>> {
        if let Some(tree) = self.slots.read().get(&number) {
            return Ok(Some(tree.clone()));
        }
        match source.slot_commit(number)? {
            Some((commit, slot)) => self.load(source, commit, slot).map(Some),
            None => Ok(None),
        }
    }

    /// A commit's tree; its slot is recorded in the store before this returns.
    pub fn of_commit(&self, source: &dyn Source, commit: &Hash) -> Result<Arc<Tree>> {
        let slot = source.slot(commit)?;
        let known = self.slots.read().get(&slot.number).cloned();
        if let Some(tree) = known.filter(|tree| tree.slot == slot && tree.commit == *commit) {
            return Ok(tree);
        }
        self.load(source, *commit, slot)
    }

    fn load(&self, source: &dyn Source, commit: Hash, slot: Slot) -> Result<Arc<Tree>> {
        let record = source.commit(&commit)?.record;
        let tree = Arc::new(Tree { commit, slot, root: record.root });
        self.slots.write().insert(slot.number, tree.clone());
        Ok(tree)
    }

    /// The commits that are served.
    pub fn commits(&self) -> Vec<Hash> {
        self.slots.read().values().map(|tree| tree.commit).collect()
    }
}
