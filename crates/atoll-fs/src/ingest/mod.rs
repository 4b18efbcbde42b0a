//! Host files become stored contents, and what a folder holds becomes edits of a tree.

pub mod contents;
pub mod edits;
pub mod xattrs;

pub use contents::{Extents, Ingest};
pub use edits::{FileState, edits};
