//! A store by itself: what goes in comes out, also after opening again and without its database.

mod store_support;

use std::collections::BTreeMap;

use atoll_store::store::{NewOperation, Profile, RefName, RefState};
use atoll_store::{Code, Hash, Num, Objects, Sink, Store};
use store_support::*;

#[test]
fn a_commit_comes_back_also_from_another_opening_and_without_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let small = some_files(1, 5, 1000);
    let large = some_files(2, 300, 3000);
    let first = commit_files(&store, "main", &small, "small").unwrap();
    let second = commit_files(&store, "main", &large, "large").unwrap();
    assert_eq!((first.seq, second.seq), (1, 2));
    let stats = store.stats().unwrap();
    assert_eq!((stats.packs, stats.embedded_packs), (1, 1), "{stats:?}");
    let check = |store: &Store| {
        assert_eq!(files_of(store, &first.commits[0]).unwrap(), small);
        assert_eq!(files_of(store, &second.commits[0]).unwrap(), large);
        assert_eq!(store.resolve("main").unwrap(), second.commits[0]);
        assert_eq!(store.resolve("main~1").unwrap(), first.commits[0]);
        assert_eq!(store.operations(10).unwrap().len(), 2);
    };
    check(&store);
    let path = store.dir().to_owned();
    let before = store.refs().unwrap();
    drop(store);
    check(&Store::open(&path).unwrap());
    wipe_database(&path);
    let rebuilt = Store::open(&path).unwrap();
    check(&rebuilt);
    assert_eq!(rebuilt.refs().unwrap(), before);
    assert_eq!(rebuilt.stats().unwrap().objects, stats.objects);
    // Numbers are not handed out again.
    let writer = rebuilt.writer().unwrap();
    let num = writer.put_chunk(&noise(99, 500)).unwrap();
    assert!(writer.hash(num).is_ok());
    assert!(num.0 > stats.objects);
}

#[test]
fn a_database_wiped_under_an_open_store_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let other = Store::open(store.dir()).unwrap();
    let files = some_files(1, 3, 500);
    commit_files(&store, "main", &files, "one").unwrap();
    wipe_database(store.dir());
    assert_eq!(files_of(&other, &other.resolve("main").unwrap()).unwrap(), files);
    commit_files(&store, "main", &some_files(2, 3, 500), "two").unwrap();
    assert_eq!(other.resolve("main~1").unwrap(), store.resolve("main^").unwrap());
    assert_eq!(other.operations(9).unwrap().len(), 2);
}

#[test]
fn a_database_that_is_garbage_is_set_aside_and_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let files = some_files(1, 3, 500);
    commit_files(&store, "main", &files, "one").unwrap();
    let path = store.dir().to_owned();
    drop(store);
    std::fs::write(path.join("meta.db"), noise(5, 20_000)).unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(files_of(&store, &store.resolve("main").unwrap()).unwrap(), files);
    assert!(path.join("meta.db.damaged-1").exists());
}

#[test]
fn equal_chunks_are_stored_once_across_commits_and_threads() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let chunks: Vec<Vec<u8>> = (0..200).map(|seed| noise(seed, 2000)).collect();
    let writer = store.writer().unwrap();
    let numbers: Vec<Vec<Num>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut batch = writer.batch();
                    let numbers = chunks.iter().map(|chunk| batch.put(chunk).unwrap()).collect();
                    batch.finish().unwrap();
                    numbers
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(numbers.windows(2).all(|pair| pair[0] == pair[1]));
    for (num, chunk) in numbers[0].iter().zip(&chunks) {
        assert_eq!(&writer.chunk(*num).unwrap()[..], &chunk[..]);
    }
    let root = tree_of(&writer, &BTreeMap::new()).unwrap();
    commit_tree(&store, writer, "main", root, "chunks").unwrap();
    let writer = store.writer().unwrap();
    for (num, chunk) in numbers[0].iter().zip(&chunks) {
        assert_eq!(writer.put_chunk(chunk).unwrap(), *num);
        assert_eq!(store.find(&Hash::of(chunk)).unwrap(), Some(*num));
    }
}

#[test]
fn a_chunk_can_be_read_before_its_batch_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let writer = store.writer().unwrap();
    let mut batch = writer.batch();
    let num = batch.put(b"waiting in its group").unwrap();
    assert_eq!(&writer.chunk(num).unwrap()[..], b"waiting in its group");
    let big = noise(3, 400_000);
    let large = batch.put(&big).unwrap();
    assert_eq!(&writer.chunk(large).unwrap()[..], &big[..]);
    let empty = batch.put(b"").unwrap();
    assert_eq!(writer.chunk(empty).unwrap().len(), 0);
    drop(batch);
    let error =
        store.publish(writer, NewOperation { kind: "test".to_owned(), ..Default::default() }).unwrap_err();
    assert_eq!(error.code, Code::Usage);
    assert!(error.message.contains("batch"), "{error}");
    assert_eq!(store.operations(9).unwrap().len(), 0);
}

#[test]
fn a_dropped_writer_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let writer = store.writer().unwrap();
    for seed in 0..100 {
        writer.put_chunk(&noise(seed, 10_000)).unwrap();
    }
    assert_eq!(std::fs::read_dir(store.dir().join("packs")).unwrap().count(), 1);
    drop(writer);
    assert_eq!(std::fs::read_dir(store.dir().join("packs")).unwrap().count(), 0);
}

#[test]
fn a_lost_race_says_so_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let first = commit_files(&store, "main", &some_files(1, 2, 300), "one").unwrap().commits[0];
    let old = store.get_ref(&branch("main")).unwrap();
    commit_files(&store, "main", &some_files(2, 2, 300), "two").unwrap();
    let new = Some(RefState { commit: first, base: first, folder: None });
    let error = move_ref(&store, "test", branch("main"), old.clone(), new.clone()).unwrap_err();
    assert_eq!(error.code, Code::Moved);
    assert!(error.message.contains("main") && error.message.contains("atoll"), "{error}");
    assert_eq!(move_ref(&store, "test", branch("main"), None, new.clone()).unwrap_err().code, Code::Exists);
    assert_eq!(move_ref(&store, "test", branch("gone"), old, new.clone()).unwrap_err().code, Code::Moved);
    assert_eq!(
        move_ref(&store, "test", branch("a b"), None, new.clone()).unwrap_err().code,
        Code::InvalidName
    );
    assert_eq!(move_ref(&store, "test", branch("main/x"), None, new.clone()).unwrap_err().code, Code::Exists);
    let unknown = Hash::of(b"unknown");
    let missing = Some(RefState { commit: unknown, base: unknown, folder: None });
    assert_eq!(move_ref(&store, "test", branch("x"), None, missing).unwrap_err().code, Code::NotFound);
    assert_eq!(store.operations(9).unwrap().len(), 2);
    move_ref(&store, "tag", RefName::Tag("v1".to_owned()), None, new).unwrap();
    assert_eq!(store.resolve("v1").unwrap(), first);
    assert_eq!(store.resolve("tag/v1").unwrap(), first);
}

#[test]
fn references_resolve_as_people_expect() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let ids: Vec<Hash> = (0..5)
        .map(|n| commit_files(&store, "main", &some_files(n, 1, 200), &format!("{n}")).unwrap().commits[0])
        .collect();
    for (text, index) in [
        ("main", 4),
        ("main~", 3),
        ("main~3", 1),
        ("main^", 3),
        ("main^^~2", 0),
        ("branch/main", 4),
        ("main^0", 4),
    ] {
        assert_eq!(store.resolve(text).unwrap(), ids[index], "{text}");
    }
    assert_eq!(store.resolve(&ids[2].hex()).unwrap(), ids[2]);
    assert_eq!(store.resolve(&format!("{}~1", &ids[2].hex()[..10])).unwrap(), ids[1]);
    let far = store.resolve("main~9").unwrap_err();
    assert_eq!(far.code, Code::NotFound);
    assert!(far.message.contains("first one"), "{far}");
    let near = store.resolve("mian").unwrap_err();
    assert!(near.message.contains("did you mean 'main'?"), "{near}");
    assert_eq!(store.resolve("main~x").unwrap_err().code, Code::Usage);
    assert_eq!(store.resolve("abcd").unwrap_err().code, Code::NotFound);
    assert_eq!(store.resolve("").unwrap_err().code, Code::NotFound);
}

#[test]
fn history_is_walked_in_order_and_meets() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let main: Vec<Hash> = (0..3)
        .map(|n| commit_files(&store, "main", &some_files(n, 1, 200), &format!("{n}")).unwrap().commits[0])
        .collect();
    fork(&store, "side", main[1]).unwrap();
    let side = commit_files(&store, "side", &some_files(9, 1, 200), "side").unwrap().commits[0];
    let other = commit_files(&store, "other", &some_files(10, 1, 200), "other").unwrap().commits[0];
    let walked: Vec<Hash> = store.ancestors(&side).map(|commit| commit.unwrap().id).collect();
    assert_eq!(walked, [side, main[1], main[0]]);
    assert!(store.is_ancestor(&main[1], &side).unwrap());
    assert!(!store.is_ancestor(&main[2], &side).unwrap());
    assert!(store.is_ancestor(&side, &side).unwrap());
    assert_eq!(store.merge_base(&side, &main[2]).unwrap(), Some(main[1]));
    assert_eq!(store.merge_base(&side, &main[0]).unwrap(), Some(main[0]));
    assert_eq!(store.merge_base(&side, &other).unwrap(), None);
    assert_eq!(store.merge_base(&side, &side).unwrap(), Some(side));
}

#[test]
fn a_store_of_a_newer_version_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let path = store.dir().to_owned();
    drop(store);
    let config = std::fs::read_to_string(path.join("atoll.toml")).unwrap();
    std::fs::write(path.join("atoll.toml"), config.replace("format = 1", "format = 2\nshape = \"new\""))
        .unwrap();
    let error = Store::open(&path).err().unwrap();
    assert_eq!(error.code, Code::NewerFormat);
    assert!(error.message.contains("update atoll"), "{error}");
}

#[test]
fn a_folder_without_a_store_and_one_with_something_else_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Store::open(dir.path()).err().unwrap().code, Code::NoStore);
    assert_eq!(Store::open(&dir.path().join("missing")).err().unwrap().code, Code::NoStore);
    let store = new_store(dir.path());
    assert_eq!(Store::create(store.dir(), Profile::Full).err().unwrap().code, Code::StoreExists);
    assert_eq!(Store::create(dir.path(), Profile::Full).err().unwrap().code, Code::StoreExists);
    // What an interrupted creation left is no obstacle.
    let partial = dir.path().join("partial");
    std::fs::create_dir_all(partial.join("packs")).unwrap();
    std::fs::write(partial.join("oplog"), b"torn").unwrap();
    Store::create(&partial, Profile::Off).unwrap();
}
