//! Flipped bytes: what is damaged says so and names itself, what is not damaged stays readable.

mod store_support;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use atoll_store::store::Profile;
use atoll_store::{Code, Hash, Store};
use store_support::*;

fn flip(path: &Path, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

fn pack_of(store: &Store) -> PathBuf {
    std::fs::read_dir(store.dir().join("packs")).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn every_flipped_byte_of_a_pack_is_noticed_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&dir.path().join("store"), Profile::Off).unwrap();
    let files = some_files(1, 60, 1500);
    let commit = commit_files(&store, "main", &files, "files").unwrap().commits[0];
    let other_files = some_files(2, 3, 300);
    let other = commit_files(&store, "other", &other_files, "in the log").unwrap().commits[0];
    let path = store.dir().to_owned();
    let pack = pack_of(&store);
    let name = pack.file_name().unwrap().to_str().unwrap().to_owned();
    let len = std::fs::metadata(&pack).unwrap().len();
    drop(store);
    // The header's spare bytes mean nothing; all the rest does.
    let places = (0..8).chain((16..len - 2500).step_by(997)).chain((len - 2500..len).step_by(13));
    for at in places {
        flip(&pack, at);
        let store = Store::open(&path).unwrap();
        let error = files_of(&store, &commit).expect_err(&format!("byte {at} was flipped"));
        assert_eq!(error.code, Code::Damaged, "byte {at}: {error}");
        assert!(error.message.contains(&name), "byte {at}: {error}");
        let report = store.check(&mut |_| ()).unwrap();
        assert!(!report.is_clean());
        assert!(report.problems.iter().any(|problem| problem.pack.as_deref() == Some(&name)), "{report:?}");
        // Nothing else is hit, and work goes on.
        assert_eq!(files_of(&store, &other).unwrap(), other_files);
        assert_eq!(
            store
                .gc(std::time::Duration::ZERO, true)
                .map_err(|error| error.code)
                .err()
                .unwrap_or(Code::Damaged),
            Code::Damaged
        );
        flip(&pack, at);
    }
    let store = Store::open(&path).unwrap();
    assert_eq!(files_of(&store, &commit).unwrap(), files);
    assert!(store.check(&mut |_| ()).unwrap().is_clean());
}

#[test]
fn a_damaged_chunk_hits_only_what_is_in_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&dir.path().join("store"), Profile::Off).unwrap();
    let files = some_files(1, 400, 3000);
    let commit = commit_files(&store, "main", &files, "files").unwrap().commits[0];
    let path = store.dir().to_owned();
    flip(&pack_of(&store), 300_000);
    drop(store);
    let store = Store::open(&path).unwrap();
    let report = store.check(&mut |_| ()).unwrap();
    let damaged: Vec<Hash> = report.problems.iter().filter_map(|problem| problem.object).collect();
    assert!(damaged.len() > 1 && damaged.len() < 100, "{}", damaged.len());
    let root = store.commit(&commit).unwrap().record.root;
    let view = atoll_store::tree::TreeView::new(&store, root);
    let mut hit = 0;
    for (name, bytes) in &files {
        let (ino, inode) = view.resolve(name.as_bytes()).unwrap().unwrap();
        let read = view.read(ino, inode.size, 0..inode.size);
        if damaged.contains(&Hash::of(bytes)) {
            assert_eq!(read.unwrap_err().code, Code::Damaged);
            hit += 1;
        } else {
            assert_eq!(&read.unwrap()[..], &bytes[..]);
        }
    }
    assert_eq!(hit, damaged.len());
    // A wiped database is rebuilt all the same.
    drop(store);
    wipe_database(&path);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.check(&mut |_| ()).unwrap().problems.len(), report.problems.len());
}

#[test]
fn a_pack_that_is_missing_is_named_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&dir.path().join("store"), Profile::Off).unwrap();
    let commit = commit_files(&store, "main", &some_files(1, 60, 1500), "files").unwrap().commits[0];
    let pack = pack_of(&store);
    let path = store.dir().to_owned();
    std::fs::remove_file(&pack).unwrap();
    for wiped in [false, true] {
        if wiped {
            wipe_database(&path);
        }
        let store = Store::open(&path).unwrap();
        assert_eq!(files_of(&store, &commit).unwrap_err().code, Code::Damaged);
        assert!(!store.check(&mut |_| ()).unwrap().is_clean());
        assert_eq!(store.gc(std::time::Duration::ZERO, false).unwrap_err().code, Code::Damaged);
        let name = format!("new-{wiped}");
        let files = some_files(3, 2, 300);
        let new = commit_files(&store, &name, &files, "new").unwrap().commits[0];
        assert_eq!(files_of(&store, &new).unwrap(), files);
        // What is lost can be brought back by committing it again.
        let again = commit_files(&store, &format!("again-{wiped}"), &some_files(1, 60, 1500), "again")
            .unwrap()
            .commits[0];
        assert_eq!(files_of(&store, &again).unwrap(), some_files(1, 60, 1500));
    }
}

/// A flipped byte in the log does no harm while the database is there; when that is rebuilt, all other
/// records are kept.
#[test]
fn a_flipped_byte_in_the_log_costs_at_most_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&dir.path().join("store"), Profile::Off).unwrap();
    let mut commits: BTreeMap<String, (Hash, BTreeMap<String, Vec<u8>>)> = BTreeMap::new();
    for seed in 0..6 {
        let (name, files) = (format!("b{seed}"), some_files(seed, 2, 400));
        let id = commit_files(&store, &name, &files, "one").unwrap().commits[0];
        commits.insert(name, (id, files));
    }
    let path = store.dir().to_owned();
    drop(store);
    let log = path.join("oplog");
    let original = std::fs::read(&log).unwrap();
    for at in (32..original.len() as u64).step_by(151) {
        std::fs::write(&log, &original).unwrap();
        flip(&log, at);
        wipe_database(&path);
        let store = Store::open(&path).unwrap();
        let present: Vec<&str> =
            commits.keys().map(String::as_str).filter(|name| store.resolve(name).is_ok()).collect();
        assert_eq!(present.len(), 5, "byte {at}: {present:?}");
        for name in present {
            let (id, files) = &commits[name];
            assert_eq!(&files_of(&store, id).unwrap(), files);
        }
    }
    // The last record's damage looks like a torn end: it is cut off, and kept beside.
    assert!(
        std::fs::read_dir(&path)
            .unwrap()
            .any(|entry| { entry.unwrap().file_name().to_string_lossy().starts_with("oplog.cut-") })
    );
    std::fs::write(&log, &original).unwrap();
    flip(&log, 3);
    wipe_database(&path);
    assert_eq!(Store::open(&path).err().unwrap().code, Code::Damaged);
}

#[test]
fn a_torn_end_of_the_log_is_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&dir.path().join("store"), Profile::Full).unwrap();
    let files = some_files(1, 3, 400);
    let commit = commit_files(&store, "main", &files, "one").unwrap().commits[0];
    let path = store.dir().to_owned();
    let log = path.join("oplog");
    let whole = std::fs::read(&log).unwrap();
    for extra in [1, 15, 16, 17, 400] {
        let mut torn = whole.clone();
        torn.extend_from_slice(&whole[32..32 + extra]);
        std::fs::write(&log, &torn).unwrap();
        let store = Store::open(&path).unwrap();
        assert_eq!(std::fs::read(&log).unwrap(), whole);
        assert_eq!(files_of(&store, &commit).unwrap(), files);
        assert_eq!(store.operations(9).unwrap().len(), 1);
    }
    commit_files(&store, "main", &some_files(2, 3, 400), "two").unwrap();
}
