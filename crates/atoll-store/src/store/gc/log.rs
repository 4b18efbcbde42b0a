//! Rewrites the operation log without what is not needed any more.
//!
//! The new log is complete and synced before it takes the old one's name. The database learns of it last: if
//! the process dies in between, the generations differ and the database is rebuilt from the new log.

use std::fs::File;
use std::io::ErrorKind;

use crate::fault::{self, Point};
use crate::oplog::{HEADER_LEN, Log, NumRun, PackId, Record};
use crate::store::write::WriteTx;
use crate::store::{Profile, Store, apply, check, db, ops, refs, workspaces};
use crate::{Code, Error, Hash, Num, Result};

/// Less than this is not worth a rewrite.
const WORTH: u64 = 1 << 20;
/// Expired operations that stay in the list for people.
const EXPIRED_KEPT: usize = 10_000;

/// Rewrites the log if that halves it; says how many bytes it freed.
pub(super) fn rewrite(store: &Store, thorough: bool) -> Result<Option<u64>> {
    let freed = store.write(|tx| {
        let old = tx.log().len()?;
        let needed = needed(tx)?;
        let worth = if thorough { old > needed + needed / 8 + 4096 } else { old > needed * 2 + WORTH };
        if !worth {
            return Ok(None);
        }
        let path = store.log_path().with_file_name("oplog.new");
        remove_if_there(&path)?;
        let generation = getrandom::u64()
            .map_err(|error| Error::new(Code::Io, format!("The system gives no random numbers: {error}.")))?;
        let log = Log::create(&path, generation)?;
        let end = fill(store, tx, &log)?;
        put_in_place(store, &log)?;
        let log = Log::open(&store.log_path())?;
        tx.replace_log(log, end)?;
        Ok(Some(old.saturating_sub(end)))
    })?;
    remove_if_there(&store.old_log_path())?;
    Ok(freed)
}

fn remove_if_there(path: &std::path::Path) -> Result<()> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != ErrorKind::NotFound => Err(Error::io("remove", path, source)),
        _ => Ok(()),
    }
}

fn put_in_place(store: &Store, log: &Log) -> Result<()> {
    let (new, path, old) =
        (store.log_path().with_file_name("oplog.new"), store.log_path(), store.old_log_path());
    let replace = || -> std::io::Result<()> {
        let dir = File::open(&store.inner.dir)?;
        let _ = std::fs::remove_file(&old);
        // Readers find the packs in the old log under this name until the database has changed.
        std::fs::hard_link(&path, &old)?;
        fault::hit(Point::LogReplace)?;
        std::fs::rename(&new, &path)?;
        fault::hit(Point::LogReplaced)?;
        if store.profile() == Profile::Off { Ok(()) } else { dir.sync_all() }
    };
    if store.profile() != Profile::Off {
        log.sync()?;
    }
    replace().map_err(|source| Error::io("replace", &path, source))
}

/// About how long the log has to be.
fn needed(tx: &WriteTx) -> Result<u64> {
    let sum =
        |query: &str| -> Result<u64> { Ok(tx.db.query_row(query, [], |row| row.get::<_, i64>(0))? as u64) };
    Ok(HEADER_LEN
        + sum("SELECT coalesce(sum(length(record) + 64), 0) FROM commits")?
        + sum("SELECT coalesce(sum(length(changes) + length(note) + length(user) + 64), 0) FROM ops")?
        + sum("SELECT coalesce(sum(len + 32), 0) FROM packs WHERE kind = 1")?
        + sum("SELECT coalesce(sum(32 + 4 * dead), 0) FROM packs WHERE kind = 0")?
        + sum("SELECT coalesce(sum(160 + coalesce(length(folder), 0)), 0) FROM refs")?
        + sum("SELECT count(*) * 56 FROM slots")?
        + sum("SELECT coalesce(sum(200 + length(settings)), 0) FROM workspaces")?)
}

/// Writes everything that the database knows into the new log, and moves the packs inside the log along.
fn fill(store: &Store, tx: &mut WriteTx, log: &Log) -> Result<u64> {
    let mut end = HEADER_LEN;
    let mut put = |record: Record| -> Result<u64> {
        end = log.append(end, &record.encode())?;
        Ok(end)
    };
    put(Record::Counters {
        next_num: db::meta(&tx.db, "next_num")?,
        next_seq: db::meta(&tx.db, "next_seq")?,
        epoch: db::meta(&tx.db, "gc_epoch")?,
        expired_seq: db::meta(&tx.db, "expired_seq")?,
    })?;
    let mut packs = tx.db.prepare("SELECT pack, kind, number, len, dead FROM packs ORDER BY pack")?;
    let packs: Vec<(i64, PackId, u64, u64)> = packs
        .query_map([], |row| {
            let id = db::pack_id(row.get(1)?, row.get(2)?);
            Ok((row.get(0)?, id, row.get::<_, i64>(3)? as u64, row.get::<_, i64>(4)? as u64))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut moved = Vec::new();
    for (row, id, len, dead) in packs {
        let dead = if dead == 0 { Vec::new() } else { dead_of(store, tx, id, len)? };
        match id {
            PackId::File(id) => {
                put(Record::Pack { id, dead })?;
            }
            PackId::Log(offset) => {
                let blob = tx.log().read_blob(offset, len)?;
                moved.push((row, put(Record::Embedded(blob))? - len));
                if !dead.is_empty() {
                    put(Record::Dead(dead))?;
                }
            }
        }
    }
    let mut commits = tx.db.prepare("SELECT id, root, record FROM commits ORDER BY ord")?;
    let mut rows = commits.query([])?;
    while let Some(row) = rows.next()? {
        let root = Num(row.get::<_, i64>(1)? as u64);
        put(Record::Commit { id: Hash(row.get(0)?), root, record: row.get(2)? })?;
    }
    for (name, state) in refs::all(&tx.db)? {
        put(Record::Ref(name, state))?;
    }
    let expired = db::meta(&tx.db, "expired_seq")?;
    let mut history = ops::newest(&tx.db, usize::MAX)?;
    let old = history.iter().position(|operation| operation.seq <= expired).unwrap_or(history.len());
    if let Some(first) = history.get(old + EXPIRED_KEPT).map(|operation| operation.seq) {
        history.truncate(old + EXPIRED_KEPT);
        tx.db.execute("DELETE FROM ops WHERE seq <= ?1", [first as i64])?;
    }
    for operation in history.into_iter().rev() {
        put(Record::History(operation))?;
    }
    for workspace in workspaces::all(&tx.db)? {
        put(Record::Workspace(Box::new(workspace)))?;
    }
    let mut slots = tx.db.prepare("SELECT number, generation, \"commit\" FROM slots ORDER BY used")?;
    let mut rows = slots.query([])?;
    while let Some(row) = rows.next()? {
        let commit = row.get::<_, Option<[u8; 32]>>(2)?.map(Hash);
        put(Record::Slot { number: row.get(0)?, generation: row.get(1)?, commit })?;
    }
    // Two can swap places, so first all go out of the way.
    for (row, _) in &moved {
        tx.db.execute("UPDATE packs SET number = -pack WHERE pack = ?1", [row])?;
    }
    for (row, offset) in moved {
        tx.db.execute("UPDATE packs SET number = ?2 WHERE pack = ?1", (row, offset as i64))?;
    }
    Ok(end)
}

/// The objects of a pack that cannot be found any more.
fn dead_of(store: &Store, tx: &WriteTx, id: PackId, len: u64) -> Result<Vec<NumRun>> {
    let pack = match id {
        PackId::File(id) => apply::open_file(&store.packs_dir(), id)?,
        PackId::Log(offset) => apply::open_embedded(tx.log(), offset, len)?,
    };
    let mut runs: Vec<NumRun> = Vec::new();
    for (num, entry) in pack.table().iter() {
        if check::is_indexed(&tx.db, num, &entry.hash)? {
            continue;
        }
        match runs.last_mut() {
            Some((first, count)) if *first + *count == num.0 => *count += 1,
            _ => runs.push((num.0, 1)),
        }
    }
    Ok(runs)
}
