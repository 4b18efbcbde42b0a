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

/// The files that cannot be read; what can be read must be right. A check names exactly these.
fn lost(store: &Store, commit: &Hash, files: &BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let root = store.commit(commit).unwrap().record.root;
    let view = atoll_store::tree::TreeView::new(store, root);
    let mut lost = Vec::new();
    for (name, bytes) in files {
        let (ino, inode) = view.resolve(name.as_bytes()).unwrap().unwrap();
        match view.read(ino, inode.size, 0..inode.size) {
            Ok(read) => assert_eq!(&read[..], &bytes[..], "{name}"),
            Err(error) => {
                assert_eq!(error.code, Code::Damaged, "{name}: {error}");
                lost.push(name.clone());
            }
        }
    }
    let report = store.check(&mut |_| ()).unwrap();
    assert!(!report.is_clean());
    let named: Vec<Hash> = report.problems.iter().filter_map(|problem| problem.object).collect();
    assert_eq!(named.len(), lost.len(), "{report:?}");
    assert!(lost.iter().all(|name| named.contains(&Hash::of(&files[name]))));
    lost
}

#[test]
fn a_flipped_byte_hits_one_file_alone_where_a_group_is_not_compressed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&dir.path().join("store"), Profile::Off).unwrap();
    let files = some_files(1, 400, 3000);
    let commit = commit_files(&store, "main", &files, "files").unwrap().commits[0];
    let path = store.dir().to_owned();
    flip(&pack_of(&store), 300_000);
    drop(store);
    let hit = lost(&Store::open(&path).unwrap(), &commit, &files);
    assert_eq!(hit.len(), 1);
    // A wiped database is rebuilt all the same.
    wipe_database(&path);
    assert_eq!(lost(&Store::open(&path).unwrap(), &commit, &files), hit);
}

#[test]
fn what_stands_before_the_damage_of_a_compressed_group_can_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&dir.path().join("store"), Profile::Off).unwrap();
    let digits = |seed: u64| noise(seed, 5000).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let files: BTreeMap<_, _> =
        (0..24).map(|at| (format!("file-{at:02}"), digits(at).into_bytes())).collect();
    let commit = commit_files(&store, "main", &files, "files").unwrap().commits[0];
    let pack = pack_of(&store);
    let (path, len) = (store.dir().to_owned(), std::fs::metadata(&pack).unwrap().len());
    drop(store);
    let raw: usize = files.values().map(Vec::len).sum();
    assert!(len < raw as u64 * 2 / 3 && raw < 256 << 10, "one compressed group: {len} of {raw}");
    let mut hits = Vec::new();
    // Near the start, in the middle, near the end.
    for at in [len / 8, len / 2, len * 3 / 4] {
        flip(&pack, at);
        let hit = lost(&Store::open(&path).unwrap(), &commit, &files);
        assert!(!hit.is_empty());
        hits.push(hit.len());
        flip(&pack, at);
    }
    assert!(hits[2] < files.len() * 2 / 3, "{hits:?}");
    assert_eq!(files_of(&Store::open(&path).unwrap(), &commit).unwrap(), files);
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
