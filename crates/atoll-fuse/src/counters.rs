//! How many requests of each kind were answered.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::abi;

const KINDS: usize = 64;

/// One counter for each kind of request; shared by the threads of a session.
pub struct Counters {
    kinds: [AtomicU64; KINDS],
}

impl Default for Counters {
    fn default() -> Self {
        Counters { kinds: [const { AtomicU64::new(0) }; KINDS] }
    }
}

impl Counters {
    /// Counts one request. Kinds that are not known count as kind 0.
    pub fn count(&self, opcode: u32) {
        let index = if (opcode as usize) < KINDS { opcode as usize } else { 0 };
        self.kinds[index].fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests of one kind there were.
    pub fn of(&self, opcode: u32) -> u64 {
        self.kinds.get(opcode as usize).map_or(0, |kind| kind.load(Ordering::Relaxed))
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.load(Ordering::Relaxed)).sum()
    }

    /// The kinds that occurred, by their names in the protocol: `LOOKUP`, `READ`, …
    pub fn by_kind(&self) -> Vec<(String, u64)> {
        (0..KINDS as u32)
            .filter_map(|opcode| {
                let count = self.of(opcode);
                (count > 0).then(|| (abi::op_name(opcode).unwrap_or("OTHER").to_owned(), count))
            })
            .collect()
    }
}
