//! What the tests of the store share: small trees and commits.

#![allow(dead_code, missing_docs)]

use std::collections::BTreeMap;
use std::path::Path;

use atoll_store::store::{NewOperation, Profile, Published, RefChange, RefName, RefState};
use atoll_store::tree::{self, ContentSum, Dirent, Extent, FileType, Inode, Key, Time, Value};
use atoll_store::{BirthId, Hash, Ino, NewCommit, Num, Objects, Result, Store, Summary, Writer};

pub fn branch(name: &str) -> RefName {
    RefName::Branch(name.to_owned())
}

/// Bytes that do not shrink, different for each seed.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

pub fn inode(kind: FileType, size: u64) -> Inode {
    let time = Time { sec: 1_700_000_000, nsec: 5 };
    Inode {
        birth: BirthId(7),
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size,
        nlink: 1,
        rdev: 0,
        mtime: time,
        ctime: time,
        btime: time,
    }
}

/// A flat tree of these files.
pub fn tree_of(writer: &Writer, files: &BTreeMap<String, Vec<u8>>) -> Result<Num> {
    let mut edits = vec![(Key::Inode(Ino::ROOT).to_vec(), Some(Value::Inode(inode(FileType::Dir, 0))))];
    let mut batch = writer.batch();
    for (index, (name, bytes)) in files.iter().enumerate() {
        let ino = Ino::new(1, 100 + index as u32);
        let dirent = Dirent { ino, kind: FileType::File, cookie: index as u64 + 1 };
        edits.push((Key::Dirent(Ino::ROOT, name.as_bytes()).to_vec(), Some(Value::Dirent(dirent))));
        edits.push((Key::Inode(ino).to_vec(), Some(Value::Inode(inode(FileType::File, bytes.len() as u64)))));
        edits.push((Key::Parent(ino, Ino::ROOT, name.as_bytes()).to_vec(), Some(Value::Parent)));
        let extent = if bytes.len() <= tree::INLINE_MAX {
            Extent::Inline(bytes.clone().into())
        } else {
            Extent::Chunk { num: batch.put(bytes)?, len: bytes.len() as u32 }
        };
        edits.push((Key::Extent(ino, 0).to_vec(), Some(Value::Extent(extent))));
    }
    batch.finish()?;
    edits.sort_by(|a, b| a.0.cmp(&b.0));
    tree::edit(writer, None, edits)
}

pub fn new_commit(root: Num, parents: Vec<Hash>, message: &str) -> NewCommit {
    NewCommit {
        root,
        content: ContentSum::default(),
        summary: Summary::default(),
        parents,
        author: "tester".to_owned(),
        time: Time { sec: 1_700_000_000, nsec: 0 },
        utc_offset: 0,
        message: message.to_owned(),
        meta: BTreeMap::new(),
    }
}

/// Commits these files to a branch, which is made if it is not there.
pub fn commit_files(
    store: &Store,
    name: &str,
    files: &BTreeMap<String, Vec<u8>>,
    message: &str,
) -> Result<Published> {
    let writer = store.writer()?;
    let root = tree_of(&writer, files)?;
    commit_tree(store, writer, name, root, message)
}

pub fn commit_tree(store: &Store, writer: Writer, name: &str, root: Num, message: &str) -> Result<Published> {
    let old = store.get_ref(&branch(name))?;
    let commit = new_commit(root, old.iter().map(|state| state.commit).collect(), message);
    let id = Hash::of_commit(&commit.encode(&writer.hash(root)?));
    let base = old.as_ref().map_or(id, |state| state.base);
    let new = RefState { commit: id, base, folder: None };
    let operation = NewOperation {
        kind: "commit".to_owned(),
        note: message.to_owned(),
        commits: vec![commit],
        changes: vec![RefChange { name: branch(name), old, new: Some(new) }],
        ..Default::default()
    };
    store.publish(writer, operation)
}

/// A new branch on a commit.
pub fn fork(store: &Store, name: &str, commit: Hash) -> Result<Published> {
    let new = RefState { commit, base: commit, folder: None };
    move_ref(store, "fork", branch(name), None, Some(new))
}

pub fn delete(store: &Store, name: &str) -> Result<Published> {
    let old = store.get_ref(&branch(name))?;
    move_ref(store, "drop", branch(name), old, None)
}

pub fn move_ref(
    store: &Store,
    kind: &str,
    name: RefName,
    old: Option<RefState>,
    new: Option<RefState>,
) -> Result<Published> {
    let changes = vec![RefChange { name, old, new }];
    store.publish(store.writer()?, NewOperation { kind: kind.to_owned(), changes, ..Default::default() })
}

/// All files of a commit's tree, read whole.
pub fn files_of(store: &Store, commit: &Hash) -> Result<BTreeMap<String, Vec<u8>>> {
    let root = store.commit(commit)?.record.root;
    let view = tree::TreeView::new(store, root);
    let mut files = BTreeMap::new();
    for (name, dirent) in view.readdir(Ino::ROOT)? {
        let inode = view.inode(dirent.ino)?.expect("every name has an inode");
        let bytes = view.read(dirent.ino, inode.size, 0..inode.size)?;
        files.insert(String::from_utf8(name.into()).expect("tests use text"), bytes.to_vec());
    }
    Ok(files)
}

/// `count` files of `len` bytes.
pub fn some_files(seed: u64, count: usize, len: usize) -> BTreeMap<String, Vec<u8>> {
    (0..count)
        .map(|index| (format!("file-{index:05}"), noise(seed * 1_000_003 + index as u64, len)))
        .collect()
}

pub fn new_store(dir: &Path) -> Store {
    Store::create(&dir.join("store"), Profile::Full).expect("a new store")
}

/// Removes the database, as a user might.
pub fn wipe_database(store: &Path) {
    for name in ["meta.db", "meta.db-wal", "meta.db-shm"] {
        let _ = std::fs::remove_file(store.join(name));
    }
}
