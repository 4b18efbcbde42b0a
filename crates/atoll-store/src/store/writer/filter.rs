//! Finds stored objects by hash without asking the database each time: not at all in an empty store, one by one
//! while there are few questions, from a copy of the index once there are many.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::{Store, apply};
use crate::{Hash, Num, Objects, Result};

/// A copy takes 16 bytes an object.
const COPY_MAX: u64 = 8 << 20;
/// Asking the database costs about as much as copying this many rows.
const ROWS_PER_QUESTION: u64 = 16;

pub(super) struct Filter {
    objects: u64,
    questions: AtomicU64,
    /// Prefix and number, sorted.
    copy: OnceLock<Vec<(i64, u64)>>,
}

impl Filter {
    pub(super) fn new(store: &Store) -> Result<Filter> {
        let objects = store.read(|db| {
            let mut statement = db.prepare_cached("SELECT coalesce(sum(objects), 0) FROM packs")?;
            Ok(statement.query_row([], |row| row.get::<_, i64>(0))?)
        })? as u64;
        Ok(Filter { objects, questions: AtomicU64::new(0), copy: OnceLock::new() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.objects == 0
    }

    pub(super) fn find(&self, store: &Store, hash: &Hash) -> Result<Option<Num>> {
        if self.is_empty() {
            return Ok(None);
        }
        let questions = self.questions.fetch_add(1, Ordering::Relaxed);
        if self.copy.get().is_none() {
            if questions < 256 || questions * ROWS_PER_QUESTION < self.objects || self.objects > COPY_MAX {
                return store.find(hash);
            }
            let rows = load(store)?;
            let _ = self.copy.set(rows);
        }
        let prefix = apply::prefix(hash);
        let rows = self.copy.get().map_or(&[][..], |rows| &rows[..]);
        let first = rows.partition_point(|row| row.0 < prefix);
        for (_, num) in rows[first..].iter().take_while(|row| row.0 == prefix) {
            if let Some((_, entry)) = store.locate(Num(*num))?
                && entry.hash == *hash
            {
                return Ok(Some(Num(*num)));
            }
        }
        Ok(None)
    }
}

fn load(store: &Store) -> Result<Vec<(i64, u64)>> {
    store.read(|db| {
        let mut statement = db.prepare_cached("SELECT prefix, num FROM hashes ORDER BY prefix, num")?;
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    })
}
