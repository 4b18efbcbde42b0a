//! Groups of objects that are compressed together, and one thread's own.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Writer;
use crate::pack::{Compressor, Kind};
use crate::{Num, Result};

/// Objects that wait to be compressed together.
pub(super) struct Group {
    pub(super) kind: Kind,
    pub(super) raw: Vec<u8>,
    /// Number, offset, length.
    pub(super) members: Vec<(Num, u32, u32)>,
    pub(super) compressor: Option<Compressor>,
}

impl Group {
    pub(super) fn new(kind: Kind) -> Group {
        Group { kind, raw: Vec::new(), members: Vec::new(), compressor: None }
    }

    pub(super) fn get(&self, num: Num) -> Option<Bytes> {
        let (_, offset, len) = self.members.iter().find(|(member, ..)| *member == num)?;
        Some(Bytes::copy_from_slice(&self.raw[*offset as usize..][..*len as usize]))
    }
}

/// One thread's chunks on their way into a writer, compressed together in groups of up to 256 KiB. A number
/// is good in a tree at once; the bytes are written when the group is full and with `finish`.
pub struct Batch<'a> {
    writer: &'a Writer,
    key: u64,
    group: Arc<Mutex<Group>>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(writer: &'a Writer, key: u64, group: Arc<Mutex<Group>>) -> Batch<'a> {
        Batch { writer, key, group }
    }

    /// Stores a chunk, or finds it.
    pub fn put(&mut self, bytes: &[u8]) -> Result<Num> {
        self.writer.put_chunk_in(&mut self.group.lock(), bytes)
    }

    /// Writes what is left. A batch dropped without it makes `publish` fail.
    pub fn finish(self) -> Result<()> {
        self.writer.flush(&mut self.group.lock())
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.writer.batches.lock().remove(&self.key);
    }
}
