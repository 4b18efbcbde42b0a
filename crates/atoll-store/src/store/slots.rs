//! Slots: short numbers for trees in the node ids of the history mount. A number comes to mean another commit
//! only with another generation. A slot is released when `gc` removes its commit; while a server runs it does not.

use std::collections::HashSet;

use rusqlite::OptionalExtension;

use super::{Slot, Store, workspaces};
use crate::oplog::Record;
use crate::{Code, Error, Hash, Result};

/// Thirteen bits, without 0, which the mount's own folders have.
const MAX: u16 = 8191;

impl Store {
    /// The history mount's slot for a commit's tree: 1 to 8191, with its generation; recorded and synced before it
    /// returns. A commit keeps its slot until all numbers are taken; then the one that was given out longest ago
    /// and belongs to no workspace (by its base or head) is used again, with the next generation.
    ///
    /// # Errors
    /// `NotFound` when there is no such commit, `Busy` when workspaces hold all slots.
    pub fn slot(&self, commit: &Hash) -> Result<Slot> {
        let known = self.read(|db| slot_of(db, commit))?;
        if let Some(slot) = known {
            return Ok(slot);
        }
        self.write(|tx| {
            if let Some(slot) = slot_of(&tx.db, commit)? {
                return Ok(slot);
            }
            if super::refs::commit(&tx.db, commit)?.is_none() {
                return Err(Error::new(
                    Code::NotFound,
                    format!("There is no commit {} in this store.", &commit.hex()[..12]),
                ));
            }
            let count: u16 =
                tx.db.query_row("SELECT coalesce(max(number), 0) FROM slots", [], |row| row.get(0))?;
            let slot = if count < MAX { Slot { number: count + 1, generation: 1 } } else { free_slot(tx)? };
            tx.make_durable();
            let record =
                Record::Slot { number: slot.number, generation: slot.generation, commit: Some(*commit) };
            tx.record(self, &record, None)?;
            Ok(slot)
        })
    }

    /// Which commit a slot stands for.
    pub fn slot_commit(&self, number: u16) -> Result<Option<(Hash, Slot)>> {
        self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT \"commit\", generation FROM slots WHERE number = ?1 AND \"commit\" IS NOT NULL",
            )?;
            let row = statement
                .query_row([number], |row| Ok((Hash(row.get(0)?), Slot { number, generation: row.get(1)? })));
            Ok(row.optional()?)
        })
    }
}

/// The commits that have a slot.
pub(super) fn commits(db: &rusqlite::Connection) -> Result<Vec<Hash>> {
    let mut statement = db.prepare_cached("SELECT \"commit\" FROM slots WHERE \"commit\" IS NOT NULL")?;
    let rows = statement.query_map([], |row| Ok(Hash(row.get(0)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn slot_of(db: &rusqlite::Connection, commit: &Hash) -> Result<Option<Slot>> {
    let mut statement = db.prepare_cached("SELECT number, generation FROM slots WHERE \"commit\" = ?1")?;
    let row =
        statement.query_row([commit.0], |row| Ok(Slot { number: row.get(0)?, generation: row.get(1)? }));
    Ok(row.optional()?)
}

fn free_slot(tx: &super::write::WriteTx) -> Result<Slot> {
    let pinned: HashSet<Hash> =
        workspaces::all(&tx.db)?.into_iter().flat_map(|workspace| [workspace.base, workspace.head]).collect();
    let mut statement = tx.db.prepare_cached(
        "SELECT number, generation, \"commit\" FROM slots ORDER BY \"commit\" IS NOT NULL, used",
    )?;
    let rows = statement.query_map([], |row| {
        Ok((row.get::<_, u16>(0)?, row.get::<_, u32>(1)?, row.get::<_, Option<[u8; 32]>>(2)?))
    })?;
    for row in rows {
        let (number, generation, commit) = row?;
        if commit.is_none_or(|commit| !pinned.contains(&Hash(commit))) {
            return Ok(Slot { number, generation: generation + 1 });
        }
    }
    Err(Error::new(
        Code::Busy,
        "Workspaces hold all 8191 places of the history mount; drop some of them first.",
    ))
}
