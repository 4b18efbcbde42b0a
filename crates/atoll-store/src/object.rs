//! Where nodes and chunks come from and go to: the interface, and the in-memory implementation that tests
//! use. The implementation on disk is [`crate::Store`] (reading) and [`crate::Writer`] (both).

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::RwLock;

use crate::tree::Node;
use crate::{Error, Hash, Num, Result};

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

/// Objects in memory. Numbers count up from 1.
#[derive(Default)]
pub struct MemObjects {
    state: RwLock<MemState>,
}

#[derive(Default)]
struct MemState {
    by_hash: HashMap<Hash, Num>,
    objects: Vec<(Hash, MemObject)>,
}

#[derive(Clone)]
enum MemObject {
    Node(Arc<Node>),
    Chunk(Bytes),
}

impl MemObjects {
    /// No objects yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn get(&self, num: Num) -> Result<(Hash, MemObject)> {
        let index = usize::try_from(num.0).ok().and_then(|number| number.checked_sub(1));
        let state = self.state.read();
        index
            .and_then(|index| state.objects.get(index).cloned())
            .ok_or_else(|| Error::damaged(format!("Object {} is missing from the store in memory.", num.0)))
    }

    fn put(&self, hash: Hash, object: impl FnOnce() -> MemObject) -> Num {
        let mut state = self.state.write();
        if let Some(&num) = state.by_hash.get(&hash) {
            return num;
        }
        state.objects.push((hash, object()));
        let num = Num(state.objects.len() as u64);
        state.by_hash.insert(hash, num);
        num
    }
}

impl Objects for MemObjects {
    fn node(&self, num: Num) -> Result<Arc<Node>> {
        match self.get(num)?.1 {
            MemObject::Node(node) => Ok(node),
            MemObject::Chunk(_) => {
                Err(Error::damaged(format!("Object {} is a chunk, not a tree node.", num.0)))
            }
        }
    }

    fn chunk(&self, num: Num) -> Result<Bytes> {
        match self.get(num)?.1 {
            MemObject::Chunk(bytes) => Ok(bytes),
            MemObject::Node(_) => {
                Err(Error::damaged(format!("Object {} is a tree node, not a chunk.", num.0)))
            }
        }
    }

    fn hash(&self, num: Num) -> Result<Hash> {
        Ok(self.get(num)?.0)
    }

    fn find(&self, hash: &Hash) -> Result<Option<Num>> {
        Ok(self.state.read().by_hash.get(hash).copied())
    }
}

impl Sink for MemObjects {
    fn put_node(&self, node: Node, _replaces: Option<Num>) -> Result<Num> {
        let hash = Hash::of_node(&node.canonical(self)?);
        Ok(self.put(hash, || MemObject::Node(Arc::new(node))))
    }

    fn put_chunk(&self, bytes: &[u8]) -> Result<Num> {
        Ok(self.put(Hash::of(bytes), || MemObject::Chunk(Bytes::copy_from_slice(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_chunks_have_one_number() {
        let objects = MemObjects::new();
        let first = objects.put_chunk(b"one").unwrap();
        let second = objects.put_chunk(b"two").unwrap();
        assert_ne!(first, second);
        assert_eq!(objects.put_chunk(b"one").unwrap(), first);
        assert_eq!(objects.len(), 2);
        assert_eq!(&objects.chunk(second).unwrap()[..], b"two");
        assert_eq!(objects.find(&Hash::of(b"two")).unwrap(), Some(second));
        assert_eq!(objects.hash(first).unwrap(), Hash::of(b"one"));
        assert!(objects.chunk(Num(3)).is_err());
        assert!(objects.node(first).is_err());
    }
}
