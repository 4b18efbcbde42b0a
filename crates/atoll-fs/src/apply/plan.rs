//! What an apply will do, and what stands against it. Nothing is written.
//!
//! A path of the result can be below a folder that is still elsewhere: `a` becomes `b`, and `b/x` is new. In the target
//! as it is now that is `a/x`: its present place. All checks are at present places.

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;

use atoll_store::tree::{Change, ChangeKind, FileType, Inode, TreeView, changes};
use atoll_store::{Ino, Num, Objects, Result};

use super::check::is_as;
use super::ignored::Ignored;
use super::select::select;
use super::target::{Here, Target};
use super::{ApplyOptions, Conflict, LeftOut};
use crate::progress::{Phase, Progress, check};
use crate::scan::host::open_dir;
use crate::scan::{HostStat, parent};

/// What an apply would do.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The changes that were asked for and not left out, sorted by path.
    pub changes: Vec<Change>,
    /// Changed paths that are not applied, and why.
    pub left_out: Vec<(Vec<u8>, LeftOut)>,
    /// Paths of the target that changed since; sorted.
    pub conflicts: Vec<Conflict>,
    /// Paths whose content or existence in the target is lost by the apply (contained in the base or, with `force`, not).
    pub overwrites: Vec<Vec<u8>>,
    pub(super) actions: Vec<Action>,
    /// What was found at present places; looked at again before the first change.
    pub(super) found: Vec<(Vec<u8>, Option<HostStat>)>,
}

/// One thing to do.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Take what is at a present place away; `kept` if it comes back elsewhere.
    Take { at: Vec<u8>, host: HostStat, back: Option<Vec<u8>> },
    /// Remove a folder if nothing else is in it.
    RemoveDir { at: Vec<u8>, host: HostStat },
    /// Make a file or folder of the result at its path.
    Make { path: Vec<u8>, ino: Ino, inode: Inode },
    /// Set mode, owner and attributes at a path of the result; it is at a present place now.
    Meta { path: Vec<u8>, at: Vec<u8>, ino: Ino, inode: Inode },
}

/// Compares the target with `base` at every path that changed up to `result`.
///
/// # Errors
/// Those of reading the trees and the folder. Conflicts are no error here: see [`Plan::refuse`].
pub fn plan(
    objects: &dyn Objects,
    base: Option<Num>,
    result: Num,
    options: &ApplyOptions,
    progress: &dyn Progress,
) -> Result<Plan> {
    let tree = TreeView::new(objects, result);
    let all = changes(objects, base, Some(result))?;
    let (changes, left_out) = select(all, options, Ignored::new(&options.target, tree))?;
    let moved = changes
        .iter()
        .filter(|change| change.kind == ChangeKind::Renamed && is_dir(change.new))
        .filter_map(|change| Some((change.path.clone(), change.old_path.clone()?)))
        .collect();
    let moves = changes
        .iter()
        .filter(|change| change.kind == ChangeKind::Renamed && is_dir(change.new))
        .map(|change| (change.path.clone(), change.clone()))
        .collect();
    let mut planner = Planner {
        target: Target::open(&options.target)?,
        base: base.map(|base| TreeView::new(objects, base)),
        tree,
        force: options.force,
        moved,
        moves,
        skipped_moves: HashSet::new(),
        unclear_moves: HashSet::new(),
        leaving: HashSet::new(),
        left_out: left_out.iter().map(|(path, _)| path.clone()).collect(),
        vacated: HashSet::new(),
        emptied: HashSet::new(),
        made: HashSet::new(),
        returning: HashSet::new(),
        whole: HashSet::new(),
        told: changes
            .iter()
            .filter(|change| change.new.is_some())
            .map(|change| change.path.clone())
            .collect(),
        plan: Plan { left_out, ..Plan::default() },
    };
    planner.settle_moves()?;
    // First what leaves its place, then what comes: a new file may stand where an old one was.
    let mut to_come = Vec::with_capacity(changes.len());
    for change in &changes {
        check(progress)?;
        if planner.leave(change)? {
            to_come.push(change);
        }
        progress.advance(Phase::Compare, 1, 0);
    }
    for change in to_come {
        planner.come(change)?;
    }
    let mut plan = planner.plan;
    plan.changes = changes;
    plan.conflicts.sort();
    plan.conflicts.dedup();
    plan.overwrites.sort();
    Ok(plan)
}

pub(super) fn is_dir(side: Option<(Ino, Inode)>) -> bool {
    side.is_some_and(|(_, inode)| inode.kind == FileType::Dir)
}

pub(super) struct Planner<'a> {
    pub(super) target: Target,
    pub(super) base: Option<TreeView<'a>>,
    pub(super) tree: TreeView<'a>,
    force: bool,
    /// Folders that move: new path, old path.
    pub(super) moved: HashMap<Vec<u8>, Vec<u8>>,
    /// The same as changes.
    pub(super) moves: HashMap<Vec<u8>, Change>,
    /// Those of them (by new path) that the target has moved already.
    pub(super) skipped_moves: HashSet<Vec<u8>>,
    /// Those of them of which the target looks as if it had moved a part.
    pub(super) unclear_moves: HashSet<Vec<u8>>,
    /// The old paths of those that have yet to move.
    pub(super) leaving: HashSet<Vec<u8>>,
    /// Changed paths that are not applied.
    pub(super) left_out: HashSet<Vec<u8>>,
    /// Present places that become free.
    vacated: HashSet<Vec<u8>>,
    /// Those of them that are folders whose contents go by themselves.
    emptied: HashSet<Vec<u8>>,
    /// Folders that are made.
    made: HashSet<Vec<u8>>,
    /// Paths of the result to which something that is taken away comes back.
    returning: HashSet<Vec<u8>>,
    /// Paths that are made from the result alone, whatever kind of change it is.
    whole: HashSet<Vec<u8>>,
    /// Paths that have a change of their own.
    told: HashSet<Vec<u8>>,
    plan: Plan,
}

impl Planner<'_> {
    /// Where a path of the result will stand, in the target as it is now; and whether that place becomes free with a
    /// folder above it that leaves or is replaced, whatever is there now.
    fn place(&self, path: &[u8]) -> (Vec<u8>, bool) {
        let (above, own) = self.present(parent(path));
        let name = &path[if parent(path).is_empty() { 0 } else { parent(path).len() + 1 }..];
        let freed = self.is_freed(&above, own);
        (crate::scan::join(&above, name), freed)
    }

    /// Where a folder of the result is in the target as it is now. The first `own` bytes are the old path of a moved
    /// folder: what that one held comes with it.
    fn present(&self, path: &[u8]) -> (Vec<u8>, usize) {
        let mut above = path;
        while !above.is_empty() {
            if let Some(old) = self.moved.get(above).filter(|_| !self.skipped_moves.contains(above)) {
                return ([&old[..], &path[above.len()..]].concat(), old.len());
            }
            above = parent(above);
        }
        (path.to_vec(), 0)
    }

    fn is_freed(&self, folder: &[u8], own: usize) -> bool {
        let mut above = folder;
        while above.len() > own {
            if self.vacated.contains(above) {
                return true;
            }
            above = parent(above);
        }
        false
    }

    fn conflict(&mut self, path: &[u8], why: &'static str) {
        self.plan.conflicts.push(Conflict { path: path.to_vec(), why, always: false });
    }

    /// What is at a present place. Behind a link there is nothing that could be touched.
    fn look(&mut self, at: &[u8], here: Here) -> Option<HostStat> {
        match here {
            Here::Is(stat) => {
                self.plan.found.push((at.to_vec(), Some(stat)));
                Some(stat)
            }
            Here::Nothing => {
                self.plan.found.push((at.to_vec(), None));
                None
            }
            Here::BehindLink => {
                let why = "a folder above is a symbolic link here";
                self.plan.conflicts.push(Conflict { path: at.to_vec(), why, always: true });
                None
            }
        }
    }

    fn is_base(&self, at: &[u8], here: &HostStat, old: (Ino, Inode)) -> Result<bool> {
        match self.base {
            Some(base) => is_as(&self.target, at, here, base, old),
            None => Ok(false),
        }
    }

    fn is_result(&self, at: &[u8], here: &HostStat) -> Result<bool> {
        match self.tree.resolve(at)? {
            Some(new) => is_as(&self.target, at, here, self.tree, new),
            None => Ok(false),
        }
    }

    /// The old side of a change. False when there is nothing to do, or it must not be done.
    fn leave(&mut self, change: &Change) -> Result<bool> {
        let Some(old) = change.old.filter(|_| change.kind != ChangeKind::Added) else { return Ok(true) };
        let old_path = change.old_path.as_ref().unwrap_or(&change.path).clone();
        let here = self.target.here(&old_path)?;
        if self.is_done(change, &old_path)? {
            return Ok(false);
        }
        let Some(host) = self.look(&old_path, here) else {
            return Ok(self.leave_nothing(change, &old_path));
        };
        let unclear = self.unclear_moves.contains(&change.path);
        let is_base = self.is_base(&old_path, &host, old)? && !unclear;
        if !is_base {
            // What was to move is gone, and what is in its place is right there already.
            let replaced = change.kind == ChangeKind::Renamed && !unclear;
            if replaced && self.is_result(&old_path, &host)? {
                return Ok(self.leave_nothing(change, &old_path));
            }
            self.conflict(&old_path, "changed since");
            if !self.force {
                return Ok(false);
            }
        }
        let mut lost = true;
        match change.kind {
            ChangeKind::Deleted if old.1.kind == FileType::Dir && host.kind == FileType::Dir => {
                self.plan.actions.push(Action::RemoveDir { at: old_path.clone(), host });
                self.vacated.insert(old_path.clone());
                self.emptied.insert(old_path.clone());
                lost = false;
            }
            ChangeKind::Deleted => self.take(&old_path, host, None),
            ChangeKind::TypeChanged if host.kind == FileType::Dir || is_dir(change.new) => {
                if host.kind == FileType::Dir {
                    self.emptied.insert(old_path.clone());
                }
                self.take(&old_path, host, None)
            }
            ChangeKind::Renamed => {
                let same = !change.content_changed && is_base;
                self.take(&old_path, host, same.then(|| change.path.clone()));
                if !same {
                    self.comes_whole(change);
                }
                lost = !same;
            }
            ChangeKind::Metadata if host.kind == old.1.kind => lost = false,
            // Only with force: a folder or another kind of file is where a file was.
            _ if host.kind == FileType::Dir || is_dir(change.new) => {
                self.take(&old_path, host, None);
                self.comes_whole(change);
            }
            ChangeKind::Metadata => {
                self.whole.insert(change.path.clone());
            }
            _ => {}
        }
        if lost {
            self.plan.overwrites.push(old_path);
        }
        Ok(true)
    }

    /// What a change was to take away or change is not there.
    fn leave_nothing(&mut self, change: &Change, old_path: &[u8]) -> bool {
        if change.kind == ChangeKind::Deleted {
            return false;
        }
        self.comes_whole(change);
        // A link above has been told already.
        if !self.plan.conflicts.iter().any(|conflict| conflict.always && conflict.path == old_path) {
            self.conflict(old_path, "is gone");
        }
        self.force
    }

    /// Nothing of the target's can be used for it: it is made from the result, a folder with all that is in it.
    fn comes_whole(&mut self, change: &Change) {
        self.moved.remove(&change.path);
        self.whole.insert(change.path.clone());
    }

    fn take(&mut self, at: &[u8], host: HostStat, back: Option<Vec<u8>>) {
        self.vacated.insert(at.to_vec());
        self.returning.extend(back.clone());
        self.plan.actions.push(Action::Take { at: at.to_vec(), host, back });
    }

    /// The new side of a change.
    fn come(&mut self, change: &Change) -> Result<()> {
        let Some((ino, inode)) = change.new.filter(|_| change.kind != ChangeKind::Deleted) else {
            return Ok(());
        };
        let path = &change.path;
        let (at, freed) = self.place(path);
        let returns = self.returning.contains(path);
        let replaces =
            matches!(change.kind, ChangeKind::Modified | ChangeKind::TypeChanged | ChangeKind::Metadata);
        if !replaces && !freed && !self.vacated.contains(&at) {
            // A folder that comes may find its counterpart; whatever else is there is in the way.
            let here = self.target.here(&at)?;
            if let Some(host) = self.look(&at, here) {
                let merges = inode.kind == FileType::Dir && host.kind == FileType::Dir;
                let equal = is_as(&self.target, &at, &host, self.tree, (ino, inode))?;
                if !returns && (merges || equal) {
                    return Ok(());
                }
                // What comes back may replace its equal: a file that the result deletes looked as if it were it.
                let replaces_equal = equal && !merges;
                if !replaces_equal {
                    self.conflict(&at, "exists");
                    if !self.force {
                        return Ok(());
                    }
                    self.plan.overwrites.push(at.clone());
                }
                if replaces_equal || host.kind == FileType::Dir || inode.kind == FileType::Dir {
                    self.take(&at, host, None);
                }
            }
        }
        let merges = inode.kind == FileType::Dir && !returns;
        if !freed && !merges && self.emptied.contains(&at) && self.holds_own(&at)? {
            self.conflict(&at, "holds files of its own");
            if !self.force {
                return Ok(());
            }
            self.plan.overwrites.push(at.clone());
        }
        self.folders_above(path)?;
        let remade = self.whole.contains(path) || self.is_missing(&at)?;
        let changed_in_place = change.kind == ChangeKind::Metadata && !remade;
        if returns || changed_in_place {
            if change.metadata_changed {
                let at = if returns { change.old_path.clone().unwrap_or(at) } else { at };
                self.plan.actions.push(Action::Meta { path: path.clone(), at, ino, inode });
            }
            return Ok(());
        }
        self.make(path, at, ino, inode);
        if inode.kind == FileType::Dir && self.whole.contains(path) && change.kind != ChangeKind::TypeChanged
        {
            self.make_below(path, ino)?;
        }
        Ok(())
    }

    fn make(&mut self, path: &[u8], at: Vec<u8>, ino: Ino, inode: Inode) {
        self.plan.actions.push(Action::Make { path: path.to_vec(), ino, inode });
        if inode.kind == FileType::Dir {
            self.made.insert(path.to_vec());
            self.plan.actions.push(Action::Meta { path: path.to_vec(), at, ino, inode });
        }
    }

    /// What is in a folder of the result and has no change of its own.
    fn make_below(&mut self, path: &[u8], dir: Ino) -> Result<()> {
        let mut dirs = vec![(path.to_vec(), dir)];
        while let Some((above, dir)) = dirs.pop() {
            for (name, entry) in self.tree.readdir(dir)? {
                let path = crate::scan::join(&above, &name);
                if self.told.contains(&path) {
                    continue;
                }
                if let Some(inode) = self.tree.inode(entry.ino)? {
                    self.make(&path, path.clone(), entry.ino, inode);
                }
                if entry.kind == FileType::Dir {
                    dirs.push((path, entry.ino));
                }
            }
        }
        Ok(())
    }

    /// Whether a folder that is to give way holds something that does not go by itself.
    fn holds_own(&self, dir: &[u8]) -> Result<bool> {
        let failed = |error| self.target.failed("list", dir, error);
        let opened = open_dir(self.target.root().as_fd(), dir).map_err(failed)?;
        for entry in rustix::fs::Dir::new(opened).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            let path = crate::scan::join(dir, &name);
            if !self.vacated.contains(&path) || self.emptied.contains(&path) && self.holds_own(&path)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_missing(&self, at: &[u8]) -> Result<bool> {
        Ok(!matches!(self.target.here(at)?, Here::Is(_)))
    }

    /// Sees that the folders above a new path are there or are made.
    fn folders_above(&mut self, path: &[u8]) -> Result<()> {
        let above = parent(path);
        if above.is_empty() || self.made.contains(above) || self.moved.contains_key(above) {
            return Ok(());
        }
        let (at, own) = self.present(above);
        let freed = self.is_freed(&at, own);
        if let Here::Is(host) = self.target.here(&at)?
            && !freed
        {
            if host.kind == FileType::Dir || self.vacated.contains(&at) {
                return Ok(());
            }
            self.conflict(&at, "is no folder here");
            if !self.force {
                return Ok(());
            }
            self.plan.overwrites.push(at.clone());
            self.take(&at, host, None);
        } else if !freed && self.base.map(|base| base.resolve(above)).transpose()?.flatten().is_some() {
            self.conflict(above, "is gone");
        }
        self.folders_above(above)?;
        if let Some((ino, inode)) = self.tree.resolve(above)? {
            self.make(above, at, ino, inode);
        }
        Ok(())
    }
}
