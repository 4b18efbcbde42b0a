//! The small numbers and hashes that everything is named by.

use std::fmt;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::{Code, Error, Result};

/// A BLAKE3 hash: of a chunk's bytes, of a node's canonical form, or of a commit's record.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Hash(*blake3::hash(bytes).as_bytes())
    }

    /// The name of the node with this canonical form. Nodes and commits are hashed in domains of their own, so
    /// that no file's contents can have the name of one.
    pub fn of_node(canonical: &[u8]) -> Self {
        static DOMAIN: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key("atoll 1 tree node"));
        Hash(*DOMAIN.clone().update(canonical).finalize().as_bytes())
    }

    /// The name of the commit with this record.
    pub fn of_commit(record: &[u8]) -> Self {
        static DOMAIN: LazyLock<blake3::Hasher> =
            LazyLock::new(|| blake3::Hasher::new_derive_key("atoll 1 commit"));
        Hash(*DOMAIN.clone().update(record).finalize().as_bytes())
    }

    /// All 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        blake3::Hash::from_bytes(self.0).to_hex().to_string()
    }

    /// From exactly 64 hexadecimal digits.
    ///
    /// # Errors
    /// `Usage` when it is anything else.
    pub fn from_hex(text: &str) -> Result<Self> {
        blake3::Hash::from_hex(text)
            .map(|hash| Hash(*hash.as_bytes()))
            .map_err(|_| Error::new(Code::Usage, format!("'{text}' is not a hash of 64 hexadecimal digits.")))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex()[..12])
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// The store-local number of a chunk or node. Numbers are never used twice. Two numbers can stand for one
/// hash (two processes stored the same bytes at the same time), so equal numbers mean equal objects, but
/// different numbers must be compared by hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Num(pub u64);

/// A file's identity for diff and merge: random, given when the file is first seen, kept for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BirthId(pub u64);

/// An inode number as the tree's keys have it: 50 bits, `(18 random bits << 32) | low 32 bits`.
///
/// The low 32 bits are the ones the file already had (git compares just these), the random bits belong to
/// the import or workspace that brought the file. Neighbours in a folder stay neighbours in the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ino(u64);

impl Ino {
    /// The root folder of every tree.
    pub const ROOT: Ino = Ino(1);
    /// How many bits a key has.
    pub const BITS: u32 = 50;

    /// From the 18 random bits and the low 32.
    pub fn new(random: u32, low: u32) -> Self {
        Ino((u64::from(random & 0x3_ffff) << 32) | u64::from(low))
    }

    /// From a key of at most 50 bits; `None` when it is larger or zero.
    pub fn from_key(key: u64) -> Option<Self> {
        (key != 0 && key < 1 << Self::BITS).then_some(Ino(key))
    }

    /// The 50-bit key.
    pub fn key(self) -> u64 {
        self.0
    }

    /// The low 32 bits: what the host's inode number ended in.
    pub fn low(self) -> u32 {
        self.0 as u32
    }

    /// The 18 random bits.
    pub fn random(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The number that programs see: `(18 random << 44) | (low 12 bits << 32) | low 32 bits`. Neighbours
    /// stay distinct as doubles (JavaScript), the top two bits are zero (overlayfs' `xino`).
    pub fn shown(self) -> u64 {
        let low = u64::from(self.low());
        (u64::from(self.random()) << 44) | ((low & 0xfff) << 32) | low
    }

    /// The key of a number that a program saw; `None` when no file can have it.
    pub fn from_shown(shown: u64) -> Option<Self> {
        let low = shown as u32;
        if shown >> 62 != 0 || (shown >> 32) & 0xfff != u64::from(low & 0xfff) {
            return None;
        }
        Self::from_key(((shown >> 44) << 32) | u64::from(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shown_and_key_are_one_number(random in 0u32..1 << 18, low in 1u32..) {
            let ino = Ino::new(random, low);
            prop_assert_eq!(Ino::from_shown(ino.shown()), Some(ino));
            prop_assert_eq!(Ino::from_key(ino.key()), Some(ino));
            prop_assert_eq!(ino.shown() as u32, low);
            prop_assert_eq!(ino.shown() >> 62, 0);
        }
    }

    #[test]
    fn neighbours_are_distinct_as_doubles() {
        let seen: std::collections::HashSet<u64> =
            (0..1_000_000u32).map(|i| (Ino::new(0x3_ffff, 7_000_000 + i).shown() as f64).to_bits()).collect();
        assert_eq!(seen.len(), 1_000_000);
    }
}
