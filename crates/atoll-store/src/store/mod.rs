//! A store on disk, used by many processes at once.
//!
//! The operation log is the truth; the database is an index over it and the packs, and is rebuilt from them
//! when it is lost. All writing goes through [`Store::write`]: one lock, the log's record synced first, then the
//! database.

mod apply;
mod cache;
mod check;
mod db;
mod gc;
mod info;
mod names;
mod numbers;
mod open;
mod ops;
mod publish;
mod read;
mod refs;
mod reserve;
mod resolve;
mod seen;
mod serving;
mod slots;
mod types;
mod walk;
mod workspaces;
mod write;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

pub use check::{CheckReport, Problem};
pub use gc::{GcOptions, GcReport};
pub use info::Stats;
pub use names::check_name;
pub use serving::Serving;
pub use types::{NewOperation, Operation, Profile, Published, RefChange, RefName, RefState, Slot, Workspace};
pub use walk::Ancestors;
pub use writer::{Batch, Writer};

/// An open store; clones share it. Safe to use from several threads, but not across a fork: open it again.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    dir: PathBuf,
    id: String,
    profile: Profile,
    user: String,
    /// The process that opened it.
    pid: u32,
    read: Mutex<db::Reading>,
    write: Mutex<write::Side>,
    cache: cache::Caches,
    numbers: Mutex<std::ops::Range<u64>>,
    /// Set when a record of a change that failed could not be taken off the log again: it may come back, so the
    /// pack that it names must stay.
    uncertain: std::sync::atomic::AtomicBool,
}

impl Store {
    /// The store's folder.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Its random id, 32 hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.inner.id
    }

    /// Its durability profile.
    pub fn profile(&self) -> Profile {
        self.inner.profile
    }

    fn packs_dir(&self) -> PathBuf {
        self.inner.dir.join("packs")
    }

    fn log_path(&self) -> PathBuf {
        self.inner.dir.join("oplog")
    }

    /// Where the log stands that is being replaced.
    fn old_log_path(&self) -> PathBuf {
        self.inner.dir.join("oplog.old")
    }
}
