//! Frees what nothing names any more.
//!
//! What is kept: the history of every branch and tag, of what each retained operation let go or brought, of every
//! workspace's base and head, and, while a history server runs, of every commit that has a slot. Marking and
//! copying happen without the store's lock; then, under it, what was published meanwhile is marked too, the result
//! is recorded, and the epoch moves, so that a writer that found something before notices. Files go last, when
//! nothing durable names them any more.

mod log;
mod mark;
mod plan;
mod sweep;

use std::time::Duration;

use super::write::WriteTx;
use super::{Store, db, serving};
use crate::oplog::{Collected, PackId, Record};
use crate::{Code, Error, Hash, Result};
use mark::Mark;
use plan::Plan;

/// What a clean-up does.
#[derive(Debug, Clone, Copy)]
pub struct GcOptions {
    /// What operations older than this let go is not kept any more.
    pub expire: Duration,
    /// Only counts.
    pub dry_run: bool,
    /// Rewrites whatever frees a byte, not only what is mostly dead.
    pub thorough: bool,
}

/// What a clean-up did, or would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GcReport {
    /// Commits that are kept.
    pub commits_kept: u64,
    /// Commits that are gone.
    pub commits_removed: u64,
    /// Objects that are kept.
    pub objects_kept: u64,
    /// Objects that cannot be found any more; the bytes of some can stay next to live ones.
    pub objects_removed: u64,
    /// Packs removed or replaced, those inside the operation log included.
    pub packs_removed: u64,
    /// Packs written in their place.
    pub packs_added: u64,
    /// Operations that cannot be undone any more.
    pub operations_expired: u64,
    /// Bytes of disk that are free now (of a dry run: about).
    pub bytes_freed: u64,
    /// Whether the operation log was rewritten.
    pub log_rewritten: bool,
}

impl Store {
    /// Frees what is not named any more and was let go by operations older than `expire`.
    ///
    /// # Errors
    /// `Damaged` when a tree cannot be read whole: then nothing is removed, since what it names is not known.
    pub fn gc(&self, expire: Duration, dry_run: bool) -> Result<GcReport> {
        self.gc_with(&GcOptions { expire, dry_run, thorough: false })
    }

    /// The same with all options.
    pub fn gc_with(&self, options: &GcOptions) -> Result<GcReport> {
        if self.is_low_on_space() && !options.dry_run {
            // There is no room to copy what is live next to something dead, until what is wholly dead has gone.
            self.make_room();
            self.gc_passes(options, false)?;
        }
        let report = self.gc_passes(options, true)?;
        if !options.dry_run {
            self.refill_reserve();
        }
        Ok(report)
    }

    fn gc_passes(&self, options: &GcOptions, copy: bool) -> Result<GcReport> {
        // A commit that brings back to life what a pass was about to remove makes that pass void.
        for _ in 0..8 {
            let epoch = self.read(|db| db::meta(db, "gc_epoch"))?;
            match self.gc_pass(options, epoch, copy) {
                Ok(Some(report)) => return Ok(report),
                Ok(None) => {}
                // Another clean-up removed what this pass took for kept.
                Err(error)
                    if error.code == Code::Damaged && self.read(|db| db::meta(db, "gc_epoch"))? != epoch => {}
                Err(error) => return Err(error),
            }
        }
        Err(Error::new(
            Code::Busy,
            "Other programs kept using what was about to be removed; nothing was removed. Run the clean-up again.",
        ))
    }

    fn gc_pass(&self, options: &GcOptions, epoch: u64, copy: bool) -> Result<Option<GcReport>> {
        let mut mark = Mark::default();
        // A server that starts later shows in the second look, and voids the pass if it matters.
        let served = serving::unserved(self.dir())?.is_none();
        let roots = self.read(|db| mark::roots(db, options.expire, served))?;
        mark.add(self, &roots.commits)?;
        mark.close(self)?;
        let plan = Plan::new(self, &mark, options.thorough, copy)?;
        if options.dry_run {
            return Ok(Some(self.dry_report(&mark, &plan, roots.expired)?));
        }
        let copies = plan.copy(self, &mark)?;
        let added: Vec<u64> = copies.iter().map(|copy| copy.id).collect();
        let outcome = self.write(|tx| {
            if db::meta(&tx.db, "gc_epoch")? != epoch {
                return Ok(None);
            }
            // No server starts until the slots of what goes are empty.
            let unserved = serving::unserved(self.dir())?;
            let roots = mark::roots(&tx.db, options.expire, unserved.is_none())?;
            mark.add(self, &roots.commits)?;
            mark.close(self)?;
            if plan.is_void(&mark) {
                return Ok(None);
            }
            let commits = commits_gone(tx, &mark)?;
            let dead = plan.dead(&mark);
            let before = db::meta(&tx.db, "expired_seq")?;
            let report = GcReport {
                commits_kept: mark.commits.len() as u64,
                commits_removed: commits.len() as u64,
                objects_kept: mark.live.len() as u64,
                objects_removed: plan.removed_objects(&mark),
                packs_removed: plan.removed().len() as u64,
                packs_added: added.len() as u64,
                operations_expired: roots.expired.saturating_sub(before),
                ..GcReport::default()
            };
            let removes = !plan.removed().is_empty() || !dead.is_empty() || !commits.is_empty();
            if removes || roots.expired > before {
                let collected = Collected {
                    removed: plan.removed().to_vec(),
                    added: added.clone(),
                    dead,
                    commits,
                    expired_seq: roots.expired.max(before),
                    epoch: epoch + u64::from(removes),
                };
                tx.record(self, &Record::Collected(collected), None)?;
            }
            Ok(Some(report))
        });
        if outcome.is_err() && self.is_uncertain() {
            copies.into_iter().for_each(|copy| copy.finished.keep());
            return outcome;
        }
        let Some(mut report) = outcome? else { return Ok(None) };
        let mut bytes = 0i64;
        for copy in copies {
            bytes -= copy.finished.len as i64;
            copy.finished.keep();
        }
        for id in plan.removed() {
            if let PackId::File(id) = id {
                bytes += sweep::remove_pack(self, *id)? as i64;
            }
        }
        self.inner.cache.at_epoch(self.read(|db| db::meta(db, "gc_epoch"))?);
        bytes += sweep::leftovers(self)? as i64;
        if copy && let Some(freed) = log::rewrite(self, options.thorough)? {
            bytes += freed as i64;
            report.log_rewritten = true;
        }
        report.bytes_freed = bytes.max(0) as u64;
        // Gives the write-ahead log's space back; a reader in another process can keep it, which is no harm.
        self.read(|db| Ok(db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?))?;
        Ok(Some(report))
    }

    fn dry_report(&self, mark: &Mark, plan: &Plan, expired: u64) -> Result<GcReport> {
        let (commits, before) = self.read(|db| {
            let count: i64 = db.query_row("SELECT count(*) FROM commits", [], |row| row.get(0))?;
            Ok((count as u64, db::meta(db, "expired_seq")?))
        })?;
        Ok(GcReport {
            commits_kept: mark.commits.len() as u64,
            commits_removed: commits.saturating_sub(mark.commits.len() as u64),
            objects_kept: mark.live.len() as u64,
            objects_removed: plan.removed_objects(mark),
            packs_removed: plan.removed().len() as u64,
            packs_added: u64::from(plan.copies_any()),
            operations_expired: expired.saturating_sub(before),
            bytes_freed: plan.bytes_freed(),
            log_rewritten: false,
        })
    }
}

fn commits_gone(tx: &WriteTx, mark: &Mark) -> Result<Vec<Hash>> {
    let mut statement = tx.db.prepare_cached("SELECT id FROM commits ORDER BY ord")?;
    let ids = statement.query_map([], |row| Ok(Hash(row.get(0)?)))?;
    let mut gone = Vec::new();
    for id in ids {
        let id = id?;
        if !mark.commits.contains(&id) {
            gone.push(id);
        }
    }
    Ok(gone)
}
