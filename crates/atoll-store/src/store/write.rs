//! The one way to change a store: under its lock, the log first, then the database.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rusqlite::{Transaction, TransactionBehavior};
use rustix::fs::{FlockOperation, flock};

use super::db::{self, Database};
use super::{Profile, Store, apply};
use crate::fault::{self, Point};
use crate::oplog::{At, HEADER_LEN, Log, Record};
use crate::pack::Table;
use crate::{Code, Error, Result};

/// What writing needs, kept open.
pub(super) struct Side {
    /// The store's folder: its lock is the store's lock. A folder is never replaced, as a file may be.
    lock: Arc<File>,
    database: Option<Database>,
    log: Option<Log>,
}

impl Side {
    pub(super) fn new(lock: File) -> Side {
        Side { lock: Arc::new(lock), database: None, log: None }
    }
}

thread_local! {
    static WRITING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is inside [`Store::write`], where it must not begin another change.
pub(super) fn is_writing() -> bool {
    WRITING.get()
}

/// The store's lock, held.
struct Locked(Arc<File>);

impl Locked {
    fn take(file: &Arc<File>) -> Result<Locked> {
        loop {
            match flock(file, FlockOperation::LockExclusive) {
                Ok(()) => {
                    WRITING.set(true);
                    return Ok(Locked(Arc::clone(file)));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(Error::new(Code::Io, format!("The store could not be locked: {error}.")));
                }
            }
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        WRITING.set(false);
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// A change in progress. Nobody else changes the store until it ends.
pub(super) struct WriteTx<'a> {
    pub(super) db: Transaction<'a>,
    log: Log,
    /// Where the log ended when the database was last right.
    start: u64,
    end: u64,
    durable: bool,
}

impl Store {
    /// Runs `work` with the store locked and everything in the log applied. What it records is durable when
    /// this returns; when it fails, nothing of it stays.
    pub(super) fn write<R>(&self, work: impl FnOnce(&mut WriteTx) -> Result<R>) -> Result<R> {
        self.check_process()?;
        let mut side = self.inner.write.lock();
        let _locked = Locked::take(&side.lock)?;
        let side = &mut *side;
        self.make_current(side)?;
        let (Some(database), Some(log)) = (&mut side.database, &side.log) else {
            unreachable!("make_current opens both");
        };
        let log = log.clone();
        let db = database
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(|error| db::db_error(error, "begin a change"))?;
        let mut tx = WriteTx { end: db::meta(&db, "log_end")?, start: 0, db, log, durable: false };
        let before = tx.end;
        self.catch_up(&mut tx)?;
        tx.start = tx.end;
        match work(&mut tx) {
            Ok(result) => {
                tx.commit(before, self)?;
                Ok(result)
            }
            Err(error) => {
                tx.undo(self)?;
                Err(error)
            }
        }
    }

    /// Opens the database and the log that stand in the store's folder now.
    fn make_current(&self, side: &mut Side) -> Result<()> {
        let dir = &self.inner.dir;
        if !side.database.as_ref().is_some_and(|database| database.is_current(dir)) {
            side.database = None;
            side.database = Some(Database::open(dir, self.inner.profile)?);
        }
        let path = self.log_path();
        let current = std::fs::metadata(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => Error::damaged(format!(
                "The operation log {} is missing; put it back from a copy of the store: it is what the store is rebuilt \
                 from.",
                path.display()
            )),
            _ => Error::io("look at", &path, source),
        })?;
        let open =
            side.log.as_ref().and_then(|log| log.file().metadata().ok()).map(|metadata| metadata.ino());
        if open != Some(current.ino()) {
            side.log = Some(Log::open(&path)?);
        }
        Ok(())
    }

    /// Applies what the log has and the database lacks: writers can have died in between.
    fn catch_up(&self, tx: &mut WriteTx) -> Result<()> {
        let generation = db::meta(&tx.db, "log_generation")?;
        let rebuild = generation != tx.log.generation() || tx.end > tx.log.len()?;
        if rebuild {
            apply::forget_all(&tx.db)?;
            tx.end = HEADER_LEN;
        }
        loop {
            match tx.log.at(tx.end)? {
                At::End => break,
                At::Record { payload, next } => {
                    let record = Record::decode(&payload)?;
                    apply::apply(&tx.db, &self.packs_dir(), &record, &tx.log, next, None)?;
                    tx.end = next;
                }
                // Damage in the middle: what follows was acknowledged, so it is kept.
                At::Torn { resumes: Some(next) } => tx.end = next,
                At::Torn { resumes: None } => {
                    if rebuild {
                        tx.log.save_tail(tx.end)?;
                    }
                    tx.log.cut(tx.end)?;
                    break;
                }
            }
        }
        if rebuild {
            db::set_meta(&tx.db, "log_generation", tx.log.generation())?;
        }
        Ok(())
    }
}

impl WriteTx<'_> {
    /// Applies a record to the database and appends it to the log. `table` is the table of its pack, where
    /// the caller has it.
    pub(super) fn record(&mut self, store: &Store, record: &Record, table: Option<&Table>) -> Result<u64> {
        let payload = record.encode();
        let next = self.end + 16 + payload.len() as u64;
        apply::apply(&self.db, &store.packs_dir(), record, &self.log, next, table)?;
        let end = self.log.append(self.end, &payload)?;
        debug_assert_eq!(end, next);
        self.end = end;
        Ok(end - self.start)
    }

    /// Syncs this change also in a store whose profile is `Normal`: something outside depends on it.
    pub(super) fn make_durable(&mut self) {
        self.durable = true;
    }

    /// The log, for gc, which rewrites it.
    pub(super) fn log(&self) -> &Log {
        &self.log
    }

    /// Goes on with a rewritten log, complete up to `end`.
    pub(super) fn replace_log(&mut self, log: Log, end: u64) -> Result<()> {
        db::set_meta(&self.db, "log_generation", log.generation())?;
        self.log = log;
        self.start = end;
        self.end = end;
        Ok(())
    }

    fn commit(self, before: u64, store: &Store) -> Result<()> {
        let profile = store.profile();
        let WriteTx { db, log, start, end, durable } = self;
        let finish = || -> Result<()> {
            // Also when it only caught up: whoever wrote that may have died before it was synced.
            if end != before && (profile == Profile::Full || (durable && profile == Profile::Normal)) {
                log.sync()?;
            }
            if end != before {
                db::set_meta(&db, "log_end", end)?;
            }
            fault::hit(Point::DatabaseCommit)?;
            Ok(())
        };
        let done =
            finish().and_then(|()| db.commit().map_err(|error| db::db_error(error, "commit a change")));
        if let Err(error) = done {
            // The caller hears that it failed, so it must not come back at the next start.
            cut_back(store, &log, start)?;
            return Err(error);
        }
        let _ = fault::hit(Point::DatabaseCommitted);
        Ok(())
    }

    fn undo(self, store: &Store) -> Result<()> {
        let WriteTx { db, log, start, .. } = self;
        cut_back(store, &log, start)?;
        Ok(db.rollback()?)
    }
}

fn cut_back(store: &Store, log: &Log, start: u64) -> Result<()> {
    let cut = log.len().and_then(|len| if len > start { log.cut(start) } else { Ok(()) });
    if cut.is_err() {
        store.inner.uncertain.store(true, Ordering::SeqCst);
    }
    cut
}
