//! What must be kept.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use crate::pack::Coding;
use crate::store::{Store, db, ops, publish, refs, slots, workspaces};
use crate::tree::Node;
use crate::{Error, Hash, Num, Objects, Result};

/// Where marking begins.
pub(super) struct Roots {
    pub(super) commits: Vec<Hash>,
    /// Operations up to this one keep nothing.
    pub(super) expired: u64,
}

/// The roots as the database has them now. `served`: node ids of the history mount may be in use, so what has a
/// slot stays.
pub(super) fn roots(db: &Connection, expire: Duration, served: bool) -> Result<Roots> {
    let mut commits = if served { slots::commits(db)? } else { Vec::new() };
    for (_, state) in refs::all(db)? {
        commits.extend([state.commit, state.base]);
    }
    for workspace in workspaces::all(db)? {
        commits.extend([workspace.base, workspace.head]);
    }
    let before = db::meta(db, "expired_seq")?;
    let now = publish::now();
    let cutoff = i128::from(now.sec) * 1_000_000_000 + i128::from(now.nsec) - expire.as_nanos() as i128;
    let mut expired = before;
    let mut retained = false;
    for operation in ops::newest(db, usize::MAX)?.into_iter().rev().filter(|operation| operation.seq > before)
    {
        let time = i128::from(operation.time.sec) * 1_000_000_000 + i128::from(operation.time.nsec);
        // In order: a clock that was set back must not expire what came after something retained.
        retained |= time > cutoff;
        if !retained {
            expired = operation.seq;
            continue;
        }
        let states = operation.changes.iter().flat_map(|change| [&change.old, &change.new]).flatten();
        commits.extend(states.flat_map(|state| [state.commit, state.base]));
    }
    Ok(Roots { commits, expired })
}

/// A node that is what its name says: what a wrong one names is not what is alive.
fn verified(store: &Store, num: Num) -> Result<Arc<Node>> {
    let node = store.node(num)?;
    let (name, real) = (store.hash(num)?, Hash::of_node(&node.canonical(store)?));
    if name != real {
        return Err(Error::damaged(format!("Tree node {name} has the contents of {real}.")));
    }
    Ok(node)
}

/// Commits and objects that are kept.
#[derive(Default)]
pub(super) struct Mark {
    pub(super) commits: HashSet<Hash>,
    /// Objects that the kept commits name.
    pub(super) live: HashSet<Num>,
    /// Objects that live ones stand on as deltas: their bytes must stay, but they are not found any more.
    pub(super) kept: HashSet<Num>,
    /// Live nodes whose deltas were not followed yet.
    unclosed: Vec<Num>,
}

impl Mark {
    /// Adds these commits and everything they name.
    pub(super) fn add(&mut self, store: &Store, commits: &[Hash]) -> Result<()> {
        let mut todo = commits.to_vec();
        while let Some(id) = todo.pop() {
            if self.commits.contains(&id) {
                continue;
            }
            let commit = store.commit(&id).map_err(|error| Error::damaged(format!(
                "The clean-up stopped before it removed anything, because a commit that must be kept is missing. {}",
                error.message
            )))?;
            self.add_tree(store, commit.record.root).map_err(|error| Error {
                message: format!(
                    "The clean-up stopped before it removed anything, because a tree that must be kept cannot be read \
                     whole (commit {}). {}",
                    &id.hex()[..12],
                    error.message
                ),
                ..error
            })?;
            self.commits.insert(id);
            todo.extend(commit.record.parents);
        }
        Ok(())
    }

    fn add_tree(&mut self, store: &Store, root: Num) -> Result<()> {
        let mut todo = vec![root];
        while let Some(num) = todo.pop() {
            if !self.live.insert(num) {
                continue;
            }
            self.unclosed.push(num);
            let node = verified(store, num).inspect_err(|_| {
                self.live.remove(&num);
            })?;
            todo.extend(node.children());
            self.live.extend(node.chunks());
        }
        Ok(())
    }

    /// Keeps what live nodes stand on.
    pub(super) fn close(&mut self, store: &Store) -> Result<()> {
        while let Some(num) = self.unclosed.pop() {
            let Some((pack, entry)) = store.locate(num)? else { continue };
            let frame = pack.pack.table().frames()[entry.frame as usize];
            if frame.coding == Coding::Delta
                && self.kept.insert(frame.base)
                && !self.live.contains(&frame.base)
            {
                self.unclosed.push(frame.base);
            }
        }
        Ok(())
    }

    /// Whether an object's bytes must stay.
    pub(super) fn holds(&self, num: Num) -> bool {
        self.live.contains(&num) || self.kept.contains(&num)
    }
}
