//! The database: its tables, its connections, and its errors in our words.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use parking_lot::MutexGuard;
use rusqlite::{Connection, ErrorCode, OptionalExtension};

use super::{Profile, Store};
use crate::oplog::PackId;
use crate::{Code, Error, Result};

/// The database's own version, in `PRAGMA user_version`.
pub(super) const VERSION: i64 = 1;

/// The one reference for the tables. Everything in them can be rebuilt from `oplog` and `packs/`, or is a cache.
///
/// - `meta`: `log_generation` and `log_end` say up to where which operation log is applied; `next_num`, `next_seq`
///   are the next free numbers; `gc_epoch` grows when gc removes something; operations up to `expired_seq` keep
///   nothing any more.
/// - `packs`: kind 0 is the file `packs/NUMBER.pack`, kind 1 stands in the log at offset NUMBER. `damaged` says
///   that its table could not be read when it was applied, `dead` how many of its objects cannot be found any more.
/// - `runs`: the numbers `first .. first + count` are in `pack`; runs never overlap.
/// - `hashes`: the first eight bytes of an object's hash, and its number; the pack's table has the rest.
/// - `commits`: `ord` grows; a commit's parents have smaller ones. `record` is the canonical record.
/// - `refs`, `ops`: `changes` as in the log. `workspaces`: one for each branch at most.
/// - `slots`: `used` orders them by last use.
const TABLES: &str = "
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE packs (pack INTEGER PRIMARY KEY, kind INTEGER NOT NULL, number INTEGER NOT NULL, len INTEGER NOT NULL,
    objects INTEGER NOT NULL, damaged INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0, UNIQUE (kind, number));
CREATE TABLE runs (first INTEGER PRIMARY KEY, count INTEGER NOT NULL, pack INTEGER NOT NULL);
CREATE INDEX runs_pack ON runs (pack);
CREATE TABLE hashes (prefix INTEGER, num INTEGER, PRIMARY KEY (prefix, num)) WITHOUT ROWID;
CREATE TABLE commits (ord INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, root INTEGER NOT NULL,
    record BLOB NOT NULL);
CREATE TABLE refs (name TEXT PRIMARY KEY, \"commit\" BLOB NOT NULL, base BLOB NOT NULL, folder BLOB) WITHOUT ROWID;
CREATE TABLE ops (seq INTEGER PRIMARY KEY, sec INTEGER NOT NULL, nsec INTEGER NOT NULL, user TEXT NOT NULL,
    kind TEXT NOT NULL, note TEXT NOT NULL, workspace TEXT, undoes INTEGER, changes BLOB NOT NULL);
CREATE TABLE workspaces (id TEXT PRIMARY KEY, branch TEXT NOT NULL UNIQUE, driver TEXT NOT NULL, base BLOB NOT NULL,
    head BLOB NOT NULL, mountpoint BLOB, settings TEXT NOT NULL, sec INTEGER NOT NULL, nsec INTEGER NOT NULL)
    WITHOUT ROWID;
CREATE TABLE slots (number INTEGER PRIMARY KEY, generation INTEGER NOT NULL, \"commit\" BLOB UNIQUE, used INTEGER NOT NULL);
INSERT INTO meta VALUES ('log_generation', 0), ('log_end', 0), ('next_num', 1), ('next_seq', 1), ('gc_epoch', 0),
    ('expired_seq', 0);
";

/// What is not in the log, because it only saves work: lost with the database, and nothing changes but the speed.
///
/// - `seen`: an import of `folder` that made no commit found exactly the tree with this root hash; `record` is what
///   its commit would have said of it. `used` orders them.
const CACHES: &str = "
CREATE TABLE IF NOT EXISTS seen (used INTEGER PRIMARY KEY AUTOINCREMENT, folder BLOB NOT NULL, tree BLOB NOT NULL,
    record TEXT NOT NULL, UNIQUE (folder, tree));
";

/// All tables that hold applied records.
pub(super) const FILLED: [&str; 8] =
    ["packs", "runs", "hashes", "commits", "refs", "ops", "workspaces", "slots"];

/// A connection and the file it is open on.
pub(super) struct Database {
    pub(super) connection: Connection,
    inode: u64,
}

/// The connection for reading.
pub(super) struct Reading {
    database: Database,
}

impl Reading {
    pub(super) fn new(database: Database) -> Reading {
        Reading { database }
    }
}

fn inode(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().map(|metadata| metadata.ino())
}

impl Database {
    /// Opens (and makes, when there is none) the database of the store in `dir`.
    pub(super) fn open(dir: &Path, profile: Profile) -> Result<Database> {
        Self::try_open(dir, profile).map_err(|error| {
            // SQLite says "disk I/O error" when there is no room for its shared memory file.
            if error.code == Code::Io && super::reserve::is_full(dir) {
                let message = format!(
                    "The disk of the store {} is full, and nothing is left to open it with; free some space and try again.",
                    dir.display()
                );
                return Error { code: Code::NoSpace, message, source: None };
            }
            error
        })
    }

    fn try_open(dir: &Path, profile: Profile) -> Result<Database> {
        let path = dir.join("meta.db");
        let connection = Connection::open(&path).map_err(|error| db_error(error, "open the database"))?;
        connection.busy_timeout(std::time::Duration::from_secs(60))?;
        connection.set_prepared_statement_cache_capacity(64);
        let synchronous = if profile == Profile::Off { "OFF" } else { "NORMAL" };
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}; PRAGMA temp_store = MEMORY;
             PRAGMA cache_size = -8000; PRAGMA wal_autocheckpoint = 400; PRAGMA journal_size_limit = 1048576;"
        ))?;
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version > VERSION {
            return Err(Error::new(
                Code::NewerFormat,
                format!(
                    "The database of the store {} has version {version}, this program knows {VERSION}; update atoll, or \
                     move meta.db away to have it rebuilt.",
                    dir.display()
                ),
            ));
        }
        if version == 0 {
            make_tables(&connection)?;
        }
        connection.execute_batch(CACHES)?;
        let inode =
            inode(&path).ok_or_else(|| Error::new(Code::Io, "The database vanished while it was opened."))?;
        Ok(Database { connection, inode })
    }

    /// Whether the file at its path is still the one it is open on.
    pub(super) fn is_current(&self, dir: &Path) -> bool {
        inode(&dir.join("meta.db")) == Some(self.inode)
    }
}

fn make_tables(connection: &Connection) -> Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let made = (|| -> Result<()> {
        // Another process can have been first.
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
        if version == 0 {
            connection.execute_batch(TABLES)?;
            connection.execute_batch(&format!("PRAGMA user_version = {VERSION}"))?;
        }
        Ok(connection.execute_batch("COMMIT")?)
    })();
    if made.is_err() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    made
}

impl Store {
    /// Runs a query on the reading connection. Keep it short: threads of this process take turns.
    pub(super) fn read<R>(&self, query: impl FnOnce(&Connection) -> Result<R>) -> Result<R> {
        self.check_process()?;
        query(&self.reading()?.database.connection)
    }

    fn reading(&self) -> Result<MutexGuard<'_, Reading>> {
        let mut reading = self.inner.read.lock();
        if !reading.database.is_current(&self.inner.dir) {
            if super::write::is_writing() {
                return Err(Error::new(
                    Code::Busy,
                    "The store's database was taken away during a change; run the command again.",
                ));
            }
            // Somebody took the database away: bring it back first, then read the new one.
            drop(reading);
            self.write(|_| Ok(()))?;
            reading = self.inner.read.lock();
            reading.database = Database::open(&self.inner.dir, self.inner.profile)?;
        }
        Ok(reading)
    }

    pub(super) fn check_process(&self) -> Result<()> {
        if self.inner.pid == std::process::id() {
            return Ok(());
        }
        Err(Error::new(
            Code::Usage,
            "This store was opened before the process was forked; open it again in the child.",
        ))
    }
}

/// A counter of the table `meta`.
pub(super) fn meta(connection: &Connection, key: &str) -> Result<u64> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
    Ok(statement.query_row([key], |row| row.get::<_, i64>(0))? as u64)
}

/// Sets a counter.
pub(super) fn set_meta(connection: &Connection, key: &str, value: u64) -> Result<()> {
    connection.prepare_cached("UPDATE meta SET value = ?2 WHERE key = ?1")?.execute((key, value as i64))?;
    Ok(())
}

/// A pack's kind and number as the table has them.
pub(super) fn pack_columns(id: PackId) -> (i64, i64) {
    match id {
        PackId::File(id) => (0, id as i64),
        PackId::Log(offset) => (1, offset as i64),
    }
}

/// And back.
pub(super) fn pack_id(kind: i64, number: i64) -> PackId {
    if kind == 0 { PackId::File(number as u64) } else { PackId::Log(number as u64) }
}

/// The row of a pack, if it is there.
pub(super) fn pack_row(connection: &Connection, id: PackId) -> Result<Option<i64>> {
    let mut statement =
        connection.prepare_cached("SELECT pack FROM packs WHERE kind = ?1 AND number = ?2")?;
    Ok(statement.query_row(pack_columns(id), |row| row.get(0)).optional()?)
}

/// An error of the database in our words. SQLite's own messages are kept below.
pub(super) fn db_error(error: rusqlite::Error, doing: &str) -> Error {
    let (code, sentence) = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            (Code::NoSpace, "The disk of the store is full; free some space and try again")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => (
            Code::Busy,
            "Another program has held the store's database for a minute; end it (an open `sqlite3`?) and try again",
        ),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => (
            Code::Damaged,
            "The store's database is damaged; move meta.db away and run the command again: it is rebuilt from the \
             operation log",
        ),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => (
            Code::Permission,
            "The store's database cannot be opened for writing; look at its owner and mode",
        ),
        _ => (Code::Io, "The store's database failed"),
    };
    Error::new(code, format!("{sentence} (while trying to {doing}: {error})."))
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        db_error(error, "use the database")
    }
}
