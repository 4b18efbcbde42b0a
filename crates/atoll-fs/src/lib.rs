//! atoll's workspaces: a host folder or an archive becomes a tree and a tree becomes a folder; what changed in
//! a live workspace is captured; results are applied to a real folder. It knows no FUSE and no Python.
//!
//! Read in this order: [`scan`] (names and stat data of a folder), [`ingest`] (contents, and the edits that
//! make a tree of both), then the verbs: [`import`], [`export`], [`tar`], [`copy`]; [`live`] is a writable file system
//! over a tree.

pub mod apply;
pub mod copy;
pub mod export;
pub mod ignore;
pub mod import;
pub mod ingest;
pub mod live;
pub mod maps;
pub mod overlay;
pub mod patch;
pub mod progress;
pub mod scan;
pub mod tar;

pub use progress::{Phase, Progress, Silent};
