//! Reads objects: number to pack, pack to frame, frame to bytes.

use std::sync::Arc;

use bytes::Bytes;
use rusqlite::OptionalExtension;

use super::cache::{OPEN_FILE, OpenPack, PackKey};
use super::{Store, apply, db};
use crate::oplog::{Log, PackId};
use crate::pack::{Coding, Entry, Kind, MAX_DEPTH};
use crate::tree::Node;
use crate::{Code, Error, Hash, Num, Objects, Result};

impl Store {
    /// Bounds the memory for decoded groups and nodes (48 MiB unless set).
    pub fn set_cache_bytes(&self, bytes: usize) {
        self.inner.cache.set_limit(bytes);
    }

    /// Whether an object's bytes can be had at once, without reading and decompressing.
    pub fn is_cached(&self, num: Num) -> bool {
        let cache = &self.inner.cache;
        let Some(pack) = cache.run(num).and_then(|key| cache.packs.lock().get(&key)) else { return false };
        let Some(entry) = pack.pack.table().get(num) else { return false };
        cache.frames.lock().get(&(pack.serial, entry.frame)).is_some()
    }

    /// The group that an object is in: a number for the pack, and its place there. `None` when it would take
    /// reading the disk to say.
    pub fn group_of(&self, num: Num) -> Option<(u64, u32)> {
        let pack = self.inner.cache.run(num).and_then(|key| self.inner.cache.packs.lock().get(&key))?;
        Some((pack.serial, pack.pack.table().get(num)?.frame))
    }

    /// Brings the groups of chunks that come after this object's into the cache. A group that cannot be read is
    /// left out: whoever asks for it is told.
    pub fn read_ahead(&self, num: Num, groups: u32) -> Result<()> {
        let Some((pack, entry)) = self.locate(num)? else { return Ok(()) };
        let first = entry.frame as usize + 1;
        for (at, frame) in pack.pack.table().frames().iter().enumerate().skip(first).take(groups as usize) {
            let key = (pack.serial, at as u32);
            let wanted = frame.kind == Kind::Chunk && frame.coding != Coding::Delta;
            if !wanted || self.inner.cache.frames.lock().get(&key).is_some() {
                continue;
            }
            if let Ok(raw) = pack.pack.raw(frame, None) {
                let weight = raw.len() + 64;
                self.inner.cache.frames.lock().put(key, Bytes::from(raw), weight);
            }
        }
        Ok(())
    }

    /// Where an object is; `None` when no pack has its number.
    pub(super) fn locate(&self, num: Num) -> Result<Option<(OpenPack, Entry)>> {
        if let Some(key) = self.inner.cache.run(num)
            && let Some(pack) = self.pack(key)?
            && let Some(entry) = pack.pack.table().get(num)
        {
            return Ok(Some((pack, entry)));
        }
        // gc can move an object between the look-up and the opening: a pack goes only after the database says
        // where its objects went, so looking again finds them.
        for _ in 0..8 {
            let Some((first, count, key)) = self.find_run(num)? else { return Ok(None) };
            if let Some(pack) = self.pack(key)? {
                self.inner.cache.put_run(first, count, key);
                return Ok(pack.pack.table().get(num).map(|entry| (pack, entry)));
            }
        }
        Err(Error::damaged(format!(
            "The pack with object {} is missing from the store; run `atoll doctor` to list what is damaged.",
            num.0
        )))
    }

    fn find_run(&self, num: Num) -> Result<Option<(u64, u32, PackKey)>> {
        let row = self.read(|db| {
            let mut statement = db.prepare_cached(
                "SELECT first, count, kind, number, len, (SELECT value FROM meta WHERE key = 'log_generation'),
                     (SELECT value FROM meta WHERE key = 'gc_epoch')
                 FROM runs JOIN packs USING (pack) WHERE first <= ?1 ORDER BY first DESC LIMIT 1",
            )?;
            let row = statement.query_row([num.0 as i64], |row| {
                let id = db::pack_id(row.get(2)?, row.get(3)?);
                let generation = if let PackId::Log(_) = id { row.get::<_, i64>(5)? as u64 } else { 0 };
                let key = PackKey { id, generation, len: row.get::<_, i64>(4)? as u64 };
                self.inner.cache.at_epoch(row.get::<_, i64>(6)? as u64);
                Ok((row.get::<_, i64>(0)? as u64, row.get::<_, u32>(1)?, key))
            });
            Ok(row.optional()?)
        })?;
        Ok(row.filter(|(first, count, _)| num.0 - first < u64::from(*count)))
    }

    /// Opens a pack; `None` when it is not there any more.
    pub(super) fn pack(&self, key: PackKey) -> Result<Option<OpenPack>> {
        if let Some(pack) = self.inner.cache.packs.lock().get(&key) {
            return Ok(Some(pack));
        }
        let opened = match key.id {
            PackId::File(id) => apply::open_file(&self.packs_dir(), id),
            PackId::Log(offset) => {
                let mut log = Log::open(&self.log_path())?;
                // While gc replaces the log, the one that the database means has this name.
                if log.generation() != key.generation
                    && let Ok(old) = Log::open(&self.old_log_path())
                {
                    log = old;
                }
                if log.generation() != key.generation {
                    self.inner.cache.forget_pack(key);
                    return Ok(None);
                }
                apply::open_embedded(&log, offset, key.len)
            }
        };
        match opened {
            Ok(pack) => {
                let pack = OpenPack::new(pack);
                let files = if let PackId::File(_) = key.id { OPEN_FILE } else { 0 };
                let weight = pack.pack.table().weight() + files;
                self.inner.cache.packs.lock().put(key, pack.clone(), weight);
                Ok(Some(pack))
            }
            Err(error) if error.code == Code::NotFound => {
                self.inner.cache.forget_pack(key);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether an object has this hash. One whose pack is damaged or missing has not: then what it held is stored
    /// again, and new commits are whole.
    pub(super) fn is_stored_as(&self, num: Num, hash: &Hash) -> Result<bool> {
        match self.locate(num) {
            Ok(found) => Ok(found.is_some_and(|(_, entry)| entry.hash == *hash)),
            Err(error) if error.code == Code::Damaged => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn missing(num: Num) -> Error {
        Error::damaged(format!(
            "Object {} is missing from the store; run `atoll doctor` to list what is damaged.",
            num.0
        ))
    }

    /// An object's raw bytes.
    pub(super) fn raw(&self, num: Num, kind: Option<Kind>, depth: u8) -> Result<Bytes> {
        let (pack, entry) = self.locate(num)?.ok_or_else(|| Self::missing(num))?;
        let frame = pack.pack.table().frames()[entry.frame as usize];
        if kind.is_some_and(|kind| kind != frame.kind) {
            return Err(Error::damaged(format!(
                "Object {} ({}) is not of the kind that names it.",
                num.0, entry.hash
            )));
        }
        let key = (pack.serial, entry.frame);
        let cached = self.inner.cache.frames.lock().get(&key);
        let raw = match cached {
            Some(raw) => raw,
            None => {
                let base = match frame.coding {
                    Coding::Delta if depth > 2 * MAX_DEPTH => {
                        return Err(Error::damaged(format!("Object {} stands on too many deltas.", num.0)));
                    }
                    Coding::Delta => Some(self.raw(frame.base, Some(frame.kind), depth + 1)?),
                    _ => None,
                };
                let raw = pack.pack.raw(&frame, base.as_deref()).map_err(|error| Error {
                    message: format!("Object {} cannot be read. {}", entry.hash, error.message),
                    ..error
                })?;
                let raw = Bytes::from(raw);
                self.inner.cache.frames.lock().put(key, raw.clone(), raw.len() + 64);
                raw
            }
        };
        Ok(raw.slice(entry.offset as usize..(entry.offset + entry.len) as usize))
    }

    /// A chunk of a damaged group, if its own bytes can still be had: its name proves them.
    fn salvaged(&self, num: Num) -> Option<Bytes> {
        let (pack, entry) = self.locate(num).ok()??;
        let raw = pack.pack.salvage(&pack.pack.table().frames()[entry.frame as usize]);
        salvaged_from(&raw, &entry).map(Bytes::copy_from_slice)
    }

    /// A node's stored form with the number of deltas it stands on; `None` when no pack has it.
    pub(super) fn stored_node(&self, num: Num) -> Result<Option<(Bytes, u8)>> {
        let Some((pack, entry)) = self.locate(num)? else { return Ok(None) };
        let frame = pack.pack.table().frames()[entry.frame as usize];
        Ok(Some((self.raw(num, Some(Kind::Node), 0)?, frame.depth)))
    }
}

/// A chunk's bytes in what was salvaged of its group, if they are right.
pub(super) fn salvaged_from<'a>(raw: &'a [u8], entry: &Entry) -> Option<&'a [u8]> {
    let bytes = raw.get(entry.offset as usize..(entry.offset + entry.len) as usize)?;
    (Hash::of(bytes) == entry.hash).then_some(bytes)
}

impl Objects for Store {
    fn node(&self, num: Num) -> Result<Arc<Node>> {
        if let Some(node) = self.inner.cache.nodes.lock().get(&num) {
            return Ok(node);
        }
        let raw = self.raw(num, Some(Kind::Node), 0)?;
        let node = Arc::new(Node::from_stored(&raw)?);
        self.inner.cache.nodes.lock().put(num, Arc::clone(&node), raw.len() * 3);
        Ok(node)
    }

    fn chunk(&self, num: Num) -> Result<Bytes> {
        match self.raw(num, Some(Kind::Chunk), 0) {
            Err(error) if error.code == Code::Damaged => self.salvaged(num).ok_or(error),
            read => read,
        }
    }

    fn hash(&self, num: Num) -> Result<Hash> {
        let (_, entry) = self.locate(num)?.ok_or_else(|| Self::missing(num))?;
        Ok(entry.hash)
    }

    fn find(&self, hash: &Hash) -> Result<Option<Num>> {
        let numbers = self.read(|db| {
            let mut statement = db.prepare_cached("SELECT num FROM hashes WHERE prefix = ?1 ORDER BY num")?;
            let rows =
                statement.query_map([apply::prefix(hash)], |row| Ok(Num(row.get::<_, i64>(0)? as u64)))?;
            Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?)
        })?;
        for num in numbers {
            if self.is_stored_as(num, hash)? {
                return Ok(Some(num));
            }
        }
        Ok(None)
    }
}
