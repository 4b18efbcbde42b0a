//! Takes new objects for one operation: finds what is stored already, groups, compresses, and writes a pack.

mod batch;
mod filter;
mod index;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;

pub use batch::Batch;
use batch::Group;
use filter::Filter;
use index::{Claim, Index};

use super::{Profile, Store, db};
use crate::pack::{
    self, Builder, CHUNK_GROUP, Coding, Compressor, Entry, Finished, Kind, MAX_DEPTH, MAX_RAW, NODE_GROUP,
};
use crate::tree::Node;
use crate::{Code, Error, Hash, Num, Objects, Result, Sink};

/// Takes new objects for one operation; they become part of the store with [`Store::publish`], and are gone
/// when the writer is dropped before. Threads may share it; each takes its own [`Batch`] for chunks.
pub struct Writer {
    store: Store,
    /// The gc epoch when it began: what it found then is still there if the epoch is.
    pub(super) epoch: u64,
    index: Mutex<Index>,
    filter: Filter,
    pack: Mutex<Builder>,
    /// Nodes and loose chunks that wait for their group to fill.
    nodes: Mutex<Group>,
    loose: Mutex<Group>,
    batches: Mutex<BTreeMap<u64, Arc<Mutex<Group>>>>,
    next_batch: AtomicU64,
    /// What its new nodes name, or stand on as deltas, and others have written.
    external: Mutex<HashSet<Num>>,
}

/// A finished writer, as `publish` takes it.
pub(super) struct Written {
    pub(super) finished: Option<Finished>,
    pub(super) external: HashSet<Num>,
    pub(super) epoch: u64,
}

impl Store {
    /// Starts collecting objects for one operation.
    pub fn writer(&self) -> Result<Writer> {
        let epoch = self.read(|db| db::meta(db, "gc_epoch"))?;
        Ok(Writer {
            store: self.clone(),
            epoch,
            index: Mutex::default(),
            filter: Filter::new(self)?,
            pack: Mutex::new(Builder::new(&self.packs_dir(), self.inner.profile != Profile::Off)),
            nodes: Mutex::new(Group::new(Kind::Node)),
            loose: Mutex::new(Group::new(Kind::Chunk)),
            batches: Mutex::default(),
            next_batch: AtomicU64::new(0),
            external: Mutex::default(),
        })
    }
}

impl Writer {
    /// A new batch of chunks.
    pub fn batch(&self) -> Batch<'_> {
        let key = self.next_batch.fetch_add(1, Ordering::Relaxed);
        let group = Arc::new(Mutex::new(Group::new(Kind::Chunk)));
        self.batches.lock().insert(key, Arc::clone(&group));
        Batch::new(self, key, group)
    }

    /// The number of a chunk whose bytes the caller does not have: good for comparing trees. With one that nobody has
    /// stored, the writer cannot be published.
    pub fn put_absent(&self, hash: &Hash) -> Result<Num> {
        match self.claim(hash)? {
            Claim::Known(num) | Claim::New(num) => Ok(num),
        }
    }

    /// The store that it writes to.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The number for a hash: an old one, or a new one for the caller to fill.
    fn claim(&self, hash: &Hash) -> Result<Claim> {
        if self.filter.is_empty() {
            return self.index.lock().claim(hash, &self.store);
        }
        if let Some(num) = self.index.lock().known(hash) {
            return Ok(Claim::Known(num));
        }
        if let Some(num) = self.filter.find(&self.store, hash)? {
            self.index.lock().found(hash, num);
            return Ok(Claim::Known(num));
        }
        self.index.lock().claim(hash, &self.store)
    }

    /// Compresses a group and appends it to the pack.
    fn flush(&self, group: &mut Group) -> Result<()> {
        if group.members.is_empty() {
            return Ok(());
        }
        let compressor = group.compressor.get_or_insert_with(Compressor::new);
        let (coding, stored) = compressor.compress(&group.raw)?;
        let frame = self.pack.lock().append(group.kind, coding, group.raw.len(), &stored, Num(0), 0)?;
        self.index.lock().place(frame, &group.members);
        group.raw.clear();
        group.members.clear();
        Ok(())
    }

    /// Adds an object to a group; flushes what must go first.
    fn add(&self, group: &mut Group, num: Num, bytes: &[u8], limit: usize) -> Result<()> {
        if bytes.len() >= limit / 2 {
            let compressor = group.compressor.get_or_insert_with(Compressor::new);
            let (coding, stored) = compressor.compress(bytes)?;
            let frame = self.pack.lock().append(group.kind, coding, bytes.len(), &stored, Num(0), 0)?;
            self.index.lock().place(frame, &[(num, 0, bytes.len() as u32)]);
            return Ok(());
        }
        if group.raw.len() + bytes.len() > limit {
            self.flush(group)?;
        }
        group.members.push((num, group.raw.len() as u32, bytes.len() as u32));
        group.raw.extend_from_slice(bytes);
        Ok(())
    }

    fn put_chunk_in(&self, group: &mut Group, bytes: &[u8]) -> Result<Num> {
        if bytes.len() > MAX_RAW as usize {
            return Err(Error::new(
                Code::Usage,
                format!("A chunk of {} bytes is longer than the {MAX_RAW} that a pack takes.", bytes.len()),
            ));
        }
        match self.claim(&Hash::of(bytes))? {
            Claim::Known(num) => Ok(num),
            Claim::New(num) => {
                self.add(group, num, bytes, CHUNK_GROUP)?;
                Ok(num)
            }
        }
    }

    /// Tries to store a node as a delta on the one it replaces; says whether it did.
    fn put_delta(&self, num: Num, stored: &[u8], replaces: Num) -> Result<bool> {
        let Some((base, depth)) = self.stored_node(replaces)? else { return Ok(false) };
        if depth >= MAX_DEPTH {
            return Ok(false);
        }
        let delta = pack::delta(&base, stored)?;
        // What it would take in a group is about what it takes alone.
        if delta.len() > stored.len() / 8 && delta.len() >= Compressor::new().compress(stored)?.1.len() {
            return Ok(false);
        }
        let frame =
            self.pack.lock().append(Kind::Node, Coding::Delta, stored.len(), &delta, replaces, depth + 1)?;
        let mut index = self.index.lock();
        index.place(frame, &[(num, 0, stored.len() as u32)]);
        if !index.is_own(replaces) {
            self.external.lock().insert(replaces);
        }
        Ok(true)
    }

    /// A node's stored form and how many deltas it stands on.
    fn stored_node(&self, num: Num) -> Result<Option<(Bytes, u8)>> {
        let Some(entry) = self.index.lock().own(num) else { return self.store.stored_node(num) };
        if let Some(raw) = self.nodes.lock().get(num) {
            return Ok(Some((raw, 0)));
        }
        // It can have been flushed in between.
        let entry = if entry.frame == u32::MAX { self.index.lock().own(num).unwrap_or(entry) } else { entry };
        if entry.frame == u32::MAX {
            return Ok(None);
        }
        let (raw, depth) = self.own_raw(entry)?;
        Ok(Some((raw, depth)))
    }

    /// An own object's bytes, from the pack.
    fn own_raw(&self, entry: Entry) -> Result<(Bytes, u8)> {
        let frame = self.pack.lock().frame(entry.frame);
        let base = match frame.coding {
            Coding::Delta => self.stored_node(frame.base)?.map(|(raw, _)| raw),
            _ => None,
        };
        let raw = Bytes::from(self.pack.lock().raw(entry.frame, base.as_deref())?);
        Ok((raw.slice(entry.offset as usize..(entry.offset + entry.len) as usize), frame.depth))
    }

    fn own_chunk(&self, num: Num) -> Result<Bytes> {
        if let Some(bytes) = self.loose.lock().get(num) {
            return Ok(bytes);
        }
        let batches: Vec<_> = self.batches.lock().values().cloned().collect();
        for batch in batches {
            if let Some(bytes) = batch.lock().get(num) {
                return Ok(bytes);
            }
        }
        let entry = self.index.lock().own(num);
        match entry {
            Some(entry) if entry.frame != u32::MAX => Ok(self.own_raw(entry)?.0),
            _ => Err(Error::new(
                Code::Usage,
                "A chunk was read whose batch was dropped before it was finished.",
            )),
        }
    }

    /// Writes what is left and completes the pack.
    pub(super) fn finish(mut self) -> Result<Written> {
        let mut nodes = std::mem::replace(self.nodes.get_mut(), Group::new(Kind::Node));
        self.flush(&mut nodes)?;
        let mut loose = std::mem::replace(self.loose.get_mut(), Group::new(Kind::Chunk));
        self.flush(&mut loose)?;
        let Writer { store, epoch, index, pack, external, .. } = self;
        let entries = index.into_inner().finish(&store)?;
        let pack = pack.into_inner();
        let finished = if pack.is_empty() { None } else { Some(pack.finish(&entries)?) };
        Ok(Written { finished, external: external.into_inner(), epoch })
    }

    /// The hash of a tree that is to be committed.
    pub(super) fn root_hash(&self, root: Num) -> Result<Hash> {
        if !self.index.lock().is_own(root) {
            self.external.lock().insert(root);
        }
        self.hash(root)
    }
}

impl Objects for Writer {
    fn node(&self, num: Num) -> Result<Arc<Node>> {
        if !self.index.lock().is_own(num) {
            return self.store.node(num);
        }
        if let Some(node) = self.store.inner.cache.nodes.lock().get(&num) {
            return Ok(node);
        }
        let (raw, _) = self
            .stored_node(num)?
            .ok_or_else(|| Error::damaged(format!("Object {} was not written as a node.", num.0)))?;
        Ok(Arc::new(Node::from_stored(&raw)?))
    }

    fn chunk(&self, num: Num) -> Result<Bytes> {
        if self.index.lock().is_own(num) { self.own_chunk(num) } else { self.store.chunk(num) }
    }

    fn hash(&self, num: Num) -> Result<Hash> {
        let own = self.index.lock().own(num);
        own.map_or_else(|| self.store.hash(num), |entry| Ok(entry.hash))
    }

    fn find(&self, hash: &Hash) -> Result<Option<Num>> {
        let known = self.index.lock().known(hash);
        known.map_or_else(|| self.filter.find(&self.store, hash), |num| Ok(Some(num)))
    }
}

impl Sink for Writer {
    fn put_node(&self, node: Node, replaces: Option<Num>) -> Result<Num> {
        let canonical = node.canonical(self)?;
        let num = match self.claim(&Hash::of_node(&canonical))? {
            Claim::Known(num) => return Ok(num),
            Claim::New(num) => num,
        };
        {
            let index = self.index.lock();
            let mut external = self.external.lock();
            external
                .extend(node.children().into_iter().chain(node.chunks()).filter(|num| !index.is_own(*num)));
        }
        let stored = node.stored();
        let delta = match replaces {
            Some(base) if base != num => self.put_delta(num, &stored, base)?,
            _ => false,
        };
        if !delta {
            let mut group = self.nodes.lock();
            self.add(&mut group, num, &stored, NODE_GROUP)?;
        }
        // Its number is never used again, so the node may stay even when the writer is dropped.
        self.store.inner.cache.nodes.lock().put(num, Arc::new(node), stored.len() * 3);
        Ok(num)
    }

    fn put_chunk(&self, bytes: &[u8]) -> Result<Num> {
        self.put_chunk_in(&mut self.loose.lock(), bytes)
    }
}
