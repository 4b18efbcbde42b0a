//! How the files of an overlay's lower folder are related to the base tree's inodes.

use atoll_store::Ino;
use atoll_store::store::Slot;

/// The file handle that overlayfs wrote into `trusted.overlay.origin` when it copied a file up: what the lower's
/// own file system calls the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// The handle's type (`FILEID_*`).
    pub kind: u8,
    /// Its bytes, in the host's byte order.
    pub bytes: Vec<u8>,
}

/// Relates the lower's files to the base tree.
pub trait LowerIds: Sync {
    /// The inode of the base tree that a handle names; `None` when it is not of this lower.
    fn key(&self, handle: &Handle) -> Option<Ino>;

    /// The inode number that the lower shows for an inode of the base tree.
    fn st_ino(&self, key: Ino) -> Option<u64>;
}

/// The history mount's: a handle holds the node id `(slot << 50) | key` and the slot's generation.
#[derive(Debug, Clone, Copy)]
pub struct HistoryIds {
    /// The base commit's slot.
    pub slot: Slot,
}

/// FUSE's handles: node id (upper half first) and generation; then, with a parent, the same of the folder.
const FILEID_INO64_GEN: u8 = 0x81;
const FILEID_INO64_GEN_PARENT: u8 = 0x82;

impl LowerIds for HistoryIds {
    fn key(&self, handle: &Handle) -> Option<Ino> {
        if !matches!(handle.kind, FILEID_INO64_GEN | FILEID_INO64_GEN_PARENT) {
            return None;
        }
        let word = |at: usize| Some(u32::from_ne_bytes(handle.bytes.get(at..at + 4)?.try_into().ok()?));
        let node = (u64::from(word(0)?) << 32) | u64::from(word(4)?);
        let (slot, key) = (node >> Ino::BITS, node & ((1 << Ino::BITS) - 1));
        if slot != u64::from(self.slot.number) || word(8)? != self.slot.generation {
            return None;
        }
        Ino::from_key(key)
    }

    fn st_ino(&self, key: Ino) -> Option<u64> {
        Some(key.shown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(node: u64, generation: u32) -> Handle {
        let words = [(node >> 32) as u32, node as u32, generation];
        Handle { kind: FILEID_INO64_GEN, bytes: words.iter().flat_map(|word| word.to_ne_bytes()).collect() }
    }

    #[test]
    fn a_handle_names_its_own_slot_and_generation_only() {
        let ids = HistoryIds { slot: Slot { number: 5, generation: 2 } };
        let key = Ino::new(0x3_ffff, 77);
        let node = (5 << 50) | key.key();
        assert_eq!(ids.key(&handle(node, 2)), Some(key));
        assert_eq!(ids.key(&handle(node, 3)), None);
        assert_eq!(ids.key(&handle((6 << 50) | key.key(), 2)), None);
        assert_eq!(ids.key(&Handle { kind: 1, ..handle(node, 2) }), None);
        assert_eq!(ids.key(&Handle { kind: FILEID_INO64_GEN, bytes: vec![0; 7] }), None);
    }
}
