//! Random changes of a folder, an import after each few: the tree always equals the folder, and the same host file
//! is the same inode for as long as it lives.

mod import_common;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use atoll_fs::Silent;
use atoll_fs::copy::{CopyCapture, capture, materialise};
use atoll_fs::export::{ExportOptions, export_folder};
use atoll_fs::import::{CommitRequest, commit_captured};
use atoll_store::{Hash, Ino};
use import_common::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Op {
    Write(u8, u16),
    Append(u8, u16),
    Truncate(u8, u16),
    Replace(u8, u16),
    Mkdir(u8),
    Remove(u8),
    Rename(u8, u8),
    Link(u8, u8),
    Symlink(u8, u8),
    Chmod(u8, u16),
    Xattr(u8, u8),
    Times(u8, u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (any::<u8>(), any::<u16>()).prop_map(|(at, size)| Op::Write(at, size)),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(at, size)| Op::Append(at, size)),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(at, size)| Op::Truncate(at, size)),
        2 => (any::<u8>(), any::<u16>()).prop_map(|(at, size)| Op::Replace(at, size)),
        3 => any::<u8>().prop_map(Op::Mkdir),
        2 => any::<u8>().prop_map(Op::Remove),
        4 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Op::Rename(from, to)),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Op::Link(from, to)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(at, to)| Op::Symlink(at, to)),
        1 => (any::<u8>(), any::<u16>()).prop_map(|(at, mode)| Op::Chmod(at, mode)),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(at, value)| Op::Xattr(at, value)),
        1 => (any::<u8>(), any::<u32>()).prop_map(|(at, time)| Op::Times(at, time)),
    ]
}

/// One of few paths, so that operations meet.
fn path(root: &Path, at: u8) -> PathBuf {
    let names = ["a", "b", "c"];
    let mut path = root.to_owned();
    for level in 0..=(at >> 6) {
        path.push(names[(at as usize >> (2 * level)) % 3]);
    }
    path
}

fn contents(size: u16, seed: u8) -> Vec<u8> {
    // Mostly small, sometimes above one chunk.
    let size = if size.is_multiple_of(13) { 300_000 + size as usize } else { size as usize % 5000 };
    noise(size, u64::from(seed) + 1)
}

/// Most operations fail on most folders; what they do when they work is the test.
fn apply(root: &Path, op: &Op) {
    let at = |at: &u8| path(root, *at);
    let _ = match op {
        Op::Write(file, size) => fs::write(at(file), contents(*size, *file)),
        Op::Append(file, size) => fs::OpenOptions::new()
            .append(true)
            .open(at(file))
            .and_then(|mut open| std::io::Write::write_all(&mut open, &contents(*size, 7))),
        Op::Truncate(file, size) => fs::OpenOptions::new()
            .write(true)
            .open(at(file))
            .and_then(|open| open.set_len(u64::from(*size) * 7)),
        Op::Replace(file, size) => {
            let temporary = root.join("temporary");
            fs::write(&temporary, contents(*size, 9)).unwrap();
            fs::rename(&temporary, at(file)).or_else(|_| fs::remove_file(&temporary))
        }
        Op::Mkdir(dir) => fs::create_dir(at(dir)),
        Op::Remove(path) => fs::remove_file(at(path)).or_else(|_| fs::remove_dir_all(at(path))),
        Op::Rename(from, to) => fs::rename(at(from), at(to)),
        Op::Link(from, to) => fs::hard_link(at(from), at(to)),
        Op::Symlink(path, to) => symlink(format!("target {to}"), at(path)),
        Op::Chmod(path, mode) => match fs::symlink_metadata(at(path)) {
            Ok(stat) if !stat.is_symlink() => {
                set_mode(&at(path), u32::from(*mode & 0o7777) | 0o700);
                Ok(())
            }
            _ => Ok(()),
        },
        Op::Xattr(path, value) => match fs::symlink_metadata(at(path)) {
            Ok(stat) if !stat.is_symlink() => {
                set_xattr(&at(path), "user.test", &[*value; 3]);
                Ok(())
            }
            _ => Ok(()),
        },
        Op::Times(path, time) => {
            if fs::symlink_metadata(at(path)).is_ok() {
                set_mtime(&at(path), i64::from(*time), i64::from(*time % 1000));
            }
            Ok(())
        }
    };
}

/// Every file of a folder: path, and who it is on the host.
fn hosts(dir: &Path, below: &str, found: &mut BTreeMap<String, (u64, SystemTime)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let stat = fs::symlink_metadata(entry.path()).unwrap();
        let path = format!("{below}{}", entry.file_name().to_str().unwrap());
        if stat.is_dir() {
            hosts(&entry.path(), &format!("{path}/"), found);
        }
        found.insert(path, (stat.ino(), stat.created().unwrap()));
    }
}

struct Identity {
    known: HashMap<(u64, SystemTime), Ino>,
}

impl Identity {
    /// The same host file is the same inode as before, different ones are different.
    fn check(&mut self, place: &Place, id: Hash, dir: &Path) {
        let mut found = BTreeMap::new();
        hosts(dir, "", &mut found);
        let mut now: HashMap<(u64, SystemTime), Ino> = HashMap::new();
        for (path, host) in &found {
            let ino = place.at(id, path).0;
            assert_eq!(*now.entry(*host).or_insert(ino), ino, "{path}: one file, two inodes");
            if let Some(before) = self.known.get(host) {
                assert_eq!(*before, ino, "{path}: the file got another inode");
            }
        }
        let distinct: std::collections::HashSet<_> = now.values().collect();
        assert_eq!(distinct.len(), now.len(), "two files, one inode");
        self.known = now;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..Default::default() })]

    #[test]
    fn imports_follow_a_folder(rounds in proptest::collection::vec(proptest::collection::vec(op(), 1..12), 1..6)) {
        let place = Place::new();
        let mut identity = Identity { known: HashMap::new() };
        for round in &rounds {
            round.iter().for_each(|op| apply(&place.folder, op));
            let imported = place.import();
            prop_assert_eq!(place.compare(imported.commit, &place.folder, &all()), [""; 0]);
            identity.check(&place, imported.commit, &place.folder);
        }
        let id = place.head().unwrap();
        let out = place.temp.path().join("out");
        export_folder(place.tree(id), b"", &out, &ExportOptions::default(), &Silent).unwrap();
        prop_assert_eq!(place.compare(id, &out, &all()), [""; 0]);
        // The summary and the second hash, kept up from differences, are those of the whole tree.
        let commit = place.commit(id);
        let (content, summary) =
            atoll_store::tree::ContentSum::update(&place.store, None, commit.record.root).unwrap();
        prop_assert_eq!((content, summary), (commit.record.content, commit.record.summary));
    }

    #[test]
    fn captures_follow_a_workspace(
        before in proptest::collection::vec(op(), 1..25),
        rounds in proptest::collection::vec(proptest::collection::vec(op(), 1..12), 1..5),
    ) {
        let place = Place::new();
        before.iter().for_each(|op| apply(&place.folder, op));
        let mut head = place.import().commit;
        let (dir, index) = (place.temp.path().join("workspace"), place.temp.path().join("index"));
        materialise(&place.store, &head, &dir, &index, &Silent).unwrap();
        prop_assert_eq!(place.compare(head, &dir, &all()), [""; 0]);
        let mut identity = Identity { known: HashMap::new() };
        identity.check(&place, head, &dir);
        for (at, round) in rounds.iter().enumerate() {
            round.iter().for_each(|op| apply(&dir, op));
            let options = CopyCapture { dir: dir.clone(), index: index.clone(), trust_index: true, head, threads: 0, seed: None };
            let request = CommitRequest { branch: "main".into(), head: Some(head), ..Default::default() };
            let mut pending = None;
            let committed = commit_captured(&place.store, &request, &mut || {
                let (captured, index) = capture(&place.store, &options, &Silent)?;
                pending = Some(index);
                Ok(captured)
            });
            head = committed.unwrap().commit;
            // Now and then the index is lost: identity may suffer, contents never.
            if at % 3 == 2 {
                fs::remove_file(&index).unwrap();
                identity.known.clear();
            } else {
                pending.unwrap().save(&head).unwrap();
                identity.check(&place, head, &dir);
            }
            prop_assert_eq!(place.compare(head, &dir, &all()), [""; 0]);
        }
    }
}
