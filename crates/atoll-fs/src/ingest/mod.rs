//! Host files become stored contents, and what a folder holds becomes edits of a tree.
//!
//! [`folder::read_folder`] is the whole way from a host folder to a root; import and the copy driver's capture
//! differ only in the [`base::Base`] that they compare with.

pub mod assign;
pub mod base;
mod build;
pub mod contents;
pub mod edits;
pub mod fast;
pub mod folder;
pub mod read;
mod same;
pub mod secrets;
pub mod xattrs;

use atoll_store::{Sink, Writer};

pub use contents::{Extents, Ingest};
pub use edits::{FileState, Names, Parents, edits};

/// Where a tree is made: a store's writer, or (in tests) any sink.
#[derive(Clone, Copy)]
pub enum Target<'a> {
    /// A writer; each thread has a batch.
    Writer(&'a Writer),
    /// A sink that takes chunks one by one.
    Sink(&'a dyn Sink),
}

impl<'a> Target<'a> {
    /// Where nodes go.
    pub fn sink(&self) -> &'a dyn Sink {
        match *self {
            Target::Writer(writer) => writer,
            Target::Sink(sink) => sink,
        }
    }

    /// One thread's way in for contents.
    pub fn ingest(&self) -> Ingest<'a> {
        match *self {
            Target::Writer(writer) => Ingest::new(writer.batch()),
            Target::Sink(sink) => Ingest::into_sink(sink),
        }
    }
}
