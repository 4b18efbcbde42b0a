//! Whether the target has a change already.
//!
//! For a file its contents say so. A folder has none of its own: when a folder moves to where another was, and yet
//! another takes its place, both paths hold folders before and after. Then what is in them decides.

use std::collections::BTreeMap;

use atoll_store::tree::{Change, ChangeKind, FileType, Inode, TreeView};
use atoll_store::{Ino, Result};

use super::check::is_as;
use super::plan::{Planner, is_dir};
use super::target::Here;
use crate::ingest::xattrs;
use crate::scan::{HostStat, join, parent};

/// Which of the two states a target was seen to be in.
#[derive(Default)]
struct Signs {
    base: bool,
    result: bool,
}

impl Planner<'_> {
    /// Finds the folders that the target has moved already, and those of which it cannot be told.
    pub(super) fn settle_moves(&mut self) -> Result<()> {
        let moves: Vec<Change> = self.moves.values().cloned().collect();
        for change in moves {
            let old_path = from(&change);
            if !self.ends_fit(&change, old_path)? {
                continue;
            }
            let mut signs = Signs::default();
            for path in [old_path, &change.path] {
                let base = self.base.map(|base| base.resolve(path)).transpose()?.flatten();
                self.look_for_signs(path, base, self.tree.resolve(path)?, &mut signs)?;
            }
            if !signs.base {
                self.skipped_moves.insert(change.path);
            } else if signs.result {
                self.unclear_moves.insert(change.path);
            }
        }
        // What lies below a folder that has yet to move goes with it, however right it looks where it is.
        loop {
            let to_come = self.moves.values().filter(|change| self.is_to_come(&change.path));
            self.leaving = to_come.map(|change| from(change).clone()).collect();
            let skipped = self.skipped_moves.iter();
            let carried: Vec<_> =
                skipped.filter(|path| self.is_carried(&self.moves[*path])).cloned().collect();
            if carried.is_empty() {
                return Ok(());
            }
            for path in carried {
                self.skipped_moves.remove(&path);
            }
        }
    }

    /// Whether a folder above an end of the change has yet to move there or away.
    fn is_carried(&self, change: &Change) -> bool {
        let mut old_above = above(from(change));
        old_above.any(|folder| self.leaving.contains(folder))
            || above(&change.path).any(|folder| self.is_to_come(folder))
    }

    fn is_to_come(&self, path: &[u8]) -> bool {
        self.moves.contains_key(path) && !self.skipped_moves.contains(path)
    }

    /// Whether the target has the change already: both ends are as in the result.
    pub(super) fn is_done(&self, change: &Change, old_path: &[u8]) -> Result<bool> {
        if self.moves.contains_key(&change.path) && change.kind == ChangeKind::Renamed {
            return Ok(self.skipped_moves.contains(&change.path));
        }
        Ok(!self.is_carried(change) && self.ends_fit(change, old_path)?)
    }

    fn ends_fit(&self, change: &Change, old_path: &[u8]) -> Result<bool> {
        if change.kind == ChangeKind::Deleted || old_path != change.path {
            let fits = match (self.tree.resolve(old_path)?, self.target.here(old_path)?) {
                (None, Here::Nothing | Here::BehindLink) => true,
                (Some((_, other)), Here::Is(host))
                    if change.kind == ChangeKind::Deleted
                        && (other.kind, host.kind) == (FileType::Dir, FileType::Dir)
                        && is_dir(change.old) =>
                {
                    !self.is_to_come(old_path) && !above(old_path).any(|folder| self.is_to_come(folder))
                }
                (Some(other), Here::Is(host)) => is_as(&self.target, old_path, &host, self.tree, other)?,
                _ => false,
            };
            if !fits || change.kind == ChangeKind::Deleted {
                return Ok(fits);
            }
        }
        let (Some((ino, inode)), Here::Is(host)) = (change.new, self.target.here(&change.path)?) else {
            return Ok(false);
        };
        if change.metadata_changed {
            let Ok((dir, name)) = self.target.folder_of(&change.path) else { return Ok(false) };
            let owned = (host.uid, host.gid) == (inode.uid, inode.gid);
            let mode = host.mode == inode.mode || inode.kind == FileType::Symlink;
            let attributes = xattrs::read_at(&*dir, name).unwrap_or_default();
            if !owned || !mode || attributes != self.tree.xattrs(ino)? {
                return Ok(false);
            }
        }
        is_as(&self.target, &change.path, &host, self.tree, (ino, inode))
    }

    /// Looks at `path`, and at all below it, for what only one of the two trees has there.
    fn look_for_signs(
        &self,
        path: &[u8],
        base: Option<(Ino, Inode)>,
        result: Option<(Ino, Inode)>,
        signs: &mut Signs,
    ) -> Result<()> {
        let is_file = result.is_some_and(|(_, inode)| inode.kind != FileType::Dir);
        if signs.base && signs.result || base == result && is_file || self.left_out.contains(path) {
            return Ok(());
        }
        let here = self.target.here(path)?;
        let as_base = self.looks_as(path, &here, self.base, base)?;
        let as_result = self.looks_as(path, &here, Some(self.tree), result)?;
        signs.base |= as_base && !as_result;
        signs.result |= as_result && !as_base;
        let (Some(base_tree), Some((old, _)), Some((new, _))) = (self.base, base, result) else {
            return Ok(());
        };
        if !is_dir(base) || !is_dir(result) || !matches!(here, Here::Is(host) if host.kind == FileType::Dir) {
            return Ok(());
        }
        let mut names: BTreeMap<Vec<u8>, [Option<Ino>; 2]> = BTreeMap::new();
        for (name, entry) in base_tree.readdir(old)? {
            names.entry(name.to_vec()).or_default()[0] = Some(entry.ino);
        }
        for (name, entry) in self.tree.readdir(new)? {
            names.entry(name.to_vec()).or_default()[1] = Some(entry.ino);
        }
        for (name, [old, new]) in names {
            let base = inode_of(base_tree, old)?;
            let result = inode_of(self.tree, new)?;
            self.look_for_signs(&join(path, &name), base, result, signs)?;
        }
        Ok(())
    }

    fn looks_as(
        &self,
        path: &[u8],
        here: &Here,
        tree: Option<TreeView<'_>>,
        side: Option<(Ino, Inode)>,
    ) -> Result<bool> {
        let (Some(tree), Some((ino, inode))) = (tree, side) else {
            return Ok(!matches!(here, Here::Is(_)));
        };
        let Here::Is(host) = here else { return Ok(false) };
        let same_mode = |host: &HostStat| inode.kind != FileType::Dir || host.mode == inode.mode;
        Ok(same_mode(host) && is_as(&self.target, path, host, tree, (ino, inode))?)
    }
}

fn inode_of(tree: TreeView<'_>, ino: Option<Ino>) -> Result<Option<(Ino, Inode)>> {
    let Some(ino) = ino else { return Ok(None) };
    Ok(tree.inode(ino)?.map(|inode| (ino, inode)))
}

fn from(change: &Change) -> &Vec<u8> {
    change.old_path.as_ref().unwrap_or(&change.path)
}

/// The folders above a path, the next one first.
fn above(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(parent(path)), |path| Some(parent(path))).take_while(|path| !path.is_empty())
}
