//! Changes between trees, and the content sum, against a small file system that random operations work on.

mod tree_common;

use std::collections::{BTreeMap, BTreeSet};

use atoll_store::tree::{
    Change, ChangeKind, ContentSum, FileType, TreeView, changes, changes_or_times, content_equal, edit,
};
use atoll_store::{Ino, Num, Objects, Summary};
use proptest::prelude::*;
use tree_common::model::{Model, Op, Seen, op};
use tree_common::*;

fn tree(nodes: &Nodes, model: &Model) -> Num {
    edit(nodes, None, edits(&model.map())).unwrap()
}

/// Carries out the changes on the old paths: the result must be the new paths.
fn carry_out(
    old: &BTreeMap<Vec<u8>, Seen>,
    new: &BTreeMap<Vec<u8>, Seen>,
    list: &[Change],
) -> BTreeMap<Vec<u8>, Seen> {
    let renamed: Vec<_> = list.iter().filter(|change| change.kind == ChangeKind::Renamed).collect();
    let deleted =
        |path: &[u8]| list.iter().any(|change| change.kind == ChangeKind::Deleted && change.path == path);
    let mut out = BTreeMap::new();
    for (path, seen) in old.iter().filter(|(path, _)| !deleted(path)) {
        let under = |change: &&&Change| {
            let from = change.old_path.as_ref().unwrap();
            path.starts_with(from) && matches!(path.get(from.len()), None | Some(b'/'))
        };
        let to =
            match renamed.iter().filter(under).max_by_key(|change| change.old_path.as_ref().unwrap().len()) {
                Some(change) => [&change.path[..], &path[change.old_path.as_ref().unwrap().len()..]].concat(),
                None => path.clone(),
            };
        out.insert(to, seen.clone());
    }
    for change in list {
        match change.kind {
            ChangeKind::Deleted => {}
            ChangeKind::Renamed if !change.content_changed && !change.metadata_changed => {}
            _ => {
                out.insert(change.path.clone(), new[&change.path].clone());
            }
        }
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400), ..ProptestConfig::default() })]

    #[test]
    fn changes_lead_from_the_old_paths_to_the_new(
        before in proptest::collection::vec(op(), 0..60),
        after in proptest::collection::vec(op(), 0..25),
    ) {
        let nodes = Nodes::default();
        let mut model = Model::default();
        before.iter().for_each(|op| model.apply(op));
        let (old_seen, old) = (model.seen(false), tree(&nodes, &model));
        after.iter().for_each(|op| model.apply(op));
        let (new_seen, new) = (model.seen(false), tree(&nodes, &model));
        let list = changes(&nodes, Some(old), Some(new)).unwrap();
        for change in &list {
            let known = change.kind == ChangeKind::Deleted || new_seen.contains_key(&change.path);
            prop_assert!(known, "{:?}", kinds(&list));
        }
        prop_assert_eq!(&carry_out(&old_seen, &new_seen, &list), &new_seen, "{:?}", kinds(&list));
        for change in &list {
            let (was, is) = (old_seen.get(change.old_path.as_ref().unwrap_or(&change.path)), new_seen.get(&change.path));
            prop_assert_eq!(was.is_some() && change.kind != ChangeKind::Added, change.old.is_some(), "{:?}", change);
            match change.kind {
                ChangeKind::Added | ChangeKind::Deleted => {}
                _ => {
                    let (was, is) = (was.unwrap(), is.unwrap());
                    prop_assert_eq!(change.content_changed, was.0 != is.0 || was.3 != is.3, "{:?}", change);
                    prop_assert_eq!(change.metadata_changed, was.1 != is.1 || was.2 != is.2, "{:?}", change);
                }
            }
        }
        // No path is told twice, but where something else took a place that was left.
        for two in list.windows(2) {
            prop_assert!(two[0].path < two[1].path || two[0].kind == ChangeKind::Deleted, "{:?}", kinds(&list));
        }
        prop_assert_eq!(changes(&nodes, Some(new), Some(new)).unwrap(), vec![]);
        // Where nothing else changed, what was touched.
        let whole = changes_or_times(&nodes, Some(old), Some(new)).unwrap();
        if !list.is_empty() {
            prop_assert_eq!(whole, list);
        } else {
            let view = |root| TreeView::new(&nodes, root);
            let mtime = |root, path: &[u8]| view(root).resolve(path).unwrap().unwrap().1.mtime;
            let mut touched: BTreeSet<Vec<u8>> =
                new_seen.keys().filter(|path| mtime(old, path) != mtime(new, path)).cloned().collect();
            for change in whole {
                prop_assert_eq!(change.kind, ChangeKind::Metadata);
                prop_assert_eq!((change.content_changed, change.metadata_changed), (false, false));
                prop_assert!(old_seen.contains_key(&change.path) && new_seen.contains_key(&change.path));
                prop_assert_ne!(change.old.unwrap().1.mtime, change.new.unwrap().1.mtime);
                touched.remove(&change.path);
            }
            prop_assert!(touched.is_empty(), "{touched:?}");
        }
    }

    #[test]
    fn a_content_sum_follows_the_changes(
        batches in proptest::collection::vec(proptest::collection::vec(op(), 1..25), 1..6),
    ) {
        let nodes = Nodes::default();
        let mut model = Model::default();
        let mut state: Option<(Num, ContentSum, Summary)> = None;
        for batch in batches {
            let before = model.seen(true);
            batch.iter().for_each(|op| model.apply(op));
            let root = tree(&nodes, &model);
            let fresh = ContentSum::update(&nodes, None, root).unwrap();
            let updated = ContentSum::update(&nodes, state, root).unwrap();
            prop_assert_eq!(updated, fresh);
            let count = |kind| model.files.values().filter(|file| file.inode.kind == kind).count() as u64;
            let summary = Summary {
                files: count(FileType::File),
                dirs: count(FileType::Dir),
                others: count(FileType::Symlink),
                bytes: model.files.values().filter(|f| f.inode.kind == FileType::File).map(|f| f.inode.size).sum(),
                xattrs: model.files.values().map(|file| file.xattrs.len() as u64).sum(),
            };
            prop_assert_eq!(fresh.1, summary);
            if let Some((old, sum, _)) = state {
                prop_assert_eq!(sum == fresh.0, before == model.seen(true));
                prop_assert_eq!(content_equal(&nodes, old, root).unwrap(), sum == fresh.0);
            }
            let twin = tree(&nodes, &model.twin());
            prop_assert_eq!(ContentSum::update(&nodes, None, twin).unwrap().0, fresh.0);
            prop_assert!(content_equal(&nodes, root, twin).unwrap());
            prop_assert_eq!(changes(&nodes, Some(root), Some(twin)).unwrap(), vec![]);
            state = Some((root, fresh.0, fresh.1));
        }
    }

    #[test]
    fn paths_are_found_both_ways(ops in proptest::collection::vec(op(), 0..60)) {
        let nodes = Nodes::default();
        let mut model = Model::default();
        ops.iter().for_each(|op| model.apply(op));
        let root = tree(&nodes, &model);
        let view = TreeView::new(&nodes, root);
        let paths = model.paths();
        for (path, ino) in &paths {
            prop_assert_eq!(view.resolve(path).unwrap().map(|(ino, _)| ino), Some(*ino));
            prop_assert!(view.paths(*ino).unwrap().contains(path));
        }
        for ino in model.files.keys() {
            let least = paths.iter().find(|(_, of)| *of == ino).map(|(path, _)| path.clone());
            prop_assert_eq!(view.path(*ino).unwrap(), least);
        }
        prop_assert_eq!(view.resolve(b"a/nothing").unwrap(), None);
    }
}

fn kinds(list: &[Change]) -> Vec<(ChangeKind, String, Option<String>)> {
    let text = |bytes: &Vec<u8>| String::from_utf8(bytes.clone()).unwrap();
    list.iter().map(|change| (change.kind, text(&change.path), change.old_path.as_ref().map(text))).collect()
}

/// `a/` with files `a/a` and `a/b`, and a file `b`.
fn small() -> Model {
    let mut model = Model::default();
    for op in [Op::Mkdir(0, 0), Op::Create(1, 0, 1), Op::Create(1, 1, 2), Op::Create(0, 1, 3)] {
        model.apply(&op);
    }
    model
}

fn after(ops: &[Op]) -> Vec<(ChangeKind, String, Option<String>)> {
    let nodes = Nodes::default();
    let mut model = small();
    let old = tree(&nodes, &model);
    ops.iter().for_each(|op| model.apply(op));
    kinds(&changes(&nodes, Some(old), Some(tree(&nodes, &model))).unwrap())
}

#[test]
fn the_plain_cases() {
    use ChangeKind::*;
    let change = |kind, path: &str| (kind, path.to_owned(), None);
    let renamed = |from: &str, to: &str| (Renamed, to.to_owned(), Some(from.to_owned()));
    // Names in order: a, b, a/a, a/b.
    assert_eq!(small().paths().len(), 5);
    assert_eq!(after(&[Op::Rename(0, 0, 5)]), [renamed("a", "f")]);
    assert_eq!(after(&[Op::Rename(1, 0, 5)]), [renamed("b", "f")]);
    assert_eq!(after(&[Op::Replace(1, 5, false)]), [change(Modified, "b")]);
    assert_eq!(after(&[Op::Replace(1, 5, true)]), [change(Modified, "b")]);
    assert_eq!(after(&[Op::Replace(1, 3, false)]), []);
    assert_eq!(after(&[Op::Remake(0)]), []);
    assert_eq!(after(&[Op::Touch(0, 3), Op::Touch(3, 3)]), []);
    assert_eq!(
        after(&[Op::Remove(0)]),
        [change(Deleted, "a"), change(Deleted, "a/a"), change(Deleted, "a/b")]
    );
    assert_eq!(after(&[Op::Link(1, 1, 6)]), [change(Added, "a/g")]);
    assert_eq!(after(&[Op::Chmod(1, 0o700)]), [change(Metadata, "a")]);
    // a/a over b: b has new contents, a/a is gone.
    assert_eq!(after(&[Op::Rename(2, 0, 1)]), [change(Deleted, "a/a"), change(Modified, "b")]);
    // A change within a moved folder names both paths.
    let moved = (Modified, "f/a".to_owned(), Some("a/a".to_owned()));
    assert_eq!(after(&[Op::Write(0, 5), Op::Rename(0, 0, 5)]), [renamed("a", "f"), moved]);
    // A file turns into a link.
    assert_eq!(after(&[Op::Remove(1), Op::Symlink(0, 1, 1)]), [change(TypeChanged, "b")]);
}

#[test]
fn a_first_tree_is_all_new() {
    let nodes = Nodes::default();
    let root = tree(&nodes, &small());
    let list = kinds(&changes(&nodes, None, Some(root)).unwrap());
    assert_eq!(list.iter().map(|(_, path, _)| &path[..]).collect::<Vec<_>>(), ["", "a", "a/a", "a/b", "b"]);
    assert!(list.iter().all(|(kind, ..)| *kind == ChangeKind::Added));
    let list = kinds(&changes(&nodes, Some(root), None).unwrap());
    assert!(list.len() == 5 && list.iter().all(|(kind, ..)| *kind == ChangeKind::Deleted));
}

#[test]
fn costs_follow_the_changes() {
    let nodes = Nodes::default();
    let map = plain_tree(50_000);
    let old = edit(&nodes, None, edits(&map)).unwrap();
    let (sum, summary) = ContentSum::update(&nodes, None, old).unwrap();
    assert_eq!((summary.files, summary.dirs), (50_000, 501));
    // Move a folder of 100 files.
    let view = TreeView::new(&nodes, old);
    let dir = view.lookup(Ino::ROOT, b"folder-7").unwrap().unwrap();
    use atoll_store::tree::{Key, Value};
    let mut moved = vec![
        (Key::Dirent(Ino::ROOT, b"folder-7").to_vec(), None),
        (Key::Dirent(Ino::ROOT, b"elsewhere").to_vec(), Some(Value::Dirent(dir))),
        (Key::Parent(dir.ino, Ino::ROOT, b"folder-7").to_vec(), None),
        (Key::Parent(dir.ino, Ino::ROOT, b"elsewhere").to_vec(), Some(Value::Parent)),
    ];
    moved.sort_by(|a, b| a.0.cmp(&b.0));
    let new = edit(&nodes, Some(old), moved).unwrap();
    nodes.take_counts();
    let list = changes(&nodes, Some(old), Some(new)).unwrap();
    assert_eq!(kinds(&list), [(ChangeKind::Renamed, "elsewhere".into(), Some("folder-7".into()))]);
    assert!(nodes.take_counts().0.len() < 60);
    let updated = ContentSum::update(&nodes, Some((old, sum, summary)), new).unwrap();
    assert!(nodes.take_counts().0.len() < 2_000);
    assert_eq!(updated, ContentSum::update(&nodes, None, new).unwrap());
    assert_eq!(updated.1, summary);
    assert!(nodes.hash(old).unwrap() != nodes.hash(new).unwrap());
}
