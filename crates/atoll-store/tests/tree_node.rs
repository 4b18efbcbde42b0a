//! Nodes are read from bytes that may be anything.

mod tree_common;

use atoll_store::tree::{Extent, Inode, Key, Node, Value, edit};
use atoll_store::{Code, Hash, Num, Objects};
use proptest::prelude::*;
use tree_common::*;

/// Reads bytes as a node in both codings: an error, or a node that gives the same bytes again.
fn read(nodes: &Nodes, bytes: &[u8]) -> (bool, bool) {
    let stored = match Node::from_stored(bytes) {
        Ok(node) => {
            assert_eq!(node.stored(), bytes);
            use_it(&node);
            true
        }
        Err(error) => {
            assert_eq!(error.code, Code::Damaged);
            false
        }
    };
    let mut named = Vec::new();
    let number = |hash: Hash| {
        named.push(hash);
        Ok(Num(named.len() as u64))
    };
    let canonical = match Node::from_canonical(bytes, number) {
        Ok(node) => {
            use_it(&node);
            true
        }
        Err(error) => {
            assert_eq!(error.code, Code::Damaged);
            false
        }
    };
    let _ = nodes;
    (stored, canonical)
}

fn use_it(node: &Node) {
    for at in 0..node.len() {
        let key = Key::decode(node.key(at)).unwrap();
        if node.level() == 0 {
            let fits = matches!(
                (key, node.value(at)),
                (Key::Inode(_), Value::Inode(_))
                    | (Key::Parent(..), Value::Parent)
                    | (Key::Xattr(..), Value::Xattr(_))
                    | (Key::Dirent(..), Value::Dirent(_))
                    | (Key::Extent(..), Value::Extent(_))
            );
            assert!(fits);
        }
        assert_eq!(node.search(node.key(at)), Ok(at));
    }
    let _ = (node.children(), node.chunks(), node.memory(), format!("{node:?}"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(512), ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_safe(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        read(&Nodes::default(), &bytes);
        read(&Nodes::default(), &[&[1, 0][..], &bytes].concat());
        read(&Nodes::default(), &[&[1, 1][..], &bytes].concat());
    }

    #[test]
    fn damaged_nodes_are_an_error_or_another_node(
        entries in proptest::collection::vec(entry(), 1..40),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<proptest::sample::Index>(),
    ) {
        let nodes = Nodes::default();
        let map: Map = entries.into_iter().collect();
        let node = nodes.node(edit(&nodes, None, edits(&map)).unwrap()).unwrap();
        for form in [node.stored(), node.canonical(&nodes).unwrap()] {
            let mut bytes = form.clone();
            for (at, byte) in &damage {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            read(&nodes, &bytes);
            read(&nodes, &form[..cut.index(form.len())]);
            read(&nodes, &[&form[..], &[0]].concat());
        }
    }

    #[test]
    fn inodes_survive(inode in any_inode()) {
        let nodes = Nodes::default();
        let key = Key::Inode(ino(9)).to_vec();
        let root = edit(&nodes, None, [(key, Some(Value::Inode(inode)))]).unwrap();
        prop_assert_eq!(nodes.node(root).unwrap().value(0), Value::Inode(inode));
    }
}

#[test]
fn a_truncated_or_longer_node_is_damage() {
    let nodes = Nodes::default();
    let node = nodes.node(edit(&nodes, None, edits(&plain_tree(20))).unwrap()).unwrap();
    let stored = node.stored();
    assert!(read(&nodes, &stored).0);
    for len in 0..stored.len() {
        assert!(!read(&nodes, &stored[..len]).0, "{len} bytes");
    }
    assert!(!read(&nodes, &[&stored[..], b"x"].concat()).0);
    // A newer format.
    assert_eq!(read(&nodes, &[&[2], &stored[1..]].concat()), (false, false));
}

#[test]
fn a_huge_count_allocates_nothing() {
    let nodes = Nodes::default();
    assert_eq!(
        read(&nodes, &[1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        (false, false)
    );
    assert_eq!(read(&nodes, &[1, 0, 0x80, 0x80, 0x80, 0x80, 0x10]), (false, false));
}

/// The bytes themselves, so that a change of the format is noticed.
#[test]
fn the_format_is_as_written_down() {
    let nodes = Nodes::default();
    let mut map = Map::new();
    let time = atoll_store::tree::Time { sec: -2, nsec: 300 };
    let inode = Inode {
        size: 5,
        mtime: time,
        ctime: time,
        btime: time,
        ..inode(atoll_store::tree::FileType::File, 1)
    };
    map.insert(Key::Inode(ino(2)).to_vec(), Value::Inode(Inode { mode: 0o644, uid: 0, gid: 200, ..inode }));
    map.insert(Key::Parent(ino(2), ino(1), b"n").to_vec(), Value::Parent);
    map.insert(Key::Extent(ino(2), 0).to_vec(), Value::Extent(Extent::Inline((*b"hello").into())));
    let chunk = Value::Extent(Extent::Chunk { num: Num(70), len: 128 });
    map.insert(Key::Extent(ino(2), 256).to_vec(), chunk);
    let node = nodes.node(edit(&nodes, None, edits(&map)).unwrap()).unwrap();
    let mut expected = vec![1, 0, 4];
    expected.extend([0, 9, 0, 0, 0, 0, 0, 0, 0, 2, 1]);
    expected.extend([1 | 8 | 16 | 32, 0xa4, 3, 0, 0xc8, 1, 5, 3, 0xac, 2]);
    expected.extend(inode.birth.0.to_le_bytes());
    expected.extend([8, 10, 2, 0, 0, 0, 0, 0, 0, 0, 1, b'n']);
    expected.extend([8, 9, 5, 0, 0, 0, 0, 0, 0, 0, 0, 5, b'h', b'e', b'l', b'l', b'o']);
    let before = expected.len();
    expected.extend([15, 2, 1, 0, 0, 0x80, 1, 0x8c, 1]);
    assert_eq!(node.stored(), expected);
    expected.truncate(before);
    expected.extend([15, 2, 1, 0, 0, 0x80, 1]);
    expected.extend(nodes.hash(Num(70)).unwrap().0);
    assert_eq!(node.canonical(&nodes).unwrap(), expected);
}
