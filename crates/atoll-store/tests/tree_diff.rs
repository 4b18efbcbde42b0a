//! The difference of two trees is that of their maps, and costs no more than what differs.

mod tree_common;

use atoll_store::Num;
use atoll_store::tree::{Difference, Extent, FileType, Key, Value, diff, edit};
use proptest::prelude::*;
use tree_common::*;

fn expected(old: &Map, new: &Map) -> Vec<Difference> {
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let differ = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    differ
        .map(|key| Difference { key: key.clone(), old: old.get(key).cloned(), new: new.get(key).cloned() })
        .collect()
}

fn found(nodes: &Nodes, old: Option<Num>, new: Option<Num>) -> Vec<Difference> {
    diff(nodes, old, new).map(Result::unwrap).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(96), ..ProptestConfig::default() })]

    #[test]
    fn a_diff_of_trees_is_the_diff_of_their_maps(
        shared in proptest::collection::vec(entry(), 0..300),
        only in proptest::collection::vec((entry(), any::<bool>()), 0..60),
        sizes in (0usize..2, 0u64..4_000),
    ) {
        let nodes = Nodes::default();
        let mut old: Map = shared.into_iter().collect();
        if sizes.0 > 0 {
            old.extend(plain_tree(sizes.1));
        }
        let mut new = old.clone();
        for ((key, value), is_new) in only {
            if is_new { new.insert(key, value) } else { old.insert(key, value) };
        }
        let gone: Vec<_> = new.keys().step_by(new.len() / 20 + 1).cloned().collect();
        gone.iter().for_each(|key| { new.remove(key); });
        let a = edit(&nodes, None, edits(&old)).unwrap();
        let b = edit(&nodes, None, edits(&new)).unwrap();
        prop_assert_eq!(found(&nodes, Some(a), Some(b)), expected(&old, &new));
        prop_assert_eq!(found(&nodes, Some(b), Some(a)), expected(&new, &old));
        prop_assert_eq!(found(&nodes, None, Some(b)), expected(&Map::new(), &new));
        prop_assert_eq!(found(&nodes, Some(a), None), expected(&old, &Map::new()));
        prop_assert_eq!(found(&nodes, Some(a), Some(a)), []);
    }
}

#[test]
fn a_diff_reads_only_what_differs() {
    let nodes = Nodes::default();
    let mut map = plain_tree(50_000);
    let old = edit(&nodes, None, edits(&map)).unwrap();
    // New entries shift the boundaries behind them; a few nodes later all is in step again.
    for number in 0..300 {
        map.insert(
            Key::Extent(ino(1_000_001), number * 4096 + 4096).to_vec(),
            Value::Extent(Extent::Inline([1; 64].into())),
        );
    }
    map.insert(Key::Inode(ino(40_000_000)).to_vec(), Value::Inode(inode(FileType::File, 3)));
    let new = edit(&nodes, Some(old), edits(&map)).unwrap();
    nodes.take_counts();
    assert_eq!(found(&nodes, Some(old), Some(new)).len(), 301);
    let read = nodes.take_counts().0.len();
    assert!(read < 40, "{read} nodes read");
}

#[test]
fn chunks_with_one_hash_are_equal() {
    let nodes = Nodes::default();
    let mut map = plain_tree(1_000);
    let old = edit(&nodes, None, edits(&map)).unwrap();
    let key = Key::Extent(ino(1_000_001), 0).to_vec();
    map.insert(key.clone(), Value::Extent(Extent::Chunk { num: Num(1 + TWINS), len: 4096 }));
    let twin = edit(&nodes, None, edits(&map)).unwrap();
    assert_eq!(found(&nodes, Some(old), Some(twin)), []);
    map.insert(key, Value::Extent(Extent::Chunk { num: Num(1 + TWINS), len: 4095 }));
    let other = edit(&nodes, None, edits(&map)).unwrap();
    assert_eq!(found(&nodes, Some(old), Some(other)).len(), 1);
}
