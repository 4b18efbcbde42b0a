//! Maps keyed by inode numbers. The standard hasher guards against chosen keys at a price that an import of many
//! unchanged files would feel; whoever chooses inode numbers here can at worst slow down their own import.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map from inode numbers.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;
/// A set of inode numbers.
pub type FastSet<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

/// Multiplies: neighbours in a folder are far apart in the table.
#[derive(Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
