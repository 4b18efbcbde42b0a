//! Walks the history. Order is the order in which commits came into the store, never a clock's.

use std::collections::{BinaryHeap, HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension};

use super::{Store, refs};
use crate::{Code, Commit, Error, Hash, Result};

/// A commit's place in the order: its parents' are smaller.
fn ord(db: &Connection, id: &Hash) -> Result<i64> {
    let mut statement = db.prepare_cached("SELECT ord FROM commits WHERE id = ?1")?;
    let ord = statement.query_row([id.0], |row| row.get(0)).optional()?;
    ord.ok_or_else(|| {
        Error::new(Code::NotFound, format!("There is no commit {} in this store.", &id.hex()[..12]))
    })
}

fn load(db: &Connection, id: &Hash) -> Result<Commit> {
    refs::commit(db, id)?.ok_or_else(|| Error::damaged(format!("Commit {id} is missing from the store.")))
}

/// A commit and everything it came from, newest first; see [`Store::ancestors`].
pub struct Ancestors {
    store: Store,
    heap: BinaryHeap<(i64, Hash)>,
    seen: HashSet<Hash>,
    first_parent: bool,
    failed: Option<Error>,
}

impl Ancestors {
    /// Follows only the first parent of each commit.
    pub fn first_parent(mut self) -> Self {
        self.first_parent = true;
        self
    }

    fn step(&mut self) -> Result<Option<Commit>> {
        let Some((_, id)) = self.heap.pop() else { return Ok(None) };
        let (heap, seen) = (&mut self.heap, &mut self.seen);
        let parents = if self.first_parent { 1 } else { usize::MAX };
        self.store.read(|db| {
            let commit = load(db, &id)?;
            for parent in commit.record.parents.iter().take(parents) {
                if seen.insert(*parent) {
                    heap.push((ord(db, parent)?, *parent));
                }
            }
            Ok(Some(commit))
        })
    }
}

impl Iterator for Ancestors {
    type Item = Result<Commit>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.failed.take() {
            return Some(Err(error));
        }
        self.step().transpose()
    }
}

impl Store {
    /// The commit and all it came from, newest first: every commit before its parents.
    pub fn ancestors(&self, commit: &Hash) -> Ancestors {
        let mut heap = BinaryHeap::new();
        let failed = match self.read(|db| ord(db, commit)) {
            Ok(ord) => {
                heap.push((ord, *commit));
                None
            }
            Err(error) => Some(error),
        };
        Ancestors { store: self.clone(), heap, seen: HashSet::from([*commit]), first_parent: false, failed }
    }

    /// Whether `ancestor` is `commit` or one that it came from.
    pub fn is_ancestor(&self, ancestor: &Hash, commit: &Hash) -> Result<bool> {
        let least = self.read(|db| ord(db, ancestor))?;
        let mut walk = self.ancestors(commit);
        if let Some(error) = walk.failed.take() {
            return Err(error);
        }
        while let Some(&(ord, id)) = walk.heap.peek() {
            if id == *ancestor {
                return Ok(true);
            }
            // Everything further back is older than what is looked for.
            if ord < least {
                return Ok(false);
            }
            walk.step()?;
        }
        Ok(false)
    }

    /// The newest commit that both came from; `None` when their histories never meet.
    pub fn merge_base(&self, a: &Hash, b: &Hash) -> Result<Option<Hash>> {
        self.read(|db| {
            let mut sides: HashMap<Hash, u8> = HashMap::new();
            let mut heap = BinaryHeap::new();
            for (id, side) in [(a, 1), (b, 2)] {
                *sides.entry(*id).or_default() |= side;
                heap.push((ord(db, id)?, *id));
            }
            // A commit comes out of the heap after everything that could still mark it.
            while let Some((_, id)) = heap.pop() {
                let side = sides[&id];
                if side == 3 {
                    return Ok(Some(id));
                }
                for parent in &load(db, &id)?.record.parents {
                    let marks = sides.entry(*parent).or_default();
                    if *marks == 0 {
                        heap.push((ord(db, parent)?, *parent));
                    }
                    *marks |= side;
                }
            }
            Ok(None)
        })
    }
}
