//! What imports that changed nothing found out. A cache: it saves the next import work and may be lost.

use rusqlite::OptionalExtension;

use super::Store;
use crate::{Hash, Result};

/// So many are kept.
const KEPT: i64 = 256;

impl Store {
    /// What was last remembered of an import of `folder` that found the tree with this root hash.
    pub fn seen(&self, folder: &[u8], tree: &Hash) -> Result<Option<String>> {
        self.read(|db| {
            let mut statement =
                db.prepare_cached("SELECT record FROM seen WHERE folder = ?1 AND tree = ?2")?;
            Ok(statement.query_row((folder, tree.0), |row| row.get(0)).optional()?)
        })
    }

    /// Remembers it, in place of what was remembered before. Not durable.
    pub fn put_seen(&self, folder: &[u8], tree: &Hash, record: &str) -> Result<()> {
        self.write(|tx| {
            tx.db
                .prepare_cached("INSERT OR REPLACE INTO seen (folder, tree, record) VALUES (?1, ?2, ?3)")?
                .execute((folder, tree.0, record))?;
            tx.db
                .prepare_cached("DELETE FROM seen WHERE used <= (SELECT max(used) FROM seen) - ?1")?
                .execute([KEPT])?;
            Ok(())
        })
    }
}
