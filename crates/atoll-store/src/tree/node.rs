//! A node: its canonical form (with hashes, the same in every store; its BLAKE3 hash is the node's name), its
//! stored form (with store-local numbers), and the decoded form that everything else works on.

use crate::{Num, Objects, Result};

/// A decoded node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {}

impl Node {
    /// The canonical form; asks `objects` for the hashes of the children and chunks it names.
    pub fn canonical(&self, objects: &dyn Objects) -> Result<Vec<u8>> {
        let _ = objects;
        todo!()
    }

    /// The stored form, before compression.
    pub fn stored(&self) -> Vec<u8> {
        todo!()
    }

    /// From the stored form.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not a node.
    pub fn from_stored(bytes: &[u8]) -> Result<Node> {
        let _ = bytes;
        todo!()
    }

    /// The child nodes it names (empty for a leaf).
    pub fn children(&self) -> Vec<Num> {
        todo!()
    }

    /// The chunks it names (empty for an inner node).
    pub fn chunks(&self) -> Vec<Num> {
        todo!()
    }
}
