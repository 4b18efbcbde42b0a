//! Gives back the modification times of a result, for whoever wants a state as it was.

use std::collections::BTreeSet;

use atoll_store::tree::{Change, FileType, Key, TreeView, Value, diff};
use atoll_store::{Num, Objects, Result};
use rustix::fs::AtFlags;
use rustix::io::Errno;

use super::ApplyOptions;
use super::select::is_below;
use super::target::{Here, Target};
use crate::export::meta::times;
use crate::scan::parent;

/// Sets the times of all that was changed, of the folders it came to and went from, and of what differs between the
/// two trees in its times alone. What is not as the result has it, or is somebody else's, keeps its own.
pub(super) fn set(
    objects: &dyn Objects,
    base: Option<Num>,
    result: Num,
    changes: &[Change],
    options: &ApplyOptions,
) -> Result<()> {
    let tree = TreeView::new(objects, result);
    let target = Target::open(&options.target)?;
    for path in paths(objects, base, tree, changes)? {
        if !options.paths.is_empty() && !options.paths.iter().any(|of| is_below(&path, of)) {
            continue;
        }
        let (Some((_, inode)), Here::Is(host)) = (tree.resolve(&path)?, target.here(&path)?) else {
            continue;
        };
        let same = host.kind == inode.kind && (inode.kind != FileType::File || host.size == inode.size);
        if !same || host.mtime == inode.mtime {
            continue;
        }
        let times = times(inode.mtime);
        let set = if path.is_empty() {
            rustix::fs::utimensat(target.root(), c".", &times, AtFlags::empty())
        } else {
            target
                .folder_of(&path)
                .and_then(|(dir, name)| rustix::fs::utimensat(&*dir, name, &times, AtFlags::SYMLINK_NOFOLLOW))
        };
        match set {
            Ok(()) | Err(Errno::PERM | Errno::ACCESS | Errno::NOENT) => {}
            Err(error) => return Err(target.failed("set the times of", &path, error)),
        }
    }
    Ok(())
}

/// Paths of the result whose times may not be right.
fn paths(
    objects: &dyn Objects,
    base: Option<Num>,
    tree: TreeView<'_>,
    changes: &[Change],
) -> Result<BTreeSet<Vec<u8>>> {
    let mut paths = BTreeSet::new();
    for path in changes.iter().flat_map(|change| std::iter::once(&change.path).chain(&change.old_path)) {
        paths.insert(parent(path).to_vec());
        paths.insert(path.clone());
    }
    for item in diff(objects, base, Some(tree.root)) {
        let item = item?;
        let (Key::Inode(ino), Some(Value::Inode(new))) = (Key::decode(&item.key)?, item.new) else {
            continue;
        };
        if !matches!(item.old, Some(Value::Inode(old)) if old.mtime == new.mtime) {
            paths.extend(tree.paths(ino)?);
        }
    }
    Ok(paths)
}
