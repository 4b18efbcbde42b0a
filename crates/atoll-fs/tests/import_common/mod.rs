//! What the tests of import, export, tar and copy share: a store in a temporary folder, a folder with every kind
//! of file in it, and short ways to import and compare.
#![allow(dead_code, unused_imports, missing_docs)]

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use atoll_fs::Silent;
use atoll_fs::export::{CompareOptions, Mismatch, compare_folder};
use atoll_fs::import::{Captured, CommitRequest, Committed, ImportOptions, commit_captured, import_folder};
use atoll_store::store::{NewOperation, Profile, RefName};
use atoll_store::tree::{Inode, Time, TreeView};
use atoll_store::{Commit, Hash, Ino, Result, Store};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use tempfile::TempDir;

pub struct Place {
    pub temp: TempDir,
    pub store: Store,
    pub folder: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let temp = tempfile::tempdir().unwrap();
        let store = Store::create(&temp.path().join("store"), Profile::Off).unwrap();
        let folder = temp.path().join("folder");
        fs::create_dir(&folder).unwrap();
        Place { temp, store, folder }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn head(&self) -> Option<Hash> {
        self.store.get_ref(&RefName::Branch("main".into())).unwrap().map(|state| state.commit)
    }

    /// Imports the folder to `main` over its last import.
    pub fn import(&self) -> Committed {
        self.import_with(|_| {}).unwrap()
    }

    pub fn import_with(&self, change: impl FnOnce(&mut ImportOptions)) -> Result<Committed> {
        let mut options =
            ImportOptions { folder: self.folder.clone(), base: self.head(), ..Default::default() };
        change(&mut options);
        self.import_as(&options, &|_| {})
    }

    /// `alter` gets at what was captured before it is committed.
    pub fn import_as(&self, options: &ImportOptions, alter: &dyn Fn(&mut Captured)) -> Result<Committed> {
        let request = CommitRequest {
            branch: "main".into(),
            head: self.head(),
            author: "test".into(),
            message: "import".into(),
            operation: NewOperation { kind: "import".into(), ..Default::default() },
            ..Default::default()
        };
        commit_captured(&self.store, &request, &mut || {
            let mut captured = import_folder(&self.store, options, &Silent)?;
            alter(&mut captured);
            Ok(captured)
        })
    }

    pub fn commit(&self, id: Hash) -> Commit {
        self.store.commit(&id).unwrap()
    }

    pub fn tree(&self, id: Hash) -> TreeView<'_> {
        TreeView::new(&self.store, self.commit(id).record.root)
    }

    pub fn at(&self, id: Hash, path: &str) -> (Ino, Inode) {
        self.tree(id).resolve(path.as_bytes()).unwrap().unwrap_or_else(|| panic!("{path} is not in the tree"))
    }

    pub fn has(&self, id: Hash, path: &str) -> bool {
        self.tree(id).resolve(path.as_bytes()).unwrap().is_some()
    }

    pub fn text(&self, id: Hash, path: &str) -> Vec<u8> {
        let (ino, inode) = self.at(id, path);
        self.tree(id).read(ino, inode.size, 0..inode.size).unwrap().to_vec()
    }

    /// How a folder differs from a commit.
    pub fn compare(&self, id: Hash, dir: &Path, options: &CompareOptions) -> Vec<String> {
        let found = compare_folder(self.tree(id), b"", dir, options, &Silent).unwrap();
        found.iter().map(|one| format!("{}: {}", String::from_utf8_lossy(&one.path), one.what)).collect()
    }
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub fn all() -> CompareOptions {
    CompareOptions { holes: true, ..Default::default() }
}

pub fn set_mtime(path: &Path, sec: i64, nsec: i64) {
    let time = Timespec { tv_sec: sec, tv_nsec: nsec };
    let times = Timestamps { last_access: time, last_modification: time };
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

pub fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

pub fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
}

pub fn node(path: &Path, kind: FileType, mode: u32, device: u64) {
    rustix::fs::mknodat(CWD, path, kind, Mode::from_raw_mode(mode), device).unwrap();
}

/// Bytes that do not repeat.
pub fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Lets the file systems' clock tick, so that what was just written is clean for the import that comes.
pub fn tick() {
    std::thread::sleep(Duration::from_millis(25));
}

/// Every kind of file, name, time and attribute that a test's rights allow.
pub fn nasty(dir: &Path) {
    let at = |name: &str| dir.join(name);
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::create_dir(at("empty folder")).unwrap();
    fs::write(at("empty"), b"").unwrap();
    fs::write(at("tiny"), noise(128, 1)).unwrap();
    fs::write(at("small"), noise(129, 2)).unwrap();
    fs::write(at("one chunk"), noise(256 << 10, 3)).unwrap();
    fs::write(at("two chunks"), noise((256 << 10) + 1, 4)).unwrap();
    fs::write(at("large"), noise(5 << 20, 5)).unwrap();
    fs::write(at("zeros"), vec![0; 300_000]).unwrap();
    fs::write(dir.join(OsStr::from_bytes(b"not \xff\xfe utf-8\n\t\\")), b"bytes").unwrap();
    fs::write(at(&"n".repeat(255)), b"long name").unwrap();
    fs::write(at("a/b/c/deep"), b"deep").unwrap();
    fs::write(at("-"), b"dash").unwrap();
    for (name, holes) in
        [("hole at start", &[(1 << 20, 5000usize)][..]), ("holes", &[(0, 10), (1 << 20, 4096), (9 << 20, 1)])]
    {
        let file = File::create(at(name)).unwrap();
        for (offset, length) in holes {
            file.write_all_at(&noise(*length, *offset + 7), *offset).unwrap();
        }
    }
    File::create(at("only a hole")).unwrap().set_len(3 << 30).unwrap();
    File::create(at("small hole")).unwrap().set_len(100).unwrap();
    let past = File::create(at("huge and sparse")).unwrap();
    past.write_all_at(b"past four gigabytes", (5 << 30) + 3).unwrap();
    symlink("small", at("link")).unwrap();
    symlink("/no/such/absolute/target", at("dangling")).unwrap();
    symlink(OsStr::from_bytes(&b"\xff/".repeat(2047)), at("longest link")).unwrap();
    symlink("..", at("a/up")).unwrap();
    fs::hard_link(at("small"), at("a/small again")).unwrap();
    fs::hard_link(at("small"), at("a/b/small as well")).unwrap();
    fs::hard_link(at("dangling"), at("a/dangling again")).unwrap();
    node(&at("fifo"), FileType::Fifo, 0o640, 0);
    node(&at("socket"), FileType::Socket, 0o600, 0);
    set_xattr(&at("a/b"), "user.folder", b"value");
    set_xattr(&at("small"), "user.binary", &noise(1000, 8));
    set_xattr(&at("small"), "user.empty", b"");
    fs::write(at("run me"), b"#!/bin/sh\n").unwrap();
    set_mode(&at("run me"), 0o4755);
    set_mode(&at("tiny"), 0o2640);
    set_mode(&at("a"), 0o1777);
    set_mode(&at("a/b"), 0o2775);
    fs::write(at("read only"), b"r").unwrap();
    set_xattr(&at("read only"), "user.x", b"y");
    set_mode(&at("read only"), 0o444);
    fs::create_dir(at("closed")).unwrap();
    fs::write(at("closed/inside"), b"i").unwrap();
    if is_root() {
        node(&at("null"), FileType::CharacterDevice, 0o666, rustix::fs::makedev(1, 3));
        node(&at("disk"), FileType::BlockDevice, 0o660, rustix::fs::makedev(259, 70_000));
        set_xattr(&at("run me"), "trusted.note", b"root's");
        set_xattr(&at("link"), "trusted.on a link", b"l");
        set_xattr(&at("fifo"), "trusted.on a fifo", b"f");
        let owner = |name: &str, uid, gid| {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chownat(CWD, at(name), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).unwrap();
        };
        owner("two chunks", 1000, 1001);
        owner("link", 65534, 4_000_000_000);
        owner("a/b/c", 7, 8);
        // A capability: 20 bytes of version 2, chown before it.
        set_xattr(
            &at("run me"),
            "security.capability",
            &[1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        );
    }
    set_mode(&at("closed"), 0o500);
    set_mtime(&at("small"), 1, 999_999_999);
    set_mtime(&at("tiny"), -5_000, 1);
    set_mtime(&at("link"), 4_102_444_800, 123_456_789);
    set_mtime(&at("fifo"), 12, 34);
    set_mtime(&at("empty folder"), 1_000_000_000, 5);
    set_mtime(&at("a/b/c"), 1_234_567_890, 987_654_321);
    set_mtime(&at("a"), 1_111_111_111, 1);
}
