//! What `gc` takes away below `workspaces`, and what it leaves alone.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use atoll_mount::leftovers::remove_leftovers;
use atoll_store::Store;
use atoll_store::store::Profile;
use rustix::fs::{FlockOperation, flock};

const ID: &str = "0123456789abcdef";

/// A workspace's folder that no record names, with an upper that has something in it.
fn leftover(store: &Store) -> PathBuf {
    let dir = store.dir().join("workspaces").join(ID);
    for folder in ["upper/a", "work/work", "runs"] {
        fs::create_dir_all(dir.join(folder)).unwrap();
    }
    for file in ["upper/a/file", "workspace.json", "index", "lock", "inuse", "runs/7.json"] {
        fs::write(dir.join(file), "x").unwrap();
    }
    dir
}

fn new_store(dir: &Path) -> Store {
    Store::create(&dir.join("store"), Profile::Off).unwrap()
}

#[test]
fn what_was_let_go_goes() {
    let temp = tempfile::tempdir().unwrap();
    let store = new_store(temp.path());
    let dir = leftover(&store);
    fs::write(dir.join("let-go"), "").unwrap();
    let other = store.dir().join("workspaces/not ours");
    fs::create_dir(&other).unwrap();
    assert_eq!(remove_leftovers(&store, true).unwrap(), 1);
    assert!(dir.join("upper/a/file").exists());
    assert_eq!(remove_leftovers(&store, false).unwrap(), 1);
    assert!(!dir.exists() && other.exists());
    assert_eq!(remove_leftovers(&store, false).unwrap(), 0);
}

#[test]
fn what_may_be_the_only_copy_stays() {
    let temp = tempfile::tempdir().unwrap();
    let store = new_store(temp.path());
    let dir = leftover(&store);
    assert_eq!(remove_leftovers(&store, false).unwrap(), 0);
    assert!(dir.join("upper/a/file").exists(), "its record may have been lost");
    fs::remove_dir_all(dir.join("upper/a")).unwrap();
    for place in ["upper.aside-1", "scratch/upper.aside-2"] {
        fs::create_dir_all(dir.join(place)).unwrap();
        assert_eq!(remove_leftovers(&store, false).unwrap(), 0, "{place}");
        fs::remove_dir(dir.join(place)).unwrap();
    }
    assert_eq!(remove_leftovers(&store, false).unwrap(), 1, "an empty upper says nothing");
}

#[test]
fn what_a_process_holds_stays() {
    let temp = tempfile::tempdir().unwrap();
    let store = new_store(temp.path());
    let dir = leftover(&store);
    fs::write(dir.join("let-go"), "").unwrap();
    for (name, how) in [
        ("lock", FlockOperation::LockExclusive),
        ("inuse", FlockOperation::LockShared),
        ("runs/7.json", FlockOperation::LockExclusive),
    ] {
        let file = File::open(dir.join(name)).unwrap();
        flock(&file, how).unwrap();
        assert_eq!(remove_leftovers(&store, false).unwrap(), 0, "{name}");
        drop(file);
    }
    assert_eq!(remove_leftovers(&store, false).unwrap(), 1);
}
