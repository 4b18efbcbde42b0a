//! Which packs go, which are copied, which stay.

use std::collections::{BTreeMap, HashSet};

use super::mark::Mark;
use crate::oplog::{NumRun, PackId};
use crate::pack::{Builder, CHUNK_GROUP, Compressor, Entry, Finished, Kind, NODE_GROUP, Packed};
use crate::store::cache::{OpenPack, PackKey};
use crate::store::{Profile, Store, check, db};
use crate::{Error, Num, Result};

/// More packs than this inside the log are moved into a file.
const EMBEDDED_MAX: usize = 256;
/// Or more bytes of them.
const EMBEDDED_BYTES_MAX: u64 = 4 << 20;
/// A copy is not made longer than this.
const COPY_MAX: u64 = 1 << 30;

/// What is to happen.
pub(super) struct Plan {
    removed: Vec<PackId>,
    /// Removed packs with something to copy.
    copied: Vec<OpenPack>,
    /// Numbers in removed packs that are not copied.
    lost: HashSet<Num>,
    /// Numbers that stay in some pack and can be found until now, but are not live.
    buried: Vec<Num>,
    /// Numbers that are copied only because deltas stand on them.
    carried: Vec<Num>,
    bytes: u64,
}

/// A pack that was written in place of others.
pub(super) struct Copy {
    pub(super) id: u64,
    pub(super) finished: Finished,
}

/// What is worth a copy.
#[derive(Clone, Copy)]
struct Rules {
    copy: bool,
    thorough: bool,
    /// Whether there is so much inside the log that it moves into a file.
    embedded: bool,
}

struct Candidate {
    key: PackKey,
    pack: OpenPack,
    live: u64,
    dead: u64,
    dead_numbers: Vec<Num>,
    was_dead: u64,
}

impl Plan {
    /// Looks at every pack.
    pub(super) fn new(store: &Store, mark: &Mark, thorough: bool, copy: bool) -> Result<Plan> {
        let rows = store.read(|db| {
            let generation = db::meta(db, "log_generation")?;
            let mut statement =
                db.prepare_cached("SELECT kind, number, len, dead FROM packs WHERE damaged = 0")?;
            let rows = statement.query_map([], |row| {
                let id = db::pack_id(row.get(0)?, row.get(1)?);
                let generation = if let PackId::Log(_) = id { generation } else { 0 };
                Ok((
                    PackKey { id, generation, len: row.get::<_, i64>(2)? as u64 },
                    row.get::<_, i64>(3)? as u64,
                ))
            })?;
            Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
        })?;
        let embedded = rows.iter().filter(|(key, _)| matches!(key.id, PackId::Log(_)));
        let embedded_bytes: u64 = embedded.clone().map(|(key, _)| key.len).sum();
        let embedded = embedded.count() > EMBEDDED_MAX || embedded_bytes > EMBEDDED_BYTES_MAX;
        let rules = Rules { copy, thorough, embedded };
        let mut plan = Plan {
            removed: Vec::new(),
            copied: Vec::new(),
            lost: HashSet::new(),
            buried: Vec::new(),
            carried: Vec::new(),
            bytes: 0,
        };
        for (key, was_dead) in rows {
            let Some(pack) = store.pack(key)? else {
                // Another clean-up was faster; the epoch will say so.
                continue;
            };
            plan.place(store, mark, weigh(key, pack, mark, was_dead), rules)?;
        }
        plan.buried.sort_unstable();
        Ok(plan)
    }

    fn place(&mut self, store: &Store, mark: &Mark, candidate: Candidate, rules: Rules) -> Result<()> {
        let Candidate { key, pack, live, dead, dead_numbers, was_dead } = candidate;
        let embedded = matches!(key.id, PackId::Log(_));
        if live == 0 {
            self.bytes += key.len;
            self.removed.push(key.id);
            self.lost.extend(dead_numbers);
            return Ok(());
        }
        let worth = if embedded {
            rules.embedded || rules.thorough
        } else {
            dead > live || (rules.thorough && dead > 0)
        };
        if rules.copy && worth {
            self.bytes += dead;
            self.removed.push(key.id);
            for num in dead_numbers {
                if mark.holds(num) {
                    self.carried.push(num);
                } else {
                    self.lost.insert(num);
                }
            }
            self.copied.push(pack);
            return Ok(());
        }
        if dead_numbers.len() as u64 > was_dead {
            // Only those that can be found until now need a word.
            let found = store.read(|db| {
                let mut found = Vec::new();
                for num in dead_numbers {
                    let Some(entry) = pack.pack.table().get(num) else { continue };
                    if check::is_indexed(db, num, &entry.hash)? {
                        found.push(num);
                    }
                }
                Ok(found)
            })?;
            self.buried.extend(found);
        }
        Ok(())
    }

    /// Packs that go.
    pub(super) fn removed(&self) -> &[PackId] {
        &self.removed
    }

    pub(super) fn copies_any(&self) -> bool {
        !self.copied.is_empty()
    }

    /// About how many bytes of packs this frees.
    pub(super) fn bytes_freed(&self) -> u64 {
        self.bytes
    }

    /// How many objects are gone afterwards.
    pub(super) fn removed_objects(&self, mark: &Mark) -> u64 {
        let buried = self.buried.iter().filter(|num| !mark.live.contains(num)).count();
        (self.lost.len() + buried) as u64
    }

    /// Whether something that would go is live by now.
    pub(super) fn is_void(&self, mark: &Mark) -> bool {
        self.lost.iter().any(|num| mark.holds(*num))
    }

    /// The numbers to take out of the index though their bytes stay.
    pub(super) fn dead(&self, mark: &Mark) -> Vec<NumRun> {
        let mut numbers: Vec<Num> = self.buried.iter().chain(&self.carried).copied().collect();
        numbers.retain(|num| !mark.live.contains(num));
        numbers.sort_unstable();
        numbers.dedup();
        let mut runs: Vec<NumRun> = Vec::new();
        for num in numbers {
            match runs.last_mut() {
                Some((first, count)) if *first + *count == num.0 => *count += 1,
                _ => runs.push((num.0, 1)),
            }
        }
        runs
    }

    /// Writes what must stay of the packs that go.
    pub(super) fn copy(&self, store: &Store, mark: &Mark) -> Result<Vec<Copy>> {
        let mut copies = Vec::new();
        let mut copier: Option<Copier> = None;
        for pack in &self.copied {
            let current = match copier.take() {
                Some(current) => current,
                None => Copier::new(store)?,
            };
            let current = current.add(store, mark, pack)?;
            if current.builder.len() > COPY_MAX {
                copies.push(current.finish()?);
            } else {
                copier = Some(current);
            }
        }
        if let Some(last) = copier {
            copies.push(last.finish()?);
        }
        Ok(copies)
    }
}

fn weigh(key: PackKey, pack: OpenPack, mark: &Mark, was_dead: u64) -> Candidate {
    let table = pack.pack.table();
    let mut held = vec![0u64; table.frames().len()];
    let mut dead_numbers = Vec::new();
    for (num, entry) in table.iter() {
        if mark.holds(num) {
            // An empty object counts too.
            held[entry.frame as usize] += u64::from(entry.len).max(1);
        }
        if !mark.live.contains(&num) {
            dead_numbers.push(num);
        }
    }
    let (mut live, mut dead) = (0, 0);
    for (frame, held) in table.frames().iter().zip(held) {
        let raw = u64::from(frame.raw).max(1);
        let share = u64::from(frame.stored) * held.min(raw) / raw;
        live += share.max(u64::from(held > 0));
        dead += u64::from(frame.stored) - share.min(u64::from(frame.stored));
    }
    Candidate { key, live, dead, dead_numbers, pack, was_dead }
}

/// A pack that takes what stays of others.
struct Copier {
    builder: Builder,
    entries: Vec<(Num, Entry)>,
    groups: BTreeMap<u8, Pending>,
    compressor: Compressor,
}

struct Pending {
    kind: Kind,
    raw: Vec<u8>,
    members: Vec<(Num, Entry)>,
}

impl Copier {
    fn new(store: &Store) -> Result<Copier> {
        let builder = Builder::new(&store.packs_dir(), store.profile() != Profile::Off).into_file()?;
        Ok(Copier { builder, entries: Vec::new(), groups: BTreeMap::new(), compressor: Compressor::new() })
    }

    fn add(mut self, store: &Store, mark: &Mark, open: &OpenPack) -> Result<Copier> {
        let pack = &open.pack;
        let mut by_frame: BTreeMap<u32, (Vec<(Num, Entry)>, bool)> = BTreeMap::new();
        for (num, entry) in pack.table().iter() {
            let (members, whole) = by_frame.entry(entry.frame).or_insert_with(|| (Vec::new(), true));
            if mark.holds(num) {
                members.push((num, entry));
            } else {
                *whole = false;
            }
        }
        for (index, (members, whole)) in by_frame {
            let frame = pack.table().frames()[index as usize];
            if members.is_empty() {
                continue;
            }
            if whole {
                let stored = pack.stored(&frame)?;
                let copied = self.builder.append(
                    frame.kind,
                    frame.coding,
                    frame.raw as usize,
                    &stored,
                    frame.base,
                    frame.depth,
                )?;
                self.entries
                    .extend(members.into_iter().map(|(num, entry)| (num, Entry { frame: copied, ..entry })));
                continue;
            }
            for (num, entry) in members {
                let bytes = store.raw(num, Some(frame.kind), 0)?;
                self.regroup(frame.kind, num, entry, &bytes)?;
            }
        }
        Ok(self)
    }

    fn regroup(&mut self, kind: Kind, num: Num, entry: Entry, bytes: &[u8]) -> Result<()> {
        let limit = if kind == Kind::Node { NODE_GROUP } else { CHUNK_GROUP };
        let pending = self.groups.entry(kind as u8).or_insert_with(|| Pending {
            kind,
            raw: Vec::new(),
            members: Vec::new(),
        });
        if !pending.members.is_empty() && pending.raw.len() + bytes.len() > limit {
            flush(&mut self.builder, &mut self.entries, &mut self.compressor, pending)?;
        }
        pending.members.push((num, Entry { offset: pending.raw.len() as u32, ..entry }));
        pending.raw.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(mut self) -> Result<Copy> {
        for pending in self.groups.values_mut() {
            flush(&mut self.builder, &mut self.entries, &mut self.compressor, pending)?;
        }
        self.entries.sort_unstable_by_key(|(num, _)| *num);
        let finished = self.builder.finish(&self.entries)?;
        match finished.packed {
            Packed::File(id) => Ok(Copy { id, finished }),
            Packed::Memory(_) => Err(Error::damaged("A copy of packs was not written to a file.")),
        }
    }
}

fn flush(
    builder: &mut Builder,
    entries: &mut Vec<(Num, Entry)>,
    compressor: &mut Compressor,
    pending: &mut Pending,
) -> Result<()> {
    if pending.members.is_empty() {
        return Ok(());
    }
    let (coding, stored) = compressor.compress(&pending.raw)?;
    let frame = builder.append(pending.kind, coding, pending.raw.len(), &stored, Num(0), 0)?;
    entries.extend(pending.members.drain(..).map(|(num, entry)| (num, Entry { frame, ..entry })));
    pending.raw.clear();
    Ok(())
}
