//! A host folder becomes a tree; again later, only what changed is read.

mod commit;
pub mod git;
pub mod git_config;
mod record;

use std::collections::BTreeMap;
use std::path::PathBuf;

use atoll_store::tree::{Change, ContentSum, changes_or_times};
use atoll_store::{Commit, Error, Hash, Num, Objects, Result, Store, Summary, Writer};

pub use commit::{CommitRequest, Committed, commit_captured};
pub use record::{ImportRecord, last_import};

use crate::ignore::Ignores;
use crate::ingest::Target;
use crate::ingest::base::Base;
use crate::ingest::folder::{FolderOptions, read_folder};
use crate::progress::{Phase, Progress};
use crate::scan::{ScanOptions, threads};

/// What to import, and how.
#[derive(Debug, Clone, Default)]
pub struct ImportOptions {
    /// The folder.
    pub folder: PathBuf,
    /// The commit to import over: the folder's last import (see [`last_import`]). `None` reads everything.
    pub base: Option<Hash>,
    /// More patterns in `.gitignore` syntax, relative to the folder; they go before every `.atollignore`.
    pub excludes: Vec<String>,
    /// Leave out what cannot be read, instead of stopping there.
    pub skip_unreadable: bool,
    /// How many threads; 0 means one for each processor.
    pub threads: usize,
    /// Where inode numbers' random bits and birth ids come from; `None` means the system. Tests fix it.
    pub seed: Option<u64>,
}

/// Why something in a folder did not become part of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SkipReason {
    /// Another file system (or a bind mount) is mounted there.
    Mount,
    /// It is an atoll store.
    Store,
    /// It was gone when it was to be read.
    Vanished,
    /// It could not be read, and `skip_unreadable` was given.
    Unreadable,
    /// A git worktree's administration whose worktree lies outside of the folder.
    Worktree,
}

impl SkipReason {
    /// The stable name: `mount`, `store`, …
    pub fn name(self) -> &'static str {
        match self {
            SkipReason::Mount => "mount",
            SkipReason::Store => "store",
            SkipReason::Vanished => "vanished",
            SkipReason::Unreadable => "unreadable",
            SkipReason::Worktree => "worktree",
        }
    }
}

/// What an import or a capture of a folder saw and did. Paths are relative to the folder, in bytes.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Files of any kind that the tree has (names; folders not counted).
    pub files: u64,
    /// Folders, the root included.
    pub dirs: u64,
    /// Files whose contents were read.
    pub read_files: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Files that were taken over without a look at their contents.
    pub unchanged: u64,
    /// What was left out, sorted by path.
    pub skipped: Vec<(Vec<u8>, SkipReason)>,
    /// Names left out by patterns (folders count once).
    pub ignored: u64,
    /// Newly read files that look like secrets, sorted.
    pub secrets: Vec<Vec<u8>>,
    /// Git files whose absolute paths were made relative in the tree, sorted.
    pub rewritten: Vec<Vec<u8>>,
    /// Whether the tree differs from the base's.
    pub changed: bool,
}

/// A tree that was made and waits for [`Store::publish`].
pub struct Captured {
    /// Its root.
    pub root: Num,
    /// Its second hash's sum.
    pub content: ContentSum,
    /// Its counts.
    pub summary: Summary,
    /// Holds the new objects.
    pub writer: Writer,
    /// What was seen and done.
    pub report: Report,
    /// Metadata that belongs into the commit (`import`: what the next import needs).
    pub meta: BTreeMap<String, String>,
}

impl Captured {
    /// What a commit would hold: the changes since commit `head`; where there are none, what was touched.
    pub fn changes(&self, store: &Store, head: &Hash) -> Result<Vec<Change>> {
        changes_or_times(&self.writer, Some(store.commit(head)?.record.root), Some(self.root))
    }

    /// Whether it differs from commit `head` in nothing that anybody can set (numbers, ctimes): status, commit and
    /// unmount take that for nothing. Two ways to tell must agree, for what goes then is gone.
    pub fn is_as_in(&self, store: &Store, head: &Hash) -> Result<bool> {
        let commit = store.commit(head)?;
        if (self.content, self.summary) != (commit.record.content, commit.record.summary) {
            return Ok(false);
        }
        Ok(self.writer.hash(self.root)? == commit.tree || self.changes(store, head)?.is_empty())
    }
}

/// Reads a folder into a new writer. Nothing is in the store until the caller publishes it.
///
/// # Errors
/// `Busy` when git is running in the folder; `Unsupported` when a `.git` would reach out of it; `Permission`
/// naming what could not be read; `Changed` naming what did not keep still; `Usage` when the folder is a store.
pub fn import_folder(store: &Store, options: &ImportOptions, progress: &dyn Progress) -> Result<Captured> {
    let folder = std::fs::canonicalize(&options.folder)
        .map_err(|error| Error::io("read the folder", &options.folder, error))?;
    let before = options.base.map(|id| store.commit(&id)).transpose()?;
    let record = match &before {
        Some(commit) => {
            let record = ImportRecord::of(&commit.record);
            record.map(|record| record.newest(store, commit)).transpose()?
        }
        None => None,
    };
    let base = || match &before {
        None => Ok(Base::empty()),
        Some(commit) => {
            let record = record.as_ref().filter(|record| record.is_of(&folder));
            // Of another folder's import nothing is clean, but what is the same file keeps its number.
            let clean_before = record.map_or(Base::NEVER, |record| record.started);
            let mut base = Base::load_sorted(store, commit.record.root, clean_before)?;
            base.unclean.extend(record.into_iter().flat_map(|record| record.mapped.iter().copied()));
            Ok(base)
        }
    };
    let how = FolderOptions {
        scan: ScanOptions {
            ignores: Some(Ignores::new(&options.excludes)?),
            skip_unreadable: options.skip_unreadable,
            skip_stores: true,
            threads: threads(options.threads),
            progress,
        },
        prepare: &git::prepare,
        seed: options.seed,
    };
    let writer = store.writer()?;
    let tree = read_folder(&Target::Writer(&writer), &base, &folder, &how)?;
    let record = ImportRecord { folder, started: tree.started, dev: tree.dev, mapped: tree.mapped };
    let meta = BTreeMap::from([(ImportRecord::KEY.to_owned(), record.to_json())]);
    captured(before.as_ref(), writer, tree.root, tree.report, meta, progress)
}

/// Sums up a tree that was made over a commit's.
pub(crate) fn captured(
    before: Option<&Commit>,
    writer: Writer,
    root: Num,
    report: Report,
    meta: BTreeMap<String, String>,
    progress: &dyn Progress,
) -> Result<Captured> {
    progress.advance(Phase::Tree, report.files, 0);
    let old = before.map(|commit| (commit.record.root, commit.record.content, commit.record.summary));
    let (content, summary) = match old {
        Some((old, content, summary)) if old == root => (content, summary),
        old => ContentSum::update(&writer, old, root)?,
    };
    Ok(Captured { root, content, summary, writer, report, meta })
}
