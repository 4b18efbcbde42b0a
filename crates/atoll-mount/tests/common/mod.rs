//! A store with commits made by hand, its history mount, and the helper processes.
#![allow(dead_code)] // Each test binary uses its part.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;

use atoll_mount::{Helper, HistoryPaths, HistoryServer};
use atoll_store::store::{NewOperation, Profile, RefChange, RefName, RefState};
use atoll_store::tree::{ContentSum, Dirent, Extent, FileType, INLINE_MAX, Inode, Key, Time, Value, edit};
use atoll_store::{BirthId, Commit, Hash, Ino, NewCommit, Num, Sink, Store};

/// A file of a tree that is made by hand.
#[derive(Debug, Clone)]
pub enum Node {
    Dir,
    File(Vec<u8>),
    /// Pieces at offsets, and the size.
    Sparse(Vec<(u64, Vec<u8>)>, u64),
    Link(String),
    /// Another name of the file at this path.
    Hard(String),
    Xattr(String, Vec<u8>),
}

/// A tree as paths; folders are made as needed.
#[derive(Debug, Clone, Default)]
pub struct Files(pub BTreeMap<String, Vec<Node>>);

impl Files {
    pub fn file(mut self, path: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.0.entry(path.into()).or_default().insert(0, Node::File(bytes.into()));
        self
    }

    pub fn node(mut self, path: &str, node: Node) -> Self {
        self.0.entry(path.into()).or_default().push(node);
        self
    }
}

fn chunk(sink: &dyn Sink, bytes: &[u8]) -> Extent {
    if bytes.len() <= INLINE_MAX {
        return Extent::Inline(bytes.into());
    }
    Extent::Chunk { num: sink.put_chunk(bytes).unwrap(), len: bytes.len() as u32 }
}

/// Puts the tree into the sink; inode numbers are by order of paths, so that equal paths have equal ones.
fn build(sink: &dyn Sink, files: &Files) -> (Num, u64) {
    let mut dirs: BTreeMap<String, Ino> = BTreeMap::from([(String::new(), Ino::ROOT)]);
    let mut inos: BTreeMap<String, Ino> = BTreeMap::new();
    let mut entries: BTreeMap<Vec<u8>, Value> = BTreeMap::new();
    let number = |path: &str| {
        Ino::new(0x2_a5a5, u32::from_le_bytes(Hash::of(path.as_bytes()).0[..4].try_into().unwrap()))
    };
    let inode = |kind, size, path: &str| Inode {
        birth: BirthId(number(path).key()),
        kind,
        mode: if kind == FileType::Dir { 0o755 } else { 0o644 },
        uid: 0,
        gid: 0,
        size,
        nlink: if kind == FileType::Dir { 2 } else { 1 },
        rdev: 0,
        mtime: Time { sec: 1_700_000_000, nsec: 123_456_789 },
        ctime: Time { sec: 1_700_000_001, nsec: 987_654_321 },
        btime: Time::default(),
    };
    entries.insert(Key::Inode(Ino::ROOT).to_vec(), Value::Inode(inode(FileType::Dir, 0, "")));
    let mut xattrs = 0;
    let mut cookie = 0;
    let mut name_it =
        |entries: &mut BTreeMap<Vec<u8>, Value>, dirs: &BTreeMap<String, Ino>, path: &str, ino, kind| {
            let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
            cookie += 1;
            entries.insert(
                Key::Dirent(dirs[dir], name.as_bytes()).to_vec(),
                Value::Dirent(Dirent { ino, kind, cookie }),
            );
            entries.insert(Key::Parent(ino, dirs[dir], name.as_bytes()).to_vec(), Value::Parent);
        };
    for (path, nodes) in &files.0 {
        let mut at = 0;
        while let Some(slash) = path[at..].find('/') {
            let dir = &path[..at + slash];
            if !dirs.contains_key(dir) {
                let ino = number(dir);
                name_it(&mut entries, &dirs, dir, ino, FileType::Dir);
                entries.insert(Key::Inode(ino).to_vec(), Value::Inode(inode(FileType::Dir, 0, dir)));
                dirs.insert(dir.into(), ino);
            }
            at += slash + 1;
        }
        for node in nodes {
            let ino = number(path);
            match node {
                Node::Dir => {
                    name_it(&mut entries, &dirs, path, ino, FileType::Dir);
                    entries.insert(Key::Inode(ino).to_vec(), Value::Inode(inode(FileType::Dir, 0, path)));
                    dirs.insert(path.clone(), ino);
                }
                Node::File(bytes) => {
                    name_it(&mut entries, &dirs, path, ino, FileType::File);
                    let record = inode(FileType::File, bytes.len() as u64, path);
                    entries.insert(Key::Inode(ino).to_vec(), Value::Inode(record));
                    for (at, piece) in bytes.chunks(100_000).enumerate() {
                        let key = Key::Extent(ino, at as u64 * 100_000).to_vec();
                        entries.insert(key, Value::Extent(chunk(sink, piece)));
                    }
                }
                Node::Sparse(pieces, size) => {
                    name_it(&mut entries, &dirs, path, ino, FileType::File);
                    entries
                        .insert(Key::Inode(ino).to_vec(), Value::Inode(inode(FileType::File, *size, path)));
                    for (at, piece) in pieces {
                        entries.insert(Key::Extent(ino, *at).to_vec(), Value::Extent(chunk(sink, piece)));
                    }
                }
                Node::Link(target) => {
                    name_it(&mut entries, &dirs, path, ino, FileType::Symlink);
                    let record = inode(FileType::Symlink, target.len() as u64, path);
                    entries.insert(Key::Inode(ino).to_vec(), Value::Inode(record));
                    let target = Extent::Inline(target.as_bytes().into());
                    entries.insert(Key::Extent(ino, 0).to_vec(), Value::Extent(target));
                }
                Node::Hard(other) => {
                    let ino = inos[other];
                    name_it(&mut entries, &dirs, path, ino, FileType::File);
                    match entries.get_mut(&Key::Inode(ino).to_vec()) {
                        Some(Value::Inode(record)) => record.nlink += 1,
                        _ => panic!("{other} comes after {path}"),
                    }
                }
                Node::Xattr(name, value) => {
                    xattrs += 1;
                    let key = Key::Xattr(ino, name.as_bytes()).to_vec();
                    entries.insert(key, Value::Xattr(value.clone().into()));
                }
            }
            inos.insert(path.clone(), ino);
        }
    }
    let root = edit(sink, None, entries.into_iter().map(|(key, value)| (key, Some(value)))).unwrap();
    (root, xattrs)
}

/// The run-time folder is the environment's, so tests that need one take turns.
static ENVIRONMENT: Mutex<()> = Mutex::new(());

/// A store with its history mount; everything is unmounted and ended when it is dropped.
pub struct World {
    pub store: Store,
    pub dir: tempfile::TempDir,
    pub paths: HistoryPaths,
    _turn: std::sync::MutexGuard<'static, ()>,
}

impl World {
    pub fn new() -> Self {
        Self::with_idle("60")
    }

    /// `idle`: seconds until an unused server ends.
    pub fn with_idle(idle: &str) -> Self {
        Self::with(idle, "dev")
    }

    /// The transport too: `dev` or `uring`.
    pub fn with(idle: &str, transport: &str) -> Self {
        let turn = ENVIRONMENT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let dir = tempfile::tempdir().unwrap();
        // The guard keeps other tests of this process out while the variables are set and used.
        set_env("XDG_RUNTIME_DIR", dir.path().join("run"));
        set_env("ATOLL_SERVER_IDLE", idle);
        set_env("ATOLL_TRANSPORT", transport);
        let store = Store::create(&dir.path().join("store"), Profile::Off).unwrap();
        let paths = HistoryPaths::of(store.id());
        World { store, dir, paths, _turn: turn }
    }

    pub fn commit(&self, branch: &str, files: &Files) -> Commit {
        let name = RefName::Branch(branch.into());
        let old = self.store.get_ref(&name).unwrap();
        let writer = self.store.writer().unwrap();
        let (root, xattrs) = build(&writer, files);
        let (content, summary) = ContentSum::update(&writer, None, root).unwrap();
        assert_eq!(summary.xattrs, xattrs);
        let commit = NewCommit {
            root,
            content,
            summary,
            parents: old.iter().map(|state| state.commit).collect(),
            author: "test".into(),
            time: Time { sec: 1, nsec: 0 },
            utc_offset: 0,
            message: branch.into(),
            meta: BTreeMap::new(),
        };
        // The ref needs the commit's id, which publishing gives: two steps.
        let made = NewOperation { kind: "test".into(), commits: vec![commit], ..NewOperation::default() };
        let id = self.store.publish(writer, made).unwrap().commits[0];
        self.point(branch, id);
        self.store.commit(&id).unwrap()
    }

    /// Makes the branch name this commit.
    pub fn point(&self, branch: &str, commit: Hash) {
        let name = RefName::Branch(branch.into());
        let old = self.store.get_ref(&name).unwrap();
        let new = Some(RefState { commit, base: commit, folder: None });
        let changes = vec![RefChange { name, old, new }];
        let operation = NewOperation { kind: "test".into(), changes, ..NewOperation::default() };
        self.store.publish(self.store.writer().unwrap(), operation).unwrap();
    }

    /// Takes the branch away.
    pub fn delete(&self, branch: &str) {
        let name = RefName::Branch(branch.into());
        let old = self.store.get_ref(&name).unwrap();
        let changes = vec![RefChange { name, old, new: None }];
        let operation = NewOperation { kind: "test".into(), changes, ..NewOperation::default() };
        self.store.publish(self.store.writer().unwrap(), operation).unwrap();
    }

    /// `None` (said on stderr) where this process may not mount.
    pub fn serve(&self) -> Option<HistoryServer> {
        match atoll_mount::ensure_server(&self.store, &helper()) {
            Ok(server) => Some(server),
            Err(error) if error.code == atoll_store::Code::Permission => {
                eprintln!("skipped: no right to mount FUSE here ({error})");
                None
            }
            Err(error) => panic!("{error}\n{}", self.log()),
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.paths.log()).unwrap_or_default()
    }

    /// Where a commit is.
    pub fn folder(&self, commit: &Commit) -> PathBuf {
        self.paths.commit(commit)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // Ends the server; what a failed test still holds is detached.
        let stopped = (0..50).any(|_| {
            let stopped = !matches!(atoll_mount::stop_server(&self.paths), Err(error) if error.code == atoll_store::Code::Busy);
            if !stopped {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            stopped
        });
        let left = atoll_mount::overlay::mounts().unwrap();
        for mount in left.iter().rev().filter(|mount| mount.target.starts_with(self.dir.path())) {
            let _ = atoll_fuse::mount::unmount(&mount.target, true);
        }
        if !std::thread::panicking() {
            assert!(stopped, "the history server did not end:\n{}", self.log());
        } else {
            eprintln!("--- the server's log ---\n{}", self.log());
        }
    }
}

#[allow(unsafe_code)]
fn set_env(name: &str, value: impl AsRef<std::ffi::OsStr>) {
    // SAFETY: tests that read the environment hold the lock of the `World` they are in.
    unsafe { std::env::set_var(name, value) };
}

/// The helper processes' program.
pub fn helper() -> Helper {
    Helper { command: vec![env!("CARGO_BIN_EXE_atoll-helper").into()] }
}
