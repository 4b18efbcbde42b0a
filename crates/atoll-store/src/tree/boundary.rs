//! Where one node ends and the next begins: decided by the items alone, so that the same map always has the
//! same nodes.
//!
//! After an item that brings a node's size from `a` to `b` bytes, the node ends
//! - never while `b` is under 2 KiB, always when it is 32 KiB or more;
//! - else when the item's hash (XXH3 with 64 bits of its key, seeded with the node's level) is less than
//!   `min(b⁴ - a⁴, 2⁵² - 1) · 2¹²`.
//!
//! The chance to end grows with the third power of the size (a Weibull distribution), which keeps sizes even:
//! 7.4 KiB on average, 19 of 20 between 3 and 11 KiB. An item's size is the length of its key, and of its value in
//! memory (36 for a chunk, 32 for a child), and 4.

use xxhash_rust::xxh3::xxh3_64_with_seed;

const MIN: u64 = 2 << 10;
const MAX: u64 = 32 << 10;

/// The state of the rule within one node.
pub(crate) struct Boundary {
    level: u8,
    size: u64,
}

impl Boundary {
    /// At the start of a node.
    pub fn new(level: u8) -> Self {
        Boundary { level, size: 0 }
    }

    /// Takes the next item; true when the node ends after it (and the next one begins).
    pub fn ends_after(&mut self, key: &[u8], weight: usize) -> bool {
        let before = self.size;
        self.size += (key.len() + weight + 4) as u64;
        let ends = self.size >= MIN
            && (self.size >= MAX
                || xxh3_64_with_seed(key, u64::from(self.level)) < threshold(before, self.size));
        if ends {
            self.size = 0;
        }
        ends
    }
}

/// Sizes are under 2¹⁵ here, so the fourth powers fit.
fn threshold(before: u64, after: u64) -> u64 {
    (after.pow(4) - before.pow(4)).min((1 << 52) - 1) << 12
}
