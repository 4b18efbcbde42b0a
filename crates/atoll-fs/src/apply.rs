//! Brings the changes between two trees into a real folder.
//!
//! First a plan: which changes, and which of them meet changes of the folder's own; nothing is written. Then all that
//! is new is made in a folder beside the target. Then the journal is written: from here on the apply will be
//! finished, if need be by the next call after a kill or a power cut. What follows is renames, and each can be done
//! twice. No symbolic link in the target is followed.
//!
//! A changed file is a new file with the result's mode, owner and attributes; its modification time is now, so that
//! build tools see it, unless the result's times are asked for too. Whoever wants an undo commits the folder before
//! ([`plan`] tells whether that is needed).

mod check;
mod done;
mod fault;
mod ignored;
mod journal;
mod plan;
mod run;
mod select;
mod stage;
mod target;
mod times;

use std::path::{Path, PathBuf};

use atoll_store::tree::Change;
use atoll_store::{Code, Error, Num, Objects, Result};

use crate::progress::Progress;
pub use plan::{Plan, plan};

/// How to apply.
#[derive(Debug, Clone, Default)]
pub struct ApplyOptions {
    /// The folder to change.
    pub target: PathBuf,
    /// Only changes at or below these paths (relative to the folder); empty means all.
    pub paths: Vec<Vec<u8>>,
    /// Also `.git` and git-ignored paths.
    pub all: bool,
    /// Overwrite what changed in the folder. (A change of mode or owner alone keeps the folder's contents.)
    pub force: bool,
    /// Give files and folders the result's modification times, also where nothing else differs.
    pub times: bool,
    /// A folder of the caller's, on any file system, that keeps the journal while an apply is under way; made when it
    /// is needed. One for each target: two applies must not share one.
    pub journal: PathBuf,
}

/// Why a change is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LeftOut {
    /// It is in a `.git`.
    Git,
    /// git ignores it.
    Ignored,
    /// It is outside of the paths that were asked for.
    Outside,
}

/// A path of the target that cannot be changed without losing something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// Relative to the target.
    pub path: Vec<u8>,
    /// In words: `changed since`, `exists`, …
    pub why: &'static str,
    /// Not even `force` overwrites it.
    pub always: bool,
}

/// What an apply did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApplyReport {
    /// What could not be restored, with a word: `owner`, `mode`, `device`, `xattr NAME`.
    pub lost: Vec<(Vec<u8>, String)>,
    /// Folders that are gone in the result but hold files of their own here, and stay.
    pub kept_folders: Vec<Vec<u8>>,
    /// Where things are that were in the way at the last moment, if there were any.
    pub kept_aside: Option<PathBuf>,
}

/// Applies what differs between `base` and `result` to a folder: plans, calls `before` (which may commit the folder's
/// state, so that it can be taken back), then changes it. An unfinished apply of the journal is finished first.
///
/// # Errors
/// `Conflict` naming the paths that changed in the folder, unless `force`; `Changed` when the folder changes between
/// plan and change (nothing was done); what `before` returns; those of reading the trees and of the host.
pub fn apply(
    objects: &dyn Objects,
    base: Option<Num>,
    result: Num,
    options: &ApplyOptions,
    before: &mut dyn FnMut(&Plan) -> Result<()>,
    progress: &dyn Progress,
) -> Result<(Plan, ApplyReport)> {
    resume(&options.journal)?;
    let plan = plan(objects, base, result, options, progress)?;
    plan.refuse(options.force)?;
    let mut report = ApplyReport::default();
    if !plan.is_empty() {
        before(&plan)?;
        report = stage::carry_out(objects, result, &plan, options, progress)?;
    }
    if options.times {
        times::set(objects, base, result, &plan.changes, options)?;
    }
    Ok((plan, report))
}

/// Finishes an apply that was cut off, or clears away what it had prepared. `None` when there is none.
///
/// # Errors
/// Those of the host; the journal stays, and the next call tries again.
pub fn resume(journal: &Path) -> Result<Option<ApplyReport>> {
    match journal::open(journal)? {
        journal::Found::Nothing => Ok(None),
        journal::Found::Prepared(staging) => {
            run::clear(&staging)?;
            journal::remove(journal)?;
            Ok(Some(ApplyReport::default()))
        }
        journal::Found::Decided(decided) => run::finish(journal, &decided).map(Some),
    }
}

impl Plan {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// # Errors
    /// `Conflict` listing the paths, if there are any that `force` does not overwrite.
    pub fn refuse(&self, force: bool) -> Result<()> {
        let stops: Vec<_> = self.conflicts.iter().filter(|conflict| conflict.always || !force).collect();
        if stops.is_empty() {
            return Ok(());
        }
        let named: Vec<_> = stops
            .iter()
            .take(10)
            .map(|conflict| format!("{} ({})", String::from_utf8_lossy(&conflict.path), conflict.why))
            .collect();
        let more = if stops.len() > 10 { format!(" and {} more", stops.len() - 10) } else { String::new() };
        let way = match stops.iter().any(|conflict| conflict.always) {
            true => "put a folder back in its place",
            false => "import the folder and merge, or overwrite with --force",
        };
        let message = format!("The folder has changes of its own at {}{more}; {way}.", named.join(", "));
        Err(Error::new(Code::Conflict, message))
    }
}

/// The changes of a plan as [`crate::patch`] and listings take them.
impl AsRef<[Change]> for Plan {
    fn as_ref(&self) -> &[Change] {
        &self.changes
    }
}
