//! Applies one record of the operation log to the database: the same code when it is published, when it is
//! replayed after a crash, and when the database is rebuilt from nothing.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension};

use super::db::{self, FILLED};
use super::{Operation, RefName, RefState, Workspace};
use crate::oplog::{Log, NumRun, PackId, Published, Record, put_changes};
use crate::pack::{self, PackFile, Table};
use crate::{Code, Error, Hash, Num, Result};

/// Empties the database, to be filled again from the log.
pub(super) fn forget_all(db: &Connection) -> Result<()> {
    for table in FILLED {
        db.execute(&format!("DELETE FROM {table}"), [])?;
    }
    db.execute("UPDATE meta SET value = key IN ('next_num', 'next_seq')", [])?;
    Ok(())
}

/// Applies `record`, which ends at `end` in `log`. `table` is its pack's table when the caller has it.
pub(super) fn apply(
    db: &Connection,
    packs: &Path,
    record: &Record,
    log: &Log,
    end: u64,
    table: Option<&Table>,
) -> Result<()> {
    match record {
        Record::Operation(published) => operation(db, packs, published, log, end, table),
        Record::Workspace(workspace) => put_workspace(db, workspace),
        Record::WorkspaceGone(id) => {
            db.prepare_cached("DELETE FROM workspaces WHERE id = ?1")?.execute([id])?;
            Ok(())
        }
        Record::Slot { number, generation, commit } => {
            let mut statement = db.prepare_cached(
                "INSERT INTO slots (number, generation, \"commit\", used)
                 VALUES (?1, ?2, ?3, (SELECT coalesce(max(used), 0) + 1 FROM slots))
                 ON CONFLICT (number) DO UPDATE SET generation = ?2, \"commit\" = ?3, used = excluded.used",
            )?;
            statement.execute((number, generation, commit.map(|commit| commit.0)))?;
            Ok(())
        }
        Record::Collected(collected) => {
            for &id in &collected.removed {
                remove_pack(db, packs, log, id)?;
            }
            for &id in &collected.added {
                add_pack_file(db, packs, id, None)?;
            }
            bury(db, packs, log, &collected.dead)?;
            for commit in &collected.commits {
                db.prepare_cached("DELETE FROM commits WHERE id = ?1")?.execute([commit.0])?;
                db.prepare_cached("UPDATE slots SET \"commit\" = NULL WHERE \"commit\" = ?1")?
                    .execute([commit.0])?;
            }
            db::set_meta(db, "expired_seq", collected.expired_seq)?;
            db::set_meta(db, "gc_epoch", collected.epoch)
        }
        Record::Counters { next_num, next_seq, epoch, expired_seq } => {
            db::set_meta(db, "next_num", *next_num)?;
            db::set_meta(db, "next_seq", *next_seq)?;
            db::set_meta(db, "gc_epoch", *epoch)?;
            db::set_meta(db, "expired_seq", *expired_seq)
        }
        Record::Commit { id, root, record } => put_commit(db, id, *root, record),
        Record::Pack { id, dead } => {
            add_pack_file(db, packs, *id, None)?;
            bury(db, packs, log, dead)
        }
        Record::Embedded(blob) => {
            let offset = end - blob.len() as u64;
            let opened = open_embedded(log, offset, blob.len() as u64);
            add_opened(db, PackId::Log(offset), blob.len() as u64, opened)
        }
        Record::Dead(dead) => bury(db, packs, log, dead),
        Record::Ref(name, state) => put_ref(db, name, Some(state)),
        Record::History(operation) => put_operation(db, operation),
    }
}

fn operation(
    db: &Connection,
    packs: &Path,
    published: &Published,
    log: &Log,
    end: u64,
    table: Option<&Table>,
) -> Result<()> {
    if let Some(id) = published.pack {
        add_pack_file(db, packs, id, table)?;
    }
    if let Some(blob) = &published.embedded {
        let id = PackId::Log(end - blob.len() as u64);
        match table {
            Some(table) => add_pack(db, id, blob.len() as u64, table)?,
            None => {
                let opened = open_embedded(log, end - blob.len() as u64, blob.len() as u64);
                add_opened(db, id, blob.len() as u64, opened)?;
            }
        }
    }
    for (id, root, record) in &published.commits {
        put_commit(db, id, *root, record)?;
    }
    for change in &published.operation.changes {
        put_ref(db, &change.name, change.new.as_ref())?;
    }
    put_operation(db, &published.operation)?;
    db.prepare_cached("UPDATE meta SET value = max(value, ?1) WHERE key = 'next_num'")?
        .execute([published.next_num as i64])?;
    db::set_meta(db, "next_seq", published.operation.seq + 1)
}

fn put_commit(db: &Connection, id: &Hash, root: Num, record: &[u8]) -> Result<()> {
    // The same commit made twice is one; the first keeps its place in the order.
    db.prepare_cached("INSERT OR IGNORE INTO commits (id, root, record) VALUES (?1, ?2, ?3)")?.execute((
        id.0,
        root.0 as i64,
        record,
    ))?;
    Ok(())
}

fn put_ref(db: &Connection, name: &RefName, state: Option<&RefState>) -> Result<()> {
    let name = name.to_string();
    match state {
        None => db.prepare_cached("DELETE FROM refs WHERE name = ?1")?.execute([name])?,
        Some(state) => db
            .prepare_cached(
                "INSERT OR REPLACE INTO refs (name, \"commit\", base, folder) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute((name, state.commit.0, state.base.0, state.folder.as_deref()))?,
    };
    Ok(())
}

fn put_operation(db: &Connection, operation: &Operation) -> Result<()> {
    let mut changes = Vec::new();
    put_changes(&mut changes, &operation.changes);
    let mut statement = db.prepare_cached(
        "INSERT OR REPLACE INTO ops (seq, sec, nsec, user, kind, note, workspace, undoes, changes)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    statement.execute(rusqlite::params![
        operation.seq as i64,
        operation.time.sec,
        operation.time.nsec,
        operation.user,
        operation.kind,
        operation.note,
        operation.workspace,
        operation.undoes.map(|seq| seq as i64),
        changes
    ])?;
    Ok(())
}

fn put_workspace(db: &Connection, workspace: &Workspace) -> Result<()> {
    let mut statement = db.prepare_cached(
        "INSERT OR REPLACE INTO workspaces (id, branch, driver, base, head, mountpoint, settings, sec, nsec)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    statement.execute(rusqlite::params![
        workspace.id,
        workspace.branch,
        workspace.driver,
        workspace.base.0,
        workspace.head.0,
        workspace.mountpoint.as_ref().map(|path| path.as_os_str().as_encoded_bytes()),
        workspace.settings,
        workspace.created.sec,
        workspace.created.nsec
    ])?;
    Ok(())
}

/// Opens a pack file by its id.
pub(super) fn open_file(packs: &Path, id: u64) -> Result<PackFile> {
    let name = pack::file_name(id);
    let path = packs.join(&name);
    let file = std::fs::File::open(&path).map_err(|source| Error::io("open the pack", &path, source))?;
    let len = file.metadata().map_err(|source| Error::io("look at the pack", &path, source))?.len();
    PackFile::open(name, Arc::new(file), 0, len)
}

/// Opens a pack that stands in the log.
pub(super) fn open_embedded(log: &Log, offset: u64, len: u64) -> Result<PackFile> {
    PackFile::open(format!("in oplog at byte {offset}"), Arc::clone(log.file()), offset, len)
}

fn add_pack_file(db: &Connection, packs: &Path, id: u64, table: Option<&Table>) -> Result<()> {
    let path = packs.join(pack::file_name(id));
    let len = std::fs::metadata(&path).map(|metadata| metadata.len());
    match (table, len) {
        (Some(table), Ok(len)) => add_pack(db, PackId::File(id), len, table),
        // A later record of the log removes it again, or it is missing: reading says so.
        (_, Err(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            mark_damaged(db, PackId::File(id), 0)
        }
        (_, Err(source)) => Err(Error::io("look at the pack", &path, source)),
        (None, Ok(len)) => add_opened(db, PackId::File(id), len, open_file(packs, id)),
    }
}

/// A damaged pack must not keep the rest of the store from being rebuilt.
fn add_opened(db: &Connection, id: PackId, len: u64, opened: Result<PackFile>) -> Result<()> {
    match opened {
        Ok(pack) => add_pack(db, id, len, pack.table()),
        Err(error) if error.code == Code::Damaged => mark_damaged(db, id, len),
        Err(error) => Err(error),
    }
}

fn mark_damaged(db: &Connection, id: PackId, len: u64) -> Result<()> {
    let (kind, number) = db::pack_columns(id);
    db.prepare_cached(
        "INSERT OR REPLACE INTO packs (kind, number, len, objects, damaged) VALUES (?1, ?2, ?3, 0, 1)",
    )?
    .execute((kind, number, len as i64))?;
    Ok(())
}

/// The part of a hash that the database has.
pub(super) fn prefix(hash: &Hash) -> i64 {
    i64::from_be_bytes(hash.0[..8].try_into().expect("eight bytes"))
}

fn add_pack(db: &Connection, id: PackId, len: u64, table: &Table) -> Result<()> {
    let (kind, number) = db::pack_columns(id);
    db.prepare_cached("INSERT INTO packs (kind, number, len, objects) VALUES (?1, ?2, ?3, ?4)")?
        .execute((kind, number, len as i64, table.len() as i64))?;
    let pack = db.last_insert_rowid();
    let mut statement =
        db.prepare_cached("INSERT OR REPLACE INTO runs (first, count, pack) VALUES (?1, ?2, ?3)")?;
    for run in table.runs() {
        statement.execute((run.first as i64, run.count, pack))?;
    }
    // In the order of the index each page is touched once.
    let mut hashes: Vec<(i64, i64)> =
        table.iter().map(|(num, entry)| (prefix(&entry.hash), num.0 as i64)).collect();
    hashes.sort_unstable();
    let mut statement = db.prepare_cached("INSERT OR IGNORE INTO hashes (prefix, num) VALUES (?1, ?2)")?;
    for row in &hashes {
        statement.execute(*row)?;
    }
    if let Some(last) = table.runs().last() {
        let next = last.first + u64::from(last.count);
        db.prepare_cached("UPDATE meta SET value = max(value, ?1) WHERE key = 'next_num'")?
            .execute([next as i64])?;
    }
    Ok(())
}

fn remove_pack(db: &Connection, packs: &Path, log: &Log, id: PackId) -> Result<()> {
    let Some(row) = db::pack_row(db, id)? else { return Ok(()) };
    let len: Option<i64> = db
        .prepare_cached("SELECT len FROM packs WHERE pack = ?1")?
        .query_row([row], |row| row.get(0))
        .optional()?;
    let opened = match id {
        PackId::File(id) => open_file(packs, id),
        PackId::Log(offset) => open_embedded(log, offset, len.unwrap_or(0) as u64),
    };
    match opened {
        Ok(pack) => {
            let mut statement = db.prepare_cached("DELETE FROM hashes WHERE prefix = ?1 AND num = ?2")?;
            for (num, entry) in pack.table().iter() {
                statement.execute((prefix(&entry.hash), num.0 as i64))?;
            }
        }
        // Already removed (a replay), or damaged: find its rows by number.
        Err(_) => {
            let mut runs = db.prepare_cached("SELECT first, count FROM runs WHERE pack = ?1")?;
            let runs: Vec<(i64, i64)> = runs
                .query_map([row], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect::<rusqlite::Result<_>>()?;
            for (first, count) in runs {
                db.execute("DELETE FROM hashes WHERE num >= ?1 AND num < ?2", (first, first + count))?;
            }
        }
    }
    db.prepare_cached("DELETE FROM runs WHERE pack = ?1")?.execute([row])?;
    db.prepare_cached("DELETE FROM packs WHERE pack = ?1")?.execute([row])?;
    Ok(())
}

/// Takes numbers out of the index of hashes; their bytes stay where they are.
fn bury(db: &Connection, packs: &Path, log: &Log, dead: &[NumRun]) -> Result<()> {
    for &(first, count) in dead {
        let mut num = first;
        while num < first + count {
            let row = db
                .prepare_cached(
                    "SELECT first, count, kind, number, len, pack FROM runs JOIN packs USING (pack)
                     WHERE first <= ?1 ORDER BY first DESC LIMIT 1",
                )?
                .query_row([num as i64], |row| {
                    let id = db::pack_id(row.get(2)?, row.get(3)?);
                    let end = row.get::<_, i64>(0)? as u64 + row.get::<_, i64>(1)? as u64;
                    Ok((end, id, row.get::<_, i64>(4)? as u64, row.get::<_, i64>(5)?))
                })
                .optional()?;
            // A damaged pack has no runs: nothing of it can be found anyway.
            let Some((end, id, len, row)) = row.filter(|(end, ..)| num < *end) else {
                num += 1;
                continue;
            };
            let end = end.min(first + count);
            let pack = match id {
                PackId::File(id) => open_file(packs, id),
                PackId::Log(offset) => open_embedded(log, offset, len),
            };
            let mut buried = 0;
            match pack {
                Ok(pack) => {
                    let mut statement =
                        db.prepare_cached("DELETE FROM hashes WHERE prefix = ?1 AND num = ?2")?;
                    for num in num..end {
                        if let Some(entry) = pack.table().get(Num(num)) {
                            buried += statement.execute((prefix(&entry.hash), num as i64))?;
                        }
                    }
                }
                // Damaged since: slow, but the store must open.
                Err(_) => {
                    buried = db.execute(
                        "DELETE FROM hashes WHERE num >= ?1 AND num < ?2",
                        (num as i64, end as i64),
                    )?;
                }
            }
            db.prepare_cached("UPDATE packs SET dead = dead + ?2 WHERE pack = ?1")?
                .execute((row, buried as i64))?;
            num = end;
        }
    }
    Ok(())
}
