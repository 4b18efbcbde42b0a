//! Makes a writer's objects, commits and ref moves part of the store.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use rusqlite::OptionalExtension;

use super::write::WriteTx;
use super::{
    NewOperation, Operation, Published, RefChange, RefName, RefState, Store, Writer, check, check_name, db,
};
use crate::oplog::{self, Record};
use crate::pack::Packed;
use crate::tree::Time;
use crate::{Code, Error, Hash, Num, Result};

impl Store {
    /// Makes the writer's objects, the commits and the ref moves part of the store, all or nothing, and
    /// returns when they would survive a power cut (profile `Full`).
    ///
    /// # Errors
    /// `Moved` when a ref does not hold `old` any more, `Exists` when one to be made is there already. `Changed`
    /// when gc removed an object that the writer had found and not written: the caller makes the tree again with a
    /// new writer.
    pub fn publish(&self, writer: Writer, operation: NewOperation) -> Result<Published> {
        for change in operation.changes.iter().filter(|change| change.old.is_none()) {
            check_name(change.name.short())?;
        }
        let mut commits = Vec::with_capacity(operation.commits.len());
        for commit in &operation.commits {
            let record = commit.encode(&writer.root_hash(commit.root)?);
            commits.push((Hash::of_commit(&record), commit.root, record));
        }
        if commits.is_empty() {
            // Dropping a branch must work on a full disk: it is how space comes back.
            self.make_room();
        }
        let ids: Vec<Hash> = commits.iter().map(|(id, ..)| *id).collect();
        let parents: Vec<Hash> =
            operation.commits.iter().flat_map(|commit| commit.parents.iter().copied()).collect();
        let written = writer.finish()?;
        let mut pack_file = None;
        let mut stored_bytes = 0;
        let (mut pack, mut embedded, mut table) = (None, None, None);
        if let Some(mut finished) = written.finished {
            match std::mem::replace(&mut finished.packed, Packed::Memory(Vec::new())) {
                Packed::Memory(bytes) => embedded = Some(bytes),
                Packed::File(id) => {
                    pack = Some(id);
                    stored_bytes += finished.len;
                }
            }
            table = Some(std::mem::replace(&mut finished.table, crate::pack::Table::new(&[], Vec::new())));
            pack_file = Some(finished);
        }
        let next_num = table
            .as_ref()
            .and_then(|table| table.runs().last())
            .map_or(0, |run| run.first + u64::from(run.count));
        let outcome = self.write(|tx| {
            if db::meta(&tx.db, "gc_epoch")? != written.epoch {
                self.check_found(tx, &written.external)?;
            }
            check_commits(tx, &operation, &ids, &parents)?;
            check_refs(tx, &operation.changes)?;
            let seq = db::meta(&tx.db, "next_seq")?;
            let record = Record::Operation(oplog::Published {
                operation: Operation {
                    seq,
                    time: now(),
                    user: self.inner.user.clone(),
                    kind: operation.kind,
                    note: operation.note,
                    workspace: operation.workspace,
                    undoes: operation.undoes,
                    changes: operation.changes,
                },
                commits,
                pack,
                embedded,
                next_num,
            });
            let grown = tx.record(self, &record, table.as_ref())?;
            Ok((seq, grown))
        });
        if let Some(file) = pack_file
            && (outcome.is_ok() || self.is_uncertain())
        {
            file.keep();
        }
        let (seq, grown) = outcome?;
        Ok(Published { seq, commits: ids, stored_bytes: stored_bytes + grown })
    }

    /// See `Inner::uncertain`.
    pub(super) fn is_uncertain(&self) -> bool {
        self.inner.uncertain.load(Ordering::SeqCst)
    }

    /// gc ran since the writer began: what it relies on must still be there, and be something that can be found
    /// (what gc left in a pack only because it was next to something live can name objects that are gone).
    fn check_found(&self, tx: &WriteTx, external: &HashSet<Num>) -> Result<()> {
        for &num in external {
            if !is_found(self, tx, num)? {
                return Err(Error::new(
                    Code::Changed,
                    "A clean-up removed an object that this commit was about to name; nothing was changed. Run the \
                     command again.",
                ));
            }
        }
        Ok(())
    }
}

fn is_found(store: &Store, tx: &WriteTx, num: Num) -> Result<bool> {
    let row = tx
        .db
        .prepare_cached(
            "SELECT first, count, kind, number, len FROM runs JOIN packs USING (pack)
             WHERE first <= ?1 ORDER BY first DESC LIMIT 1",
        )?
        .query_row([num.0 as i64], |row| {
            let id = db::pack_id(row.get(2)?, row.get(3)?);
            Ok((
                row.get::<_, i64>(0)? as u64 + row.get::<_, i64>(1)? as u64,
                id,
                row.get::<_, i64>(4)? as u64,
            ))
        })
        .optional()?;
    let Some((_, id, len)) = row.filter(|(end, ..)| num.0 < *end) else { return Ok(false) };
    let generation = if let oplog::PackId::Log(_) = id { tx.log().generation() } else { 0 };
    let Some(pack) = store.pack(super::cache::PackKey { id, generation, len })? else { return Ok(false) };
    let Some(entry) = pack.pack.table().get(num) else { return Ok(false) };
    check::is_indexed(&tx.db, num, &entry.hash)
}

/// Every commit that is named must be stored, or come with this operation.
fn check_commits(tx: &WriteTx, operation: &NewOperation, new: &[Hash], parents: &[Hash]) -> Result<()> {
    let states = operation.changes.iter().filter_map(|change| change.new.as_ref());
    let named = states.flat_map(|state| [state.commit, state.base]).chain(parents.iter().copied());
    for commit in named.filter(|commit| !new.contains(commit)) {
        let mut statement = tx.db.prepare_cached("SELECT 1 FROM commits WHERE id = ?1")?;
        if !statement.exists([commit.0])? {
            return Err(Error::new(
                Code::NotFound,
                format!(
                    "Commit {} is not in the store (any more): what an operation let go is cleaned up after a while. \
                     `atoll log` lists what is there",
                    &commit.hex()[..12]
                ) + ".",
            ));
        }
    }
    Ok(())
}

fn check_refs(tx: &WriteTx, changes: &[RefChange]) -> Result<()> {
    for change in changes {
        let now = super::refs::get(&tx.db, &change.name)?;
        if now != change.old {
            return Err(lost_race(change, now.as_ref()));
        }
    }
    // Looked at together: an operation can delete `a` and make `a/b`.
    let made: Vec<&RefName> = changes
        .iter()
        .filter(|change| change.old.is_none() && change.new.is_some())
        .map(|change| &change.name)
        .collect();
    if made.is_empty() {
        return Ok(());
    }
    let gone: HashSet<&RefName> =
        changes.iter().filter(|change| change.new.is_none()).map(|change| &change.name).collect();
    let present = super::refs::all(&tx.db)?;
    let others =
        present.iter().map(|(name, _)| name).filter(|name| !gone.contains(name)).chain(made.iter().copied());
    for other in others {
        if let Some(name) = made.iter().find(|name| super::names::clash(name, other)) {
            return Err(Error::new(
                Code::Exists,
                format!(
                    "'{}' cannot be made while '{}' exists: both are shown as folders, and one would be inside the other. \
                     Choose another name.",
                    name.short(),
                    other.short()
                ),
            ));
        }
    }
    Ok(())
}

fn lost_race(change: &RefChange, now: Option<&RefState>) -> Error {
    let (kind, name) = match &change.name {
        RefName::Branch(name) => ("branch", name),
        RefName::Tag(name) => ("tag", name),
    };
    let short = |state: &RefState| state.commit.hex()[..12].to_owned();
    match (&change.old, now) {
        (None, Some(_)) => Error::new(
            Code::Exists,
            format!("The {kind} '{name}' exists already; choose another name, or delete it first."),
        ),
        (Some(_), None) => Error::new(
            Code::Moved,
            format!(
                "The {kind} '{name}' was deleted meanwhile; `atoll op log` shows by whom, `atoll undo` brings it back."
            ),
        ),
        (Some(old), Some(now)) if old.commit == now.commit => Error::new(
            Code::Moved,
            format!(
                "The {kind} '{name}' was given another base or folder meanwhile; look at it and run the command again."
            ),
        ),
        (Some(old), Some(now)) => Error::new(
            Code::Moved,
            format!(
                "The {kind} '{name}' moved from {} to {} meanwhile; nothing was changed. Look at what came with `atoll log \
                 {name}`, and commit to a branch of your own instead (`atoll fork`), or run the command again.",
                short(old),
                short(now)
            ),
        ),
        (None, None) => {
            Error::new(Code::Moved, format!("The {kind} '{name}' changed meanwhile; run the command again."))
        }
    }
}

/// The present time.
pub(super) fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
}
