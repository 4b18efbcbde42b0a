//! The operation log as people see it, and undo.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, Row};

use super::{NewOperation, Operation, Published, RefChange, Store, db};
use crate::codec::Reader;
use crate::tree::Time;
use crate::{Code, Error, Result, oplog};

const COLUMNS: &str = "seq, sec, nsec, user, kind, note, workspace, undoes, changes";

fn operation(row: &Row) -> rusqlite::Result<(Operation, Vec<u8>)> {
    let operation = Operation {
        seq: row.get::<_, i64>(0)? as u64,
        time: Time { sec: row.get(1)?, nsec: row.get(2)? },
        user: row.get(3)?,
        kind: row.get(4)?,
        note: row.get(5)?,
        workspace: row.get(6)?,
        undoes: row.get::<_, Option<i64>>(7)?.map(|seq| seq as u64),
        changes: Vec::new(),
    };
    Ok((operation, row.get(8)?))
}

fn with_changes((mut operation, changes): (Operation, Vec<u8>)) -> Result<Operation> {
    let mut reader = Reader::new(&changes, "operation");
    operation.changes = oplog::changes(&mut reader)?;
    Ok(operation)
}

/// The newest `limit` operations, newest first.
pub(super) fn newest(db: &Connection, limit: usize) -> Result<Vec<Operation>> {
    let mut statement =
        db.prepare_cached(&format!("SELECT {COLUMNS} FROM ops ORDER BY seq DESC LIMIT ?1"))?;
    let rows = statement.query_map([i64::try_from(limit).unwrap_or(i64::MAX)], operation)?;
    rows.map(|row| with_changes(row?)).collect()
}

impl Store {
    /// The newest `limit` operations, newest first.
    pub fn operations(&self, limit: usize) -> Result<Vec<Operation>> {
        self.read(|db| newest(db, limit))
    }

    /// One operation.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn operation(&self, seq: u64) -> Result<Operation> {
        let row = self.read(|db| {
            let mut statement = db.prepare_cached(&format!("SELECT {COLUMNS} FROM ops WHERE seq = ?1"))?;
            Ok(statement.query_row([seq as i64], operation).optional()?)
        })?;
        row.map(with_changes).transpose()?.ok_or_else(|| {
            Error::new(
                Code::NotFound,
                format!("There is no operation {seq}; `atoll op log` lists what there is."),
            )
        })
    }

    /// Takes an operation back: the newest one that was not taken back yet, or `seq`. Each ref it changed gets what
    /// it held before, in one new operation, which can itself be taken back by its number.
    ///
    /// # Errors
    /// `Moved` when a ref has moved since (it is named), `NotFound` when there is nothing to take back or gc has
    /// removed what the operation let go.
    pub fn undo(&self, seq: Option<u64>) -> Result<(Operation, Published)> {
        let (target, expired) = match seq {
            Some(seq) => (self.operation(seq)?, self.read(|db| db::meta(db, "expired_seq"))?),
            None => self.newest_not_undone()?,
        };
        if target.changes.is_empty() {
            return Err(Error::new(
                Code::Usage,
                format!(
                    "Operation {} ({}) changed no branch or tag, so there is nothing to take back.",
                    target.seq, target.kind
                ),
            ));
        }
        if seq.is_some() && self.is_undone(target.seq)? {
            return Err(Error::new(
                Code::Conflict,
                format!(
                    "Operation {} was taken back already; take that undo back instead (`atoll op log`).",
                    target.seq
                ),
            ));
        }
        let changes: Vec<RefChange> = target
            .changes
            .iter()
            .map(|change| RefChange {
                name: change.name.clone(),
                old: change.new.clone(),
                new: change.old.clone(),
            })
            .collect();
        self.not_moved_since(&target, &changes)?;
        let note = format!("undo of operation {}: {}", target.seq, target.note);
        let operation = NewOperation {
            kind: "undo".to_owned(),
            note,
            undoes: Some(target.seq),
            changes,
            ..Default::default()
        };
        let published = self.publish(self.writer()?, operation).map_err(|error| match error.code {
            Code::NotFound if target.seq <= expired => Error::new(
                Code::NotFound,
                format!(
                    "Operation {} cannot be taken back any more: `atoll gc` has removed what it let go.",
                    target.seq
                ),
            ),
            _ => error,
        })?;
        Ok((target, published))
    }

    fn undone(&self) -> Result<HashSet<u64>> {
        let pairs: Vec<(u64, u64)> = self.read(|db| {
            let mut statement =
                db.prepare_cached("SELECT seq, undoes FROM ops WHERE undoes IS NOT NULL ORDER BY seq DESC")?;
            let rows = statement
                .query_map([], |row| Ok((row.get::<_, i64>(0)? as u64, row.get::<_, i64>(1)? as u64)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })?;
        let mut undone = HashSet::new();
        for (seq, undoes) in pairs {
            // An undo that was itself taken back has no effect. Later ones come first here.
            if !undone.contains(&seq) {
                undone.insert(undoes);
            }
        }
        Ok(undone)
    }

    fn is_undone(&self, seq: u64) -> Result<bool> {
        Ok(self.undone()?.contains(&seq))
    }

    fn newest_not_undone(&self) -> Result<(Operation, u64)> {
        let undone = self.undone()?;
        let expired = self.read(|db| db::meta(db, "expired_seq"))?;
        let mut limit = 64;
        loop {
            let operations = self.operations(limit)?;
            let all = operations.len() < limit;
            let target = operations.into_iter().find(|operation| {
                operation.undoes.is_none()
                    && !operation.changes.is_empty()
                    && !undone.contains(&operation.seq)
            });
            match target {
                Some(target) => return Ok((target, expired)),
                None if all => {
                    return Err(Error::new(Code::NotFound, "There is no operation left to take back."));
                }
                None => limit *= 4,
            }
        }
    }

    fn not_moved_since(&self, target: &Operation, changes: &[RefChange]) -> Result<()> {
        let mut moved = Vec::new();
        for change in changes {
            if self.get_ref(&change.name)? != change.old {
                moved.push(format!("'{}'", change.name.short()));
            }
        }
        if moved.is_empty() {
            return Ok(());
        }
        Err(Error::new(
            Code::Moved,
            format!(
                "Operation {} ({}) cannot be taken back, because {} moved since; take back the later operations first \
                 (`atoll op log` lists them).",
                target.seq,
                target.kind,
                moved.join(", ")
            ),
        ))
    }
}
