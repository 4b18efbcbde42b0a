//! What a writer has: hash to number, and where its own objects are.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::pack::Entry;
use crate::{Code, Error, Hash, Num, Result, Store};

/// A hash is random already: its first bytes serve as they are.
#[derive(Default)]
pub(super) struct FirstBytes(u64);

impl Hasher for FirstBytes {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*first);
        }
    }
}

/// The answer for a hash.
pub(super) enum Claim {
    /// It is stored, or on its way.
    Known(Num),
    /// It is new: the caller writes it.
    New(Num),
}

/// A block of numbers in use: `first` is the number of `objects[at]`.
struct Block {
    first: u64,
    at: usize,
    count: usize,
}

#[derive(Default)]
pub(super) struct Index {
    by_hash: HashMap<Hash, Num, BuildHasherDefault<FirstBytes>>,
    /// Own objects; `frame` is `u32::MAX` until its group is written.
    objects: Vec<Entry>,
    blocks: Vec<Block>,
    free: std::ops::Range<u64>,
}

impl Index {
    pub(super) fn known(&self, hash: &Hash) -> Option<Num> {
        self.by_hash.get(hash).copied()
    }

    /// Remembers what the store had.
    pub(super) fn found(&mut self, hash: &Hash, num: Num) {
        self.by_hash.insert(*hash, num);
    }

    /// The number of this hash, a new one when it has none.
    pub(super) fn claim(&mut self, hash: &Hash, store: &Store) -> Result<Claim> {
        if let Some(num) = self.known(hash) {
            return Ok(Claim::Known(num));
        }
        if self.free.is_empty() {
            // Few for a small commit, so that numbers stay short; more as it grows.
            let count = (self.objects.len() as u64 * 2).clamp(64, 1 << 16);
            self.free = store.take_numbers(count)?;
            match self.blocks.last() {
                Some(last) if last.first + last.count as u64 == self.free.start => {}
                _ => self.blocks.push(Block { first: self.free.start, at: self.objects.len(), count: 0 }),
            }
        }
        let num = Num(self.free.start);
        self.free.start += 1;
        if let Some(block) = self.blocks.last_mut() {
            block.count += 1;
        }
        self.objects.push(Entry { hash: *hash, frame: u32::MAX, offset: 0, len: 0 });
        self.by_hash.insert(*hash, num);
        Ok(Claim::New(num))
    }

    fn position(&self, num: Num) -> Option<usize> {
        let block = self.blocks[..self.blocks.partition_point(|block| block.first <= num.0)].last()?;
        let index = num.0 - block.first;
        (index < block.count as u64).then(|| block.at + index as usize)
    }

    pub(super) fn is_own(&self, num: Num) -> bool {
        self.position(num).is_some()
    }

    pub(super) fn own(&self, num: Num) -> Option<Entry> {
        Some(self.objects[self.position(num)?])
    }

    /// Says where objects were written.
    pub(super) fn place(&mut self, frame: u32, members: &[(Num, u32, u32)]) {
        for &(num, offset, len) in members {
            if let Some(position) = self.position(num) {
                let entry = &mut self.objects[position];
                (entry.frame, entry.offset, entry.len) = (frame, offset, len);
            }
        }
    }

    /// All own objects by number; gives back the numbers that were not used.
    pub(super) fn finish(self, store: &Store) -> Result<Vec<(Num, Entry)>> {
        store.give_back_numbers(self.free);
        let numbers = self
            .blocks
            .iter()
            .flat_map(|block| (0..block.count as u64).map(|index| Num(block.first + index)));
        let entries: Vec<_> = numbers.zip(self.objects).collect();
        if entries.iter().any(|(_, entry)| entry.frame == u32::MAX) {
            return Err(Error::new(
                Code::Usage,
                "A batch of chunks was dropped before it was finished; nothing was stored.",
            ));
        }
        Ok(entries)
    }
}
