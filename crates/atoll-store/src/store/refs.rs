//! Branches, tags and commits by their ids.

use rusqlite::{Connection, OptionalExtension, Row};

use super::{RefName, RefState, Store};
use crate::{Code, Commit, Error, Hash, Num, Result};

fn state(row: &Row) -> rusqlite::Result<RefState> {
    Ok(RefState { commit: Hash(row.get(1)?), base: Hash(row.get(2)?), folder: row.get(3)? })
}

/// One ref.
pub(super) fn get(db: &Connection, name: &RefName) -> Result<Option<RefState>> {
    let mut statement =
        db.prepare_cached("SELECT name, \"commit\", base, folder FROM refs WHERE name = ?1")?;
    Ok(statement.query_row([name.to_string()], state).optional()?)
}

/// All refs, sorted.
pub(super) fn all(db: &Connection) -> Result<Vec<(RefName, RefState)>> {
    let mut statement = db.prepare_cached("SELECT name, \"commit\", base, folder FROM refs ORDER BY name")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, state(row)?)))?;
    let mut refs = Vec::new();
    for row in rows {
        let (name, state) = row?;
        let name = RefName::from_stored(&name).ok_or_else(|| {
            Error::damaged(format!("The database holds a ref with the malformed name '{name}'."))
        })?;
        refs.push((name, state));
    }
    Ok(refs)
}

/// A commit, if it is stored.
pub(super) fn commit(db: &Connection, id: &Hash) -> Result<Option<Commit>> {
    let mut statement = db.prepare_cached("SELECT root, record FROM commits WHERE id = ?1")?;
    let row =
        statement.query_row([id.0], |row| Ok((Num(row.get::<_, i64>(0)? as u64), row.get::<_, Vec<u8>>(1)?)));
    row.optional()?.map(|(root, record)| Commit::decode(*id, root, &record)).transpose()
}

impl Store {
    /// A commit by its full id.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn commit(&self, id: &Hash) -> Result<Commit> {
        self.read(|db| commit(db, id))?.ok_or_else(|| {
            Error::new(
                Code::NotFound,
                format!(
                    "There is no commit {} in this store; `atoll log` lists what there is.",
                    &id.hex()[..12]
                ),
            )
        })
    }

    /// One ref.
    pub fn get_ref(&self, name: &RefName) -> Result<Option<RefState>> {
        self.read(|db| get(db, name))
    }

    /// All refs, sorted: branches, then tags.
    pub fn refs(&self) -> Result<Vec<(RefName, RefState)>> {
        self.read(all)
    }
}
