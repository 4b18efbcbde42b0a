//! Node ids: computed, never counted up, so that they are found again after a restart.
//!
//! A file of a tree is `(slot << 50) | inode key`. Slot 0 is for what stands above the trees: a few fixed
//! folders, and names whose id is taken from their hash.

use atoll_store::{Hash, Ino};

pub(super) const ROOT: u64 = atoll_fuse::abi::ROOT_ID;
pub(super) const BRANCHES: u64 = 2;
pub(super) const COMMITS: u64 = 3;
pub(super) const TAGS: u64 = 4;

const KEY: u64 = (1 << Ino::BITS) - 1;
/// Set in hashed ids of slot 0, so that they are none of the fixed ones.
const HASHED: u64 = 1 << (Ino::BITS - 1);

/// A node id taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    /// Above the trees.
    Above(u64),
    /// A file of the tree in a slot.
    InTree(u16, Ino),
}

/// Takes a node id apart; `None` when it is none.
pub(super) fn split(node: u64) -> Option<Node> {
    let slot = (node >> Ino::BITS) as u16;
    if slot == 0 {
        return (node != 0).then_some(Node::Above(node));
    }
    Ino::from_key(node & KEY).map(|ino| Node::InTree(slot, ino))
}

/// The id of a file in the tree of a slot.
pub(super) fn in_tree(slot: u16, ino: Ino) -> u64 {
    (u64::from(slot) << Ino::BITS) | ino.key()
}

/// The id of something above the trees; `what` says all that must not change under one id.
pub(super) fn hashed(what: &[u8]) -> u64 {
    let Hash(bytes) = Hash::of(what);
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("a hash is longer"));
    (number & (HASHED - 1)) | HASHED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_apart_as_they_were_put_together() {
        let ino = Ino::new(0x3_ffff, u32::MAX);
        assert_eq!(split(in_tree(8191, ino)), Some(Node::InTree(8191, ino)));
        assert_eq!(in_tree(8191, ino) >> 63, 0);
        assert_eq!(split(in_tree(1, Ino::ROOT)), Some(Node::InTree(1, Ino::ROOT)));
        assert_eq!(split(COMMITS), Some(Node::Above(COMMITS)));
        assert_eq!(split(0), None);
        assert_eq!(split(1 << 50), None, "no inode has the key 0");
    }

    #[test]
    fn hashed_ids_are_above_the_trees_and_none_of_the_fixed() {
        let id = hashed(b"branch main");
        assert_eq!(split(id), Some(Node::Above(id)));
        assert!(id > TAGS);
        assert_ne!(id, hashed(b"branch other"));
    }
}
