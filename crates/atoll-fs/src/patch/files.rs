//! Changes as git sees them: pairs of files; folders are only where files are.

use std::collections::HashMap;

use atoll_store::tree::{Change, ChangeKind, FileType, Inode, TreeView};
use atoll_store::{Ino, Num, Objects, Result};

/// A file on one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its path there.
    pub path: Vec<u8>,
    /// Its inode number.
    pub ino: Ino,
    /// Its inode.
    pub inode: Inode,
}

/// A file before and after; one side may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePair {
    /// Before.
    pub old: Option<Entry>,
    /// After.
    pub new: Option<Entry>,
    /// Whether the bytes differ.
    pub content_changed: bool,
}

impl FilePair {
    /// The path after, or, of a deletion, before.
    pub fn path(&self) -> &[u8] {
        self.new.as_ref().or(self.old.as_ref()).map_or(&[], |entry| &entry.path)
    }

    /// Whether the file is at the same path on both sides.
    pub fn is_in_place(&self) -> bool {
        matches!((&self.old, &self.new), (Some(old), Some(new)) if old.path == new.path)
    }
}

/// The changed files, deletions before what comes to the same path. What is no file or link, or differs only in what
/// git does not keep, goes to `left_out`.
///
/// # Errors
/// Those of reading the tree below moved folders.
pub fn file_pairs(
    objects: &dyn Objects,
    new: Option<Num>,
    changes: &[Change],
    left_out: &mut Vec<Vec<u8>>,
) -> Result<Vec<FilePair>> {
    let told: HashMap<&[u8], ChangeKind> = changes
        .iter()
        .filter(|change| change.kind != ChangeKind::Deleted)
        .map(|change| (&change.path[..], change.kind))
        .collect();
    let mut pairs = Vec::new();
    for change in changes {
        let at = |path: &[u8], side: Option<(Ino, Inode)>| {
            side.map(|(ino, inode)| Entry { path: path.to_vec(), ino, inode })
                .filter(|entry| known(entry.inode.kind))
        };
        let is_dir = |side: Option<(Ino, Inode)>| side.is_some_and(|(_, inode)| inode.kind == FileType::Dir);
        if let (ChangeKind::Renamed, Some((ino, _)), true, Some(new)) =
            (change.kind, change.new, is_dir(change.new), new)
        {
            let from = change.old_path.clone().unwrap_or_default();
            below(TreeView::new(objects, new), ino, &change.path, &from, &told, &mut pairs)?;
            continue;
        }
        let old = at(change.old_path.as_ref().unwrap_or(&change.path), change.old);
        let new = at(&change.path, change.new);
        match change.kind {
            ChangeKind::TypeChanged => {
                pairs.extend(old.map(|old| FilePair { old: Some(old), new: None, content_changed: true }));
                pairs.extend(new.map(|new| FilePair { old: None, new: Some(new), content_changed: true }));
            }
            _ if old.is_none() && new.is_none() => {
                // A folder comes and goes with its files.
                let folder = is_dir(change.old.or(change.new)) && change.kind != ChangeKind::Metadata;
                left_out.extend((!folder).then(|| change.path.clone()));
            }
            ChangeKind::Metadata if !mode_differs(&old, &new) && change.old_path.is_none() => {
                left_out.push(change.path.clone());
            }
            _ => {
                let content_changed = change.content_changed;
                pairs.push(FilePair { old, new, content_changed });
            }
        }
    }
    let mut pairs = by_path(pairs);
    pairs.sort_by(|a, b| a.path().cmp(b.path()).then_with(|| a.new.is_some().cmp(&b.new.is_some())));
    Ok(pairs)
}

/// A rename stays one only when nothing else is at its old path afterwards and nothing was at its new path before:
/// git does the same, and `git apply -R` needs it. The others become what happened at each path.
fn by_path(pairs: Vec<FilePair>) -> Vec<FilePair> {
    let mut before: HashMap<Vec<u8>, u32> = HashMap::new();
    let mut after: HashMap<Vec<u8>, u32> = HashMap::new();
    for pair in &pairs {
        pair.old.iter().for_each(|entry| *before.entry(entry.path.clone()).or_default() += 1);
        pair.new.iter().for_each(|entry| *after.entry(entry.path.clone()).or_default() += 1);
    }
    let mut out = Vec::with_capacity(pairs.len());
    let (mut gone, mut come) = (HashMap::new(), Vec::new());
    for pair in pairs {
        match (&pair.old, &pair.new) {
            (Some(old), Some(new)) if old.path == new.path => out.push(pair),
            // A rename does not tell `git apply` that it is a link, and it must know that to take it back.
            (Some(old), Some(new))
                if old.inode.kind == FileType::File
                    && !after.contains_key(&old.path)
                    && !before.contains_key(&new.path) =>
            {
                out.push(pair)
            }
            _ => {
                gone.extend(pair.old.map(|old| (old.path.clone(), old)));
                come.extend(pair.new);
            }
        }
    }
    for new in come {
        let same_kind = |old: &Entry| old.inode.kind == new.inode.kind;
        let old = gone.remove(&new.path).filter(|old| {
            same_kind(old) || {
                out.push(FilePair { old: Some(old.clone()), new: None, content_changed: true });
                false
            }
        });
        out.push(FilePair { old, new: Some(new), content_changed: true });
    }
    out.extend(gone.into_values().map(|old| FilePair { old: Some(old), new: None, content_changed: true }));
    out
}

fn known(kind: FileType) -> bool {
    matches!(kind, FileType::File | FileType::Symlink)
}

fn mode_differs(old: &Option<Entry>, new: &Option<Entry>) -> bool {
    let executable = |entry: &Option<Entry>| entry.as_ref().map(|entry| entry.inode.mode & 0o100);
    executable(old) != executable(new)
}

/// The files of a moved folder that did not change otherwise.
fn below(
    view: TreeView<'_>,
    dir: Ino,
    path: &[u8],
    from: &[u8],
    told: &HashMap<&[u8], ChangeKind>,
    pairs: &mut Vec<FilePair>,
) -> Result<()> {
    let mut dirs = vec![(dir, path.to_vec())];
    while let Some((dir, here)) = dirs.pop() {
        for (name, entry) in view.readdir(dir)? {
            let to = [&here, &*name].join(&b'/');
            match (told.get(&to[..]), entry.kind) {
                // Told by itself, with what is in it.
                (Some(ChangeKind::Renamed | ChangeKind::Added), _) => {}
                (_, FileType::Dir) => dirs.push((entry.ino, to)),
                (Some(_), _) => {}
                (None, kind) if known(kind) => {
                    let Some(inode) = view.inode(entry.ino)? else { continue };
                    let old = [from, &to[path.len()..]].concat();
                    let at = |path: Vec<u8>| Some(Entry { path, ino: entry.ino, inode });
                    pairs.push(FilePair { old: at(old), new: at(to), content_changed: false });
                }
                _ => {}
            }
        }
    }
    Ok(())
}
