//! Figures about a store.

use super::Store;
use crate::Result;

/// What a store holds and takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Commits, also those that only an operation keeps.
    pub commits: u64,
    /// Branches.
    pub branches: u64,
    /// Tags.
    pub tags: u64,
    /// Operations in the log.
    pub operations: u64,
    /// Workspaces, mounted or not.
    pub workspaces: u64,
    /// Chunks and tree nodes.
    pub objects: u64,
    /// Pack files.
    pub packs: u64,
    /// Packs inside the operation log.
    pub embedded_packs: u64,
    /// Bytes of pack files.
    pub pack_bytes: u64,
    /// Bytes of the operation log.
    pub log_bytes: u64,
    /// Bytes of the database with its write-ahead log.
    pub database_bytes: u64,
}

impl Store {
    /// Counts and bytes.
    pub fn stats(&self) -> Result<Stats> {
        let size =
            |name: &str| std::fs::metadata(self.inner.dir.join(name)).map_or(0, |metadata| metadata.len());
        let mut stats = self.read(|db| {
            let count = |query: &str| -> Result<u64> {
                Ok(db.query_row(query, [], |row| row.get::<_, i64>(0))? as u64)
            };
            Ok(Stats {
                commits: count("SELECT count(*) FROM commits")?,
                branches: count("SELECT count(*) FROM refs WHERE name LIKE 'branch/%'")?,
                tags: count("SELECT count(*) FROM refs WHERE name LIKE 'tag/%'")?,
                operations: count("SELECT count(*) FROM ops")?,
                workspaces: count("SELECT count(*) FROM workspaces")?,
                objects: count("SELECT coalesce(sum(objects), 0) FROM packs")?,
                packs: count("SELECT count(*) FROM packs WHERE kind = 0")?,
                embedded_packs: count("SELECT count(*) FROM packs WHERE kind = 1")?,
                pack_bytes: count("SELECT coalesce(sum(len), 0) FROM packs WHERE kind = 0")?,
                ..Stats::default()
            })
        })?;
        stats.log_bytes = size("oplog");
        stats.database_bytes = size("meta.db") + size("meta.db-wal");
        Ok(stats)
    }
}
