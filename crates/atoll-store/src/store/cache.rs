//! Bounded caches of what was read: open packs with their tables, decoded groups, decoded nodes.

use std::collections::BTreeMap;
use std::hash::Hash as StdHash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use lru::LruCache;
use parking_lot::{Mutex, RwLock};

use crate::Num;
use crate::oplog::PackId;
use crate::pack::PackFile;
use crate::tree::Node;

/// A least-recently-used cache bounded by the weight of what is in it.
pub(super) struct Weighted<K: StdHash + Eq, V> {
    entries: LruCache<K, (V, usize)>,
    weight: usize,
    limit: usize,
}

impl<K: StdHash + Eq, V: Clone> Weighted<K, V> {
    fn new(limit: usize) -> Self {
        Weighted { entries: LruCache::unbounded(), weight: 0, limit }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<V> {
        self.entries.get(key).map(|(value, _)| value.clone())
    }

    pub(super) fn put(&mut self, key: K, value: V, weight: usize) {
        if let Some((_, old)) = self.entries.put(key, (value, weight)) {
            self.weight -= old;
        }
        self.weight += weight;
        self.shrink();
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some((_, weight)) = self.entries.pop(key) {
            self.weight -= weight;
        }
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.weight = 0;
    }

    fn shrink(&mut self) {
        // The newest entry stays, however heavy it is.
        while self.weight > self.limit && self.entries.len() > 1 {
            if let Some((_, (_, weight))) = self.entries.pop_lru() {
                self.weight -= weight;
            }
        }
    }

    fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.shrink();
    }
}

/// Names a pack across rewrites of the log, whose offsets are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PackKey {
    pub(super) id: PackId,
    /// The log's generation for a pack in the log, else 0.
    pub(super) generation: u64,
    pub(super) len: u64,
}

/// An open pack with a number of its own, which the groups decoded from it are kept under.
#[derive(Clone)]
pub(super) struct OpenPack {
    pub(super) pack: Arc<PackFile>,
    pub(super) serial: u64,
}

impl OpenPack {
    pub(super) fn new(pack: PackFile) -> OpenPack {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        OpenPack { pack: Arc::new(pack), serial: SERIAL.fetch_add(1, Ordering::Relaxed) }
    }
}

/// The caches of one open store.
pub(super) struct Caches {
    pub(super) packs: Mutex<Weighted<PackKey, OpenPack>>,
    pub(super) frames: Mutex<Weighted<(u64, u32), Bytes>>,
    pub(super) nodes: Mutex<Weighted<Num, Arc<Node>>>,
    /// The first number of a run, to its length and pack.
    pub(super) runs: RwLock<BTreeMap<u64, (u32, PackKey)>>,
    /// The gc epoch that `packs` and `runs` are of.
    epoch: AtomicU64,
}

/// An open file is worth about this many bytes of table: so a few hundred stay open.
pub(super) const OPEN_FILE: usize = 128 << 10;

impl Default for Caches {
    fn default() -> Self {
        Caches {
            packs: Mutex::new(Weighted::new(48 << 20)),
            frames: Mutex::new(Weighted::new(24 << 20)),
            nodes: Mutex::new(Weighted::new(24 << 20)),
            runs: RwLock::default(),
            epoch: AtomicU64::new(0),
        }
    }
}

impl Caches {
    /// Sets how many bytes of decoded groups and of nodes are kept.
    pub(super) fn set_limit(&self, bytes: usize) {
        self.frames.lock().set_limit(bytes / 2);
        self.nodes.lock().set_limit(bytes / 2);
    }

    /// Closes packs that gc may have removed: an open file keeps its space. What was decoded stays right for ever.
    pub(super) fn at_epoch(&self, epoch: u64) {
        if self.epoch.swap(epoch, Ordering::SeqCst) != epoch {
            self.runs.write().clear();
            self.packs.lock().clear();
        }
    }

    pub(super) fn run(&self, num: Num) -> Option<PackKey> {
        let runs = self.runs.read();
        let (first, (count, pack)) = runs.range(..=num.0).next_back()?;
        (num.0 - first < u64::from(*count)).then_some(*pack)
    }

    pub(super) fn put_run(&self, first: u64, count: u32, pack: PackKey) {
        let mut runs = self.runs.write();
        if runs.len() > 100_000 {
            runs.clear();
        }
        runs.insert(first, (count, pack));
    }

    /// Forgets where a pack was thought to be.
    pub(super) fn forget_pack(&self, key: PackKey) {
        self.runs.write().retain(|_, (_, pack)| *pack != key);
        self.packs.lock().remove(&key);
    }
}
