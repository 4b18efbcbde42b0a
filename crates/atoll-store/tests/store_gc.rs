//! gc: what goes, what stays, and writers that sleep through it.

mod store_support;

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_store::store::{GcOptions, NewOperation, RefChange, RefState, Serving, Workspace};
use atoll_store::tree::{self, Dirent, Extent, FileType, Key, Time, Value};
use atoll_store::{Code, Hash, Ino, Num, Objects, Sink, Store};
use store_support::*;

const FORTNIGHT: Duration = Duration::from_secs(14 * 24 * 3600);
const THOROUGH: GcOptions = GcOptions { expire: Duration::ZERO, dry_run: false, thorough: true };

fn packs(store: &Store) -> usize {
    std::fs::read_dir(store.dir().join("packs")).unwrap().count()
}

#[test]
fn what_was_dropped_goes_when_its_operation_has_expired_and_not_before() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let kept = some_files(1, 100, 2000);
    commit_files(&store, "main", &kept, "kept").unwrap();
    commit_files(&store, "try", &some_files(2, 100, 2000), "dropped").unwrap();
    delete(&store, "try").unwrap();
    assert_eq!(packs(&store), 2);
    let report = store.gc(FORTNIGHT, false).unwrap();
    assert_eq!((report.commits_removed, report.packs_removed), (0, 0));
    let (undone, _) = store.undo(None).unwrap();
    assert_eq!(undone.kind, "drop");
    let dropped = store.resolve("try").unwrap();
    delete(&store, "try").unwrap();
    let dry = store.gc(Duration::ZERO, true).unwrap();
    assert_eq!((dry.commits_removed, dry.packs_removed), (1, 1));
    assert_eq!(packs(&store), 2);
    let report = store.gc(Duration::ZERO, false).unwrap();
    assert_eq!((report.commits_removed, report.packs_removed), (1, 1));
    assert!(report.bytes_freed > 190_000, "{report:?}");
    assert_eq!(packs(&store), 1);
    assert_eq!(store.commit(&dropped).unwrap_err().code, Code::NotFound);
    let error = store.undo(None).unwrap_err();
    assert_eq!(error.code, Code::NotFound);
    assert!(error.message.contains("gc"), "{error}");
    assert_eq!(files_of(&store, &store.resolve("main").unwrap()).unwrap(), kept);
    // Nothing is left to do.
    let again = store.gc(Duration::ZERO, false).unwrap();
    assert_eq!((again.commits_removed, again.objects_removed, again.packs_removed), (0, 0, 0));
    let path = store.dir().to_owned();
    drop(store);
    wipe_database(&path);
    let store = Store::open(&path).unwrap();
    assert_eq!(files_of(&store, &store.resolve("main").unwrap()).unwrap(), kept);
    assert_eq!(store.commit(&dropped).unwrap_err().code, Code::NotFound);
}

#[test]
fn a_mostly_dead_pack_is_copied_and_its_dead_objects_are_not_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let all = some_files(1, 200, 2000);
    commit_files(&store, "wide", &all, "all").unwrap();
    // Shares 30 chunks of the first pack, in groups with dead ones.
    let few: BTreeMap<_, _> =
        all.iter().step_by(7).map(|(name, bytes)| (name.clone(), bytes.clone())).collect();
    commit_files(&store, "narrow", &few, "few").unwrap();
    delete(&store, "wide").unwrap();
    let report = store.gc(Duration::ZERO, false).unwrap();
    assert_eq!(report.packs_added, 1, "{report:?}");
    assert!(report.objects_removed > 150, "{report:?}");
    let fresh = Store::open(store.dir()).unwrap();
    for store in [&store, &fresh] {
        assert_eq!(files_of(store, &store.resolve("narrow").unwrap()).unwrap(), few);
    }
    let dead = all.iter().nth(1).unwrap().1;
    assert_eq!(store.find(&Hash::of(dead)).unwrap(), None);
    let writer = store.writer().unwrap();
    let num = writer.put_chunk(dead).unwrap();
    assert_eq!(&writer.chunk(num).unwrap()[..], &dead[..]);
    let path = store.dir().to_owned();
    drop((writer, store, fresh));
    wipe_database(&path);
    let store = Store::open(&path).unwrap();
    assert_eq!(files_of(&store, &store.resolve("narrow").unwrap()).unwrap(), few);
    assert_eq!(store.find(&Hash::of(dead)).unwrap(), None);
}

#[test]
fn a_dead_object_that_stays_in_a_pack_is_not_found_also_after_a_rebuild() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let all = some_files(1, 200, 2000);
    commit_files(&store, "wide", &all, "all").unwrap();
    let most: BTreeMap<_, _> =
        all.iter().skip(20).map(|(name, bytes)| (name.clone(), bytes.clone())).collect();
    commit_files(&store, "narrow", &most, "most").unwrap();
    delete(&store, "wide").unwrap();
    let report = store.gc(Duration::ZERO, false).unwrap();
    assert_eq!(report.packs_added, 0, "{report:?}");
    assert!(report.objects_removed >= 20, "{report:?}");
    let dead = all.values().next().unwrap();
    assert_eq!(store.find(&Hash::of(dead)).unwrap(), None);
    let path = store.dir().to_owned();
    // Once from the log as it grew, once from a rewritten one.
    for rewritten in [false, true] {
        if rewritten {
            store.gc_with(&THOROUGH).unwrap();
        }
        wipe_database(&path);
        let store = Store::open(&path).unwrap();
        assert_eq!(store.find(&Hash::of(dead)).unwrap(), None);
        assert_eq!(files_of(&store, &store.resolve("narrow").unwrap()).unwrap(), most);
        assert_eq!(store.gc(Duration::ZERO, false).unwrap().objects_removed, 0);
    }
}

#[test]
fn small_commits_move_from_the_log_into_packs_and_the_log_shrinks() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let reader = Store::open(store.dir()).unwrap();
    let mut commits = Vec::new();
    for seed in 0..40 {
        let files = some_files(seed, 4, 1500);
        commits.push((commit_files(&store, "main", &files, &format!("{seed}")).unwrap().commits[0], files));
    }
    let check = |store: &Store| {
        for (commit, files) in &commits {
            assert_eq!(&files_of(store, commit).unwrap(), files);
        }
    };
    check(&reader);
    let before = store.stats().unwrap();
    assert_eq!((before.packs, before.embedded_packs), (0, 40));
    let report = store.gc_with(&GcOptions { expire: FORTNIGHT, ..THOROUGH }).unwrap();
    assert!(report.log_rewritten, "{report:?}");
    let after = store.stats().unwrap();
    assert_eq!((after.packs, after.embedded_packs, after.operations), (1, 0, 40));
    assert!(after.log_bytes < before.log_bytes / 4, "{before:?} {after:?}");
    check(&store);
    check(&reader);
    // The log goes on where it was rewritten.
    let files = some_files(77, 4, 1500);
    let last = commit_files(&reader, "main", &files, "after").unwrap().commits[0];
    assert_eq!(files_of(&store, &last).unwrap(), files);
    let path = store.dir().to_owned();
    drop((store, reader));
    wipe_database(&path);
    let store = Store::open(&path).unwrap();
    check(&store);
    assert_eq!(files_of(&store, &last).unwrap(), files);
    let walked = store.ancestors(&last).count();
    assert_eq!(walked, 41);
    assert!(!path.join("oplog.old").exists());
}

#[test]
fn a_small_rewrite_keeps_the_packs_that_stand_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    for seed in 0..60 {
        commit_files(&store, &format!("b{seed}"), &some_files(seed, 10, 3000), "x").unwrap();
    }
    for seed in 1..60 {
        delete(&store, &format!("b{seed}")).unwrap();
    }
    // Not thorough: what is live in the log stays there, what is dead goes with the rewrite.
    let report = store.gc(Duration::ZERO, false).unwrap();
    assert!(report.log_rewritten, "{report:?}");
    assert_eq!(store.stats().unwrap().embedded_packs, 1);
    let path = store.dir().to_owned();
    let check = |store: &Store| {
        assert_eq!(files_of(store, &store.resolve("b0").unwrap()).unwrap(), some_files(0, 10, 3000));
    };
    check(&store);
    check(&Store::open(&path).unwrap());
    wipe_database(&path);
    check(&Store::open(&path).unwrap());
}

#[test]
fn a_writer_that_slept_through_a_gc_is_told_when_it_relies_on_what_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    commit_files(&store, "main", &some_files(9, 3, 500), "kept").unwrap();
    let files = some_files(1, 50, 3000);
    let old = commit_files(&store, "try", &files, "try").unwrap().commits[0];
    // One writer found the chunks of `try`, one has only its own, one names the whole old tree, one forks.
    let finder = store.writer().unwrap();
    let found =
        tree_of(&finder, &files.iter().take(10).map(|(name, bytes)| (name.clone(), bytes.clone())).collect())
            .unwrap();
    let own = store.writer().unwrap();
    let own_files = some_files(3, 50, 3000);
    let own_root = tree_of(&own, &own_files).unwrap();
    let sharer = store.writer().unwrap();
    let old_root = store.commit(&old).unwrap().record.root;
    delete(&store, "try").unwrap();
    assert_eq!(store.gc(Duration::ZERO, false).unwrap().commits_removed, 1);
    let error = commit_tree(&store, finder, "found", found, "found").unwrap_err();
    assert_eq!(error.code, Code::Changed, "{error}");
    let error = commit_tree(&store, sharer, "shared", old_root, "shared").unwrap_err();
    assert!([Code::Changed, Code::Damaged].contains(&error.code), "{error}");
    assert_eq!(fork(&store, "forked", old).unwrap_err().code, Code::NotFound);
    let commit = commit_tree(&store, own, "own", own_root, "own").unwrap().commits[0];
    assert_eq!(files_of(&store, &commit).unwrap(), own_files);
    assert!(store.check(&mut |_| ()).unwrap().is_clean());
}

#[test]
fn what_a_workspace_or_a_sleeping_commit_stands_on_stays() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let files = some_files(1, 50, 3000);
    let base = commit_files(&store, "try", &files, "base").unwrap().commits[0];
    let workspace = Workspace {
        id: "0123456789abcdef".to_owned(),
        branch: "try".to_owned(),
        driver: "copy".to_owned(),
        base,
        head: base,
        mountpoint: None,
        settings: String::new(),
        created: Time::default(),
    };
    store.put_workspace(&workspace).unwrap();
    let slot = store.slot(&base).unwrap();
    delete(&store, "try").unwrap();
    store.gc(Duration::ZERO, false).unwrap();
    assert_eq!(files_of(&store, &base).unwrap(), files);
    assert_eq!(store.slot(&base).unwrap(), slot);
    store.remove_workspace(&workspace.id).unwrap();
    assert_eq!(store.gc(Duration::ZERO, false).unwrap().commits_removed, 1);
    assert_eq!(store.slot(&base).unwrap_err().code, Code::NotFound);
    assert_eq!(store.slot_commit(slot.number).unwrap(), None);
}

#[test]
fn what_a_history_server_may_have_given_out_stays_while_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    commit_files(&store, "main", &some_files(9, 3, 500), "kept").unwrap();
    let files = some_files(1, 50, 3000);
    let seen = commit_files(&store, "seen", &files, "seen").unwrap().commits[0];
    let unseen = commit_files(&store, "unseen", &some_files(2, 50, 3000), "unseen").unwrap().commits[0];
    let serving = [Serving::begin(store.dir()).unwrap(), Serving::begin(store.dir()).unwrap()];
    let slot = store.slot(&seen).unwrap();
    delete(&store, "seen").unwrap();
    delete(&store, "unseen").unwrap();
    for server in serving {
        assert_eq!(store.gc(Duration::ZERO, true).unwrap().commits_kept, 2);
        store.gc(Duration::ZERO, false).unwrap();
        assert_eq!(store.commit(&unseen).unwrap_err().code, Code::NotFound);
        assert_eq!(files_of(&store, &seen).unwrap(), files);
        assert_eq!(store.slot_commit(slot.number).unwrap(), Some((seen, slot)));
        drop(server);
    }
    assert_eq!(store.gc(Duration::ZERO, false).unwrap().commits_removed, 1);
    assert_eq!(store.commit(&seen).unwrap_err().code, Code::NotFound);
    assert_eq!(store.slot_commit(slot.number).unwrap(), None);
}

#[test]
fn another_open_store_does_not_hold_what_was_removed() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let reader = Store::open(store.dir()).unwrap();
    let kept = some_files(1, 50, 3000);
    commit_files(&store, "main", &kept, "kept").unwrap();
    let gone = commit_files(&store, "try", &some_files(2, 50, 3000), "gone").unwrap().commits[0];
    for store in [&store, &reader] {
        files_of(store, &gone).unwrap();
    }
    delete(&store, "try").unwrap();
    store.gc(Duration::ZERO, false).unwrap();
    assert_eq!(files_of(&reader, &reader.resolve("main").unwrap()).unwrap(), kept);
    let own = dir.path().to_owned();
    let held =
        std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    let deleted: Vec<_> =
        held.filter(|path| path.starts_with(&own) && path.to_string_lossy().ends_with("(deleted)")).collect();
    assert_eq!(deleted, Vec::<std::path::PathBuf>::new());
}

/// Changes one file of a large tree again and again: nodes become deltas on the ones they replace.
#[test]
fn deltas_keep_what_they_stand_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let files = some_files(1, 2000, 200);
    let mut root = {
        let writer = store.writer().unwrap();
        let root = tree_of(&writer, &files).unwrap();
        commit_tree(&store, writer, "main", root, "first").unwrap();
        root
    };
    let ino = Ino::new(1, 100 + 1000);
    let mut stored = Vec::new();
    for step in 0..40u64 {
        let writer = store.writer().unwrap();
        let num = writer.put_chunk(&noise(step + 5000, 200)).unwrap();
        let extent = Value::Extent(Extent::Chunk { num, len: 200 });
        root = tree::edit(&writer, Some(root), [(Key::Extent(ino, 0).to_vec(), Some(extent))]).unwrap();
        stored.push(commit_tree(&store, writer, "main", root, "step").unwrap().stored_bytes);
    }
    assert!(stored.iter().max().unwrap() < &6000, "a small change is stored small: {stored:?}");
    // Only the last tree stays; its nodes may stand on nodes of trees that go.
    let last = store.resolve("main").unwrap();
    let writer = store.writer().unwrap();
    let commit = new_commit(root, Vec::new(), "squashed");
    let id = Hash::of_commit(&commit.encode(&store.hash(root).unwrap()));
    let old = store.get_ref(&branch("main")).unwrap();
    let new = Some(RefState { commit: id, base: id, folder: None });
    let changes = vec![RefChange { name: branch("main"), old, new }];
    store
        .publish(
            writer,
            NewOperation { kind: "squash".to_owned(), commits: vec![commit], changes, ..Default::default() },
        )
        .unwrap();
    let expected = files_of(&store, &last).unwrap();
    for options in [GcOptions { thorough: false, ..THOROUGH }, THOROUGH] {
        store.gc_with(&options).unwrap();
        let fresh = Store::open(store.dir()).unwrap();
        assert_eq!(files_of(&fresh, &id).unwrap(), expected);
        let check = fresh.check(&mut |_| ()).unwrap();
        assert!(check.is_clean(), "{check:?}");
    }
    assert_eq!(store.stats().unwrap().commits, 1);
}

#[test]
fn an_unfinished_pack_of_a_living_writer_stays_and_a_dead_ones_goes() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let writer = store.writer().unwrap();
    for seed in 0..100 {
        writer.put_chunk(&noise(seed, 20_000)).unwrap();
    }
    let left = store.dir().join("packs/0123456789abcdef.unfinished");
    std::fs::write(&left, b"what a killed writer left").unwrap();
    let named = store.dir().join("packs/0123456789abcdee.pack");
    std::fs::write(&named, b"the same, a moment later").unwrap();
    std::fs::write(store.dir().join("packs/README"), b"not ours").unwrap();
    store.gc(Duration::ZERO, false).unwrap();
    assert!(!left.exists() && !named.exists());
    assert_eq!(packs(&store), 2);
    let mut edits = vec![(Key::Inode(Ino::ROOT).to_vec(), Some(Value::Inode(inode(FileType::Dir, 0))))];
    let dirent = Dirent { ino: Ino::new(0, 9), kind: FileType::File, cookie: 1 };
    edits.push((Key::Dirent(Ino::ROOT, b"x").to_vec(), Some(Value::Dirent(dirent))));
    let root: Num = tree::edit(&writer, None, edits).unwrap();
    commit_tree(&store, writer, "main", root, "late").unwrap();
    store.gc(Duration::ZERO, false).unwrap();
}
