//! Figures, not a test: `cargo test --release -p atoll-store --test tree_speed -- --ignored --nocapture`.

mod tree_common;

use std::time::Instant;

use atoll_store::tree::{ContentSum, changes, diff, edit, load_all};
use atoll_store::{MemObjects, Objects, Sink};
use tree_common::*;

#[test]
#[ignore = "prints figures"]
fn figures() {
    let objects = MemObjects::new();
    let numbers: Vec<_> =
        (0..100_000u64).map(|number| objects.put_chunk(&number.to_le_bytes()).unwrap()).collect();
    assert_eq!(numbers[0].0, 1);
    let map = plain_tree(100_000);
    let all: Vec<_> = edits(&map).collect();
    let start = Instant::now();
    let root = edit(&objects, None, all).unwrap();
    println!("build {} entries: {:?}", map.len(), start.elapsed());
    let start = Instant::now();
    let sum = ContentSum::update(&objects, None, root).unwrap();
    println!("content sum: {:?}", start.elapsed());
    let start = Instant::now();
    let list = changes(&objects, None, Some(root)).unwrap();
    println!("changes from nothing, {}: {:?}", list.len(), start.elapsed());
    let start = Instant::now();
    println!("diff with nothing: {}, {:?}", diff(&objects, None, Some(root)).count(), start.elapsed());
    let start = Instant::now();
    let count = collect(&objects, root).len();
    println!("scan into a map: {count}, {:?}", start.elapsed());
    let start = Instant::now();
    let loaded = load_all(&objects, root).unwrap();
    println!("load all: {} inodes, {:?}", loaded.inodes.len(), start.elapsed());
    let start = Instant::now();
    let mut bytes = [0, 0, 0];
    let mut decode = std::time::Duration::ZERO;
    let mut memory = 0;
    let mut level = vec![root];
    while !level.is_empty() {
        let mut next = Vec::new();
        for num in &level {
            let node = objects.node(*num).unwrap();
            let stored = node.stored();
            bytes[0] += stored.len();
            bytes[1] += node.canonical(&objects).unwrap().len();
            bytes[2] += 1;
            let start = Instant::now();
            let again = atoll_store::tree::Node::from_stored(&stored).unwrap();
            decode += start.elapsed();
            memory += again.memory();
            next.extend(node.children());
        }
        level = next;
    }
    println!(
        "{bytes:?} bytes stored, canonical, nodes; {memory} in memory; decode {decode:?}; all {:?}",
        start.elapsed()
    );
    let mut changed = map.clone();
    for (at, value) in changed.values_mut().enumerate() {
        if at % 40_000 == 1
            && let atoll_store::tree::Value::Inode(inode) = value
        {
            inode.mode = 0o600;
        }
    }
    let edits: Vec<_> = edits(&changed).filter(|(key, value)| map.get(key) != value.as_ref()).collect();
    let start = Instant::now();
    let new = edit(&objects, Some(root), edits.clone()).unwrap();
    println!("edit {}: {:?}", edits.len(), start.elapsed());
    let start = Instant::now();
    ContentSum::update(&objects, Some((root, sum.0, sum.1)), new).unwrap();
    println!("content sum of that: {:?}", start.elapsed());
    let start = Instant::now();
    println!(
        "changes of that: {}, {:?}",
        changes(&objects, Some(root), Some(new)).unwrap().len(),
        start.elapsed()
    );
}
