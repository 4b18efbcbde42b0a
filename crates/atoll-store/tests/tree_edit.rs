//! The same map is the same tree, whatever the order and the batches of its making.

mod tree_common;

use atoll_store::tree::{Cursor, Extent, FileType, Key, Node, Value, edit, get, scan};
use atoll_store::{Code, Ino, Num, Objects};
use proptest::prelude::*;
use tree_common::*;

/// Checks a tree against its map in every way that there is to read it.
fn check(nodes: &Nodes, root: Num, map: &Map) {
    assert!(&collect(nodes, root) == map, "a tree of {} entries is not its map", map.len());
    for (key, value) in map.iter().step_by(map.len() / 50 + 1) {
        assert_eq!(get(nodes, root, key).unwrap().as_ref(), Some(value));
        let mut cursor = Cursor::seek(nodes, root, key).unwrap();
        assert_eq!((cursor.key(), cursor.value().as_ref()), (Some(&key[..]), Some(value)));
        let next =
            map.range::<Vec<u8>, _>((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded)).next();
        cursor.advance().unwrap();
        assert_eq!(cursor.key(), next.map(|(key, _)| &key[..]));
    }
}

/// The sizes of the nodes of each level, and that no node is larger than the rule allows.
fn shape(nodes: &Nodes, root: Num) -> Vec<usize> {
    let mut counts = Vec::new();
    let mut level = vec![root];
    while !level.is_empty() {
        counts.push(level.len());
        level = level.iter().flat_map(|num| nodes.node(*num).unwrap().children()).collect();
    }
    counts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(96), ..ProptestConfig::default() })]

    #[test]
    fn batches_in_any_order_give_the_tree_of_the_map(
        batches in proptest::collection::vec(proptest::collection::vec((entry(), 0u8..4), 0..120), 0..12),
    ) {
        let nodes = Nodes::default();
        let mut map = Map::new();
        let mut root = None;
        for batch in batches {
            let mut batch: std::collections::BTreeMap<_, _> =
                batch.into_iter().map(|((key, value), dice)| (key, (dice > 0).then_some(value))).collect();
            // Take some old entries away again.
            for (at, key) in map.keys().enumerate() {
                if at % 7 == batch.len() % 7 {
                    batch.entry(key.clone()).or_insert(None);
                }
            }
            for (key, value) in &batch {
                match value {
                    Some(value) => map.insert(key.clone(), value.clone()),
                    None => map.remove(key),
                };
            }
            root = Some(edit(&nodes, root, batch).unwrap());
            let fresh = edit(&nodes, None, edits(&map)).unwrap();
            prop_assert_eq!(root, Some(fresh));
            check(&nodes, fresh, &map);
        }
    }

    #[test]
    fn many_small_entries_make_high_trees_and_shrink_again(
        seeds in proptest::collection::vec((any::<u32>(), any::<bool>()), 1..12),
    ) {
        let nodes = Nodes::default();
        let mut map = Map::new();
        let mut root = edit(&nodes, None, []).unwrap();
        for (seed, grow) in seeds {
            // Runs of keys: whole nodes come and go, also at the ends.
            let start = u64::from(seed) % 50_000 + 1;
            let len = u64::from(seed >> 16) % 6_000;
            let batch: Vec<_> = (start..start + len)
                .map(|number| {
                    let value = Value::Inode(inode(FileType::File, number ^ u64::from(seed)));
                    (Key::Inode(ino(number)).to_vec(), grow.then_some(value))
                })
                .collect();
            for (key, value) in &batch {
                match value {
                    Some(value) => map.insert(key.clone(), value.clone()),
                    None => map.remove(key),
                };
            }
            root = edit(&nodes, Some(root), batch).unwrap();
            prop_assert_eq!(root, edit(&nodes, None, edits(&map)).unwrap());
            check(&nodes, root, &map);
        }
        let gone: Vec<_> = map.keys().map(|key| (key.clone(), None)).collect();
        let empty = edit(&nodes, Some(root), gone).unwrap();
        prop_assert_eq!(empty, edit(&nodes, None, []).unwrap());
    }
}

#[test]
fn one_entry_at_a_time_forwards_and_backwards() {
    let nodes = Nodes::default();
    let map = plain_tree(600);
    let fresh = edit(&nodes, None, edits(&map)).unwrap();
    let mut forwards = edit(&nodes, None, []).unwrap();
    for one in edits(&map) {
        forwards = edit(&nodes, Some(forwards), [one]).unwrap();
    }
    let mut backwards = edit(&nodes, None, []).unwrap();
    for one in edits(&map).collect::<Vec<_>>().into_iter().rev() {
        backwards = edit(&nodes, Some(backwards), [one]).unwrap();
    }
    assert_eq!((forwards, backwards), (fresh, fresh));
    for key in map.keys() {
        backwards = edit(&nodes, Some(backwards), [(key.clone(), None)]).unwrap();
    }
    assert_eq!(backwards, edit(&nodes, None, []).unwrap());
}

#[test]
fn an_empty_tree_has_nothing() {
    let nodes = Nodes::default();
    let root = edit(&nodes, None, []).unwrap();
    check(&nodes, root, &Map::new());
    assert_eq!(get(&nodes, root, &Key::Inode(Ino::ROOT).to_vec()).unwrap(), None);
    assert_eq!(scan(&nodes, root, b"a", Some(b"b")).count(), 0);
    assert_eq!(Cursor::first(&nodes, root).unwrap().key(), None);
}

#[test]
fn the_largest_items_fit() {
    let nodes = Nodes::default();
    let mut map = plain_tree(300);
    for number in 0..40 {
        let xattr = Key::Xattr(ino(1_000_001 + number), &[b'x'; 255]).to_vec();
        map.insert(xattr, Value::Xattr(vec![number as u8; 65_536].into()));
        let target = Key::Extent(ino(2_000_000 + number), 0).to_vec();
        map.insert(target, Value::Extent(Extent::Inline(vec![b't'; 4095].into())));
        let name = Key::Dirent(ino(1_000_000), &vec![b'n'; 1024 - number as usize]).to_vec();
        let entry =
            atoll_store::tree::Dirent { ino: ino(5), kind: FileType::File, cookie: u64::MAX - number };
        map.insert(name, Value::Dirent(entry));
    }
    let root = edit(&nodes, None, edits(&map)).unwrap();
    check(&nodes, root, &map);
}

#[test]
fn an_edit_reads_and_writes_only_its_path() {
    let nodes = Nodes::default();
    let map = plain_tree(100_000);
    let root = edit(&nodes, None, edits(&map)).unwrap();
    let shape = shape(&nodes, root);
    assert!(shape.len() <= 4 && shape[0] == 1, "{shape:?}");
    nodes.take_counts();
    let changed: Vec<_> = (0..10u64)
        .map(|number| {
            let key = Key::Inode(ino(1_000_001 + number * 10_100)).to_vec();
            assert!(map.contains_key(&key));
            (key, Some(Value::Inode(inode(FileType::File, 77))))
        })
        .collect();
    edit(&nodes, Some(root), changed).unwrap();
    let (read, put) = nodes.take_counts();
    // Ten leaves, at most ten nodes of each level above, read once for each level below; few boundaries move.
    assert!(put.len() <= 10 * shape.len() + 5, "{} nodes written of {shape:?}", put.len());
    assert!(read.len() <= 150, "{} nodes read of {shape:?}", read.len());
    assert!(put.iter().all(Option::is_some), "each replaces a node: {put:?}");
}

#[test]
fn an_edit_that_changes_nothing_writes_nothing() {
    let nodes = Nodes::default();
    let map = plain_tree(5_000);
    let root = edit(&nodes, None, edits(&map)).unwrap();
    nodes.take_counts();
    let absent = (Key::Inode(ino(77)).to_vec(), None);
    assert_eq!(edit(&nodes, Some(root), [absent]).unwrap(), root);
    assert_eq!(edit(&nodes, Some(root), edits(&map)).unwrap(), root);
    assert_eq!(nodes.take_counts().1, []);
}

#[test]
fn node_sizes_are_even() {
    let nodes = Nodes::default();
    let root = edit(&nodes, None, edits(&plain_tree(50_000))).unwrap();
    let mut leaves = vec![root];
    while nodes.node(leaves[0]).unwrap().level() > 0 {
        leaves = leaves.iter().flat_map(|num| nodes.node(*num).unwrap().children()).collect();
    }
    let mut sizes: Vec<_> = leaves.iter().map(|num| nodes.node(*num).unwrap().stored().len()).collect();
    sizes.sort();
    let (low, high) = (sizes[sizes.len() / 20], sizes[sizes.len() * 19 / 20]);
    assert!(high < low * 4, "19 of 20 nodes between {low} and {high} bytes");
}

#[test]
fn replaces_names_a_node_only_if_it_gave_a_good_part() {
    let nodes = Nodes::default();
    let all = plain_tree(20_000);
    let few: Map = all.iter().take(30).map(|(key, value)| (key.clone(), value.clone())).collect();
    let small = edit(&nodes, None, edits(&few)).unwrap();
    nodes.take_counts();
    let grown = edit(&nodes, Some(small), edits(&all)).unwrap();
    assert_eq!(grown, edit(&nodes, None, edits(&all)).unwrap());
    let replacing = nodes.take_counts().1.into_iter().flatten().count();
    assert!(replacing <= 2, "{replacing} nodes replace the one old leaf");
}

#[test]
fn wrong_edits_are_refused() {
    let nodes = Nodes::default();
    let (one, two) = (Key::Inode(ino(1)).to_vec(), Key::Inode(ino(2)).to_vec());
    let value = || Some(Value::Inode(inode(FileType::File, 1)));
    let refused =
        |edits: Vec<(Vec<u8>, Option<Value>)>| edit(&nodes, None, edits).unwrap_err().code == Code::Usage;
    assert!(refused(vec![(two.clone(), value()), (one.clone(), value())]));
    assert!(refused(vec![(one.clone(), value()), (one.clone(), value())]));
    assert!(refused(vec![(one.clone(), Some(Value::Parent))]));
    assert!(refused(vec![(b"short".to_vec(), None)]));
    assert!(refused(vec![(Key::Dirent(ino(1), b"a/b").to_vec(), None)]));
    assert!(refused(vec![(Key::Extent(ino(1), 0).to_vec(), Some(Value::Extent(Extent::Inline([].into()))))]));
    assert!(refused(vec![(
        Key::Extent(ino(1), 0).to_vec(),
        Some(Value::Extent(Extent::Chunk { num: Num(1), len: 0 }))
    )]));
}

#[test]
fn a_node_that_does_not_fit_its_parent_is_damage() {
    let nodes = Nodes::default();
    let root = edit(&nodes, None, edits(&plain_tree(2_000))).unwrap();
    let top = nodes.node(root).unwrap();
    assert_eq!(top.level(), 1);
    // A parent whose children are itself, or exchanged, or leaves of another place.
    for wrong in [root, top.child(1)] {
        nodes.replace(top.child(0), nodes.node(wrong).unwrap());
        let failed = scan(&nodes, root, &[], None).find_map(Result::err).expect("the damage is noticed");
        assert_eq!(failed.code, Code::Damaged);
        assert_eq!(get(&nodes, root, &Key::Inode(ino(1)).to_vec()).unwrap_err().code, Code::Damaged);
        assert_eq!(get(&nodes, root, &Key::Inode(ino(1)).to_vec()).unwrap_err().code, Code::Damaged);
    }
}

#[test]
fn nodes_are_the_same_in_both_codings() {
    let nodes = Nodes::default();
    let root = edit(&nodes, None, edits(&plain_tree(3_000))).unwrap();
    let node: &Node = &nodes.node(root).unwrap();
    let canonical = node.canonical(&nodes).unwrap();
    let again = Node::from_canonical(&canonical, |hash| Ok(nodes.find(&hash)?.expect("a child"))).unwrap();
    assert_eq!(&again, node);
}
