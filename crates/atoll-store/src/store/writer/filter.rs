//! Finds stored objects by hash without asking the database each time: not at all in an empty store, one by one
//! while there are few questions, from a copy of the index once there are many.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::store::{Store, apply, db};
use crate::{Hash, Num, Objects, Result};

/// A copy takes 16 bytes an object.
const COPY_MAX: u64 = 8 << 20;
/// Asking the database costs about as much as copying this many rows.
const ROWS_PER_QUESTION: u64 = 16;
/// So few are asked one by one in any case.
const QUESTIONS_MIN: u64 = 256;

pub(super) struct Filter {
    empty: bool,
    /// How many objects there are, asked for when there are many questions.
    objects: OnceLock<u64>,
    questions: AtomicU64,
    /// Prefix and number, sorted.
    copy: OnceLock<Vec<(i64, u64)>>,
}

impl Filter {
    pub(super) fn new(store: &Store) -> Result<Filter> {
        let empty = store.read(|db| db::meta(db, "next_num"))? == 1;
        Ok(Filter { empty, objects: OnceLock::new(), questions: AtomicU64::new(0), copy: OnceLock::new() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.empty
    }

    fn wants_copy(&self, store: &Store) -> Result<bool> {
        let questions = self.questions.fetch_add(1, Ordering::Relaxed);
        if questions < QUESTIONS_MIN {
            return Ok(false);
        }
        let objects = match self.objects.get() {
            Some(objects) => *objects,
            None => {
                let objects = store.read(|db| {
                    let query = "SELECT coalesce(sum(objects), 0) FROM packs";
                    Ok(db.query_row(query, [], |row| row.get::<_, i64>(0))? as u64)
                })?;
                *self.objects.get_or_init(|| objects)
            }
        };
        Ok(objects <= COPY_MAX && questions * ROWS_PER_QUESTION >= objects)
    }

    pub(super) fn find(&self, store: &Store, hash: &Hash) -> Result<Option<Num>> {
        if self.is_empty() {
            return Ok(None);
        }
        if self.copy.get().is_none() {
            if !self.wants_copy(store)? {
                return store.find(hash);
            }
            let rows = load(store)?;
            let _ = self.copy.set(rows);
        }
        let prefix = apply::prefix(hash);
        let rows = self.copy.get().map_or(&[][..], |rows| &rows[..]);
        let first = rows.partition_point(|row| row.0 < prefix);
        for (_, num) in rows[first..].iter().take_while(|row| row.0 == prefix) {
            if store.is_stored_as(Num(*num), hash)? {
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
