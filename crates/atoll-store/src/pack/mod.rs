//! Packs: immutable runs of compressed chunks and tree nodes, each with its own table from numbers to hashes
//! and places, so that it can be read without the database. A pack is a file of its own or, when small, part
//! of an operation-log record.

mod build;
mod code;
mod format;
mod read;

pub(crate) use build::{Builder, Finished, Packed, lock_if_free};
pub(crate) use code::{Compressor, delta};
pub(crate) use format::{Coding, Entry, Frame, Kind, MAX_RAW, Table};
pub(crate) use read::PackFile;

/// A pack at most this long stands whole in its operation-log record.
pub(crate) const EMBED_MAX: usize = 64 << 10;
/// Chunks are compressed together up to this many bytes.
pub(crate) const CHUNK_GROUP: usize = 256 << 10;
/// So are nodes; fewer, because a reader who wants one node decodes its whole group.
pub(crate) const NODE_GROUP: usize = 64 << 10;
/// The most deltas that a node may stand on.
pub(crate) const MAX_DEPTH: u8 = 16;

/// The file name of a finished pack.
pub(crate) fn file_name(id: u64) -> String {
    format!("{id:016x}.pack")
}

/// The file name of a pack that is being written.
pub(crate) fn unfinished_name(id: u64) -> String {
    format!("{id:016x}.unfinished")
}
