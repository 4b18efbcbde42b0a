//! Where nodes and chunks come from and go to: the interface, and the in-memory implementation that tests
//! use. The implementation on disk is [`crate::Store`] (reading) and [`crate::Writer`] (both).

use std::sync::Arc;

use bytes::Bytes;

use crate::tree::Node;
use crate::{Hash, Num, Result};

/// Reads objects by their store-local numbers.
pub trait Objects: Send + Sync {
    /// A decoded node.
    ///
    /// # Errors
    /// `Damaged` when it is missing or does not match its checksum.
    fn node(&self, num: Num) -> Result<Arc<Node>>;

    /// A chunk's bytes.
    ///
    /// # Errors
    /// `Damaged` when it is missing or does not match its checksum.
    fn chunk(&self, num: Num) -> Result<Bytes>;

    /// The hash that an object is named by in every store.
    fn hash(&self, num: Num) -> Result<Hash>;

    /// The number of the object with this hash, if it is stored.
    fn find(&self, hash: &Hash) -> Result<Option<Num>>;
}

/// Takes new objects; what is stored already is found, not stored again.
pub trait Sink: Objects {
    /// Stores a node. `replaces` is the node that it takes the place of: the stored form may be a delta on it.
    fn put_node(&self, node: Node, replaces: Option<Num>) -> Result<Num>;

    /// Stores a chunk.
    fn put_chunk(&self, bytes: &[u8]) -> Result<Num>;
}

/// Objects in memory.
#[derive(Default)]
pub struct MemObjects {}
