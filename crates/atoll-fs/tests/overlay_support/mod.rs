//! A workspace for tests: a plain folder that was imported is the lower, with kernel overlayfs above it.
#![allow(dead_code)]

pub mod ops;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atoll_fs::Silent;
use atoll_fs::export::{CompareOptions, compare_folder};
use atoll_fs::import::{CommitRequest, ImportOptions, commit_captured, import_folder};
use atoll_fs::overlay::{Freezer, Handle, LowerIds, Notes, OverlayCapture, capture};
use atoll_store::store::{NewOperation, Profile};
use atoll_store::tree::{Change, ChangeKind, FileType, Key, Time, TreeView, Value, changes, scan};
use atoll_store::{Error, Hash, Ino, Store};
pub use ops::bytes;
use rustix::mount::{MountFlags, UnmountFlags};

/// Relates the files of a plain folder to the tree that it was imported to.
pub struct PlainIds {
    keys: HashMap<u64, Ino>,
    shown: HashMap<Ino, u64>,
}

impl PlainIds {
    pub fn new(lower: &Path, tree: TreeView<'_>) -> PlainIds {
        let mut ids = PlainIds { keys: HashMap::new(), shown: HashMap::new() };
        ids.walk(lower, Ino::ROOT, tree);
        ids
    }

    fn walk(&mut self, dir: &Path, key: Ino, tree: TreeView<'_>) {
        for (name, dirent) in tree.readdir(key).unwrap() {
            let path = dir.join(std::ffi::OsStr::from_bytes(&name));
            let ino = fs::symlink_metadata(&path).unwrap().ino();
            self.keys.insert(ino, dirent.ino);
            self.shown.insert(dirent.ino, ino);
            if dirent.kind == FileType::Dir {
                self.walk(&path, dirent.ino, tree);
            }
        }
    }
}

impl LowerIds for PlainIds {
    fn key(&self, handle: &Handle) -> Option<Ino> {
        let words: Vec<u32> =
            handle.bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
        let ino = match words[..] {
            // ext4: number, generation. tmpfs: generation, number.
            [ino, _] => u64::from(ino),
            [_, low, high] => u64::from(high) << 32 | u64::from(low),
            _ => return None,
        };
        self.keys.get(&ino).copied()
    }

    fn st_ino(&self, key: Ino) -> Option<u64> {
        self.shown.get(&key).copied()
    }
}

/// Where changes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scratch {
    Disk,
    Memory,
}

pub struct Bench {
    pub dir: tempfile::TempDir,
    pub store: Store,
    pub ids: PlainIds,
    pub base: Hash,
    pub head: Hash,
    pub scratch: Scratch,
    pub mounted: bool,
    pub trust_index: bool,
}

/// What a commit did.
#[derive(Debug)]
pub struct Done {
    pub changed: bool,
    pub read_files: u64,
    pub unchanged: u64,
    pub notes: Notes,
    pub changes: Vec<String>,
}

/// Whether this process can mount; says so when it cannot.
pub fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root()
        && rustix::mount::fsopen("overlay", rustix::mount::FsOpenFlags::FSOPEN_CLOEXEC).is_ok();
    if !can {
        eprintln!("skipped: no right to mount an overlay");
    }
    can
}

impl Bench {
    /// Imports what `fill` makes and mounts an overlay over it.
    pub fn new(scratch: Scratch, fill: impl FnOnce(&Path)) -> Bench {
        let dir = tempfile::Builder::new().prefix("atoll-overlay-").tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["lower", "scratch", "mnt"] {
            fs::create_dir(at(name)).unwrap();
        }
        if scratch == Scratch::Memory {
            rustix::mount::mount("atoll-test", at("scratch"), "tmpfs", MountFlags::empty(), None).unwrap();
        }
        fill(&at("lower"));
        let store = Store::create(&at("store"), Profile::Off).unwrap();
        let options = ImportOptions { folder: at("lower"), ..ImportOptions::default() };
        let request = request(None);
        let done =
            commit_captured(&store, &request, &mut || import_folder(&store, &options, &Silent)).unwrap();
        let root = store.commit(&done.commit).unwrap().record.root;
        let ids = PlainIds::new(&at("lower"), TreeView::new(&store, root));
        let mut bench = Bench {
            dir,
            store,
            ids,
            base: done.commit,
            head: done.commit,
            scratch,
            mounted: false,
            trust_index: true,
        };
        bench.make_upper();
        bench.mount();
        bench
    }

    /// An empty upper; the merged root shows its attributes.
    pub fn make_upper(&self) {
        fs::create_dir(self.upper()).unwrap();
        fs::create_dir(self.work()).unwrap();
        same_attributes(&self.path("lower"), &self.upper());
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    pub fn upper(&self) -> PathBuf {
        self.path("scratch/upper")
    }
    pub fn work(&self) -> PathBuf {
        self.path("scratch/work")
    }
    /// A path in the mounted workspace.
    pub fn ws(&self, name: &str) -> PathBuf {
        self.path("mnt").join(name)
    }

    pub fn mount(&mut self) {
        let text = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=on,index=on,xino=on,metacopy=on",
            self.path("lower").display(),
            self.upper().display(),
            self.work().display()
        );
        let text = CString::new(text).unwrap();
        // A mount namespace that another test makes has a copy of what was mounted before, for a moment.
        let target = self.path("mnt");
        patiently(|| rustix::mount::mount("atoll-test", &target, "overlay", MountFlags::empty(), &*text));
        self.mounted = true;
    }

    pub fn umount(&mut self) {
        if std::mem::take(&mut self.mounted) {
            // Whoever looks at all mounts (`df`, another test's search for holders) has this one for a moment.
            patiently(|| rustix::mount::unmount(self.path("mnt"), UnmountFlags::empty()));
        }
    }

    pub fn root(&self, commit: Hash) -> TreeView<'_> {
        TreeView::new(&self.store, self.store.commit(&commit).unwrap().record.root)
    }

    /// Captures and publishes.
    pub fn commit(&mut self) -> Done {
        self.try_commit(None).unwrap()
    }

    fn options<'a>(&'a self, freezer: Option<&'a dyn Freezer>) -> OverlayCapture<'a> {
        OverlayCapture {
            upper: self.upper(),
            work: self.work(),
            index: self.path("index"),
            workspace: "0123456789abcdef".into(),
            base: self.base,
            head: self.head,
            lower: &self.ids,
            mountpoint: self.mounted.then(|| self.path("mnt")),
            freezer,
            trust_index: self.trust_index,
            looked: None,
            threads: 2,
            seed: None,
        }
    }

    /// What `status` does: how many files it read, and what it lists.
    pub fn look(&self) -> (u64, Vec<String>) {
        let options = OverlayCapture { looked: Some(self.path("looked")), ..self.options(None) };
        let captured = capture(&self.store, &options, &Silent).unwrap().captured;
        let list = captured.changes(&self.store, &self.head).unwrap();
        (captured.report.read_files, list.iter().map(describe).collect())
    }

    pub fn try_commit(&mut self, freezer: Option<&dyn Freezer>) -> Result<Done, Error> {
        let before = self.head;
        let mut pending = None;
        let mut notes = Notes::default();
        let options = self.options(freezer);
        let mut changed = false;
        let done = commit_captured(&self.store, &request(Some(self.head)), &mut || {
            let captured = capture(&self.store, &options, &Silent)?;
            pending = Some(captured.index);
            notes = captured.notes;
            changed = captured.captured.report.changed;
            Ok(captured.captured)
        })?;
        if done.is_exact() {
            pending.unwrap().save(&done.commit).unwrap();
        }
        assert!(changed || done.published.is_none(), "report.changed says what can be published");
        let changed = done.published.is_some();
        self.head = done.commit;
        let (old, new) = (self.root(before).root, self.root(self.head).root);
        let changes = changes(&self.store, Some(old), Some(new)).unwrap();
        Ok(Done {
            changed,
            read_files: done.report.read_files,
            unchanged: done.report.unchanged,
            notes,
            changes: changes.iter().map(describe).collect(),
        })
    }

    /// Compares the head with what the workspace shows, every byte; and the head with itself.
    pub fn check(&self) {
        let tree = self.root(self.head);
        check_tree(tree);
        let options = CompareOptions { limit: 20, ..CompareOptions::default() };
        let found = compare_folder(tree, b"", &self.path("mnt"), &options, &Silent).unwrap();
        let found: Vec<String> =
            found.iter().map(|m| format!("{}: {}", String::from_utf8_lossy(&m.path), m.what)).collect();
        assert!(found.is_empty(), "the commit and the workspace differ: {found:#?}");
        // The same from nothing but the base and the upper, without an index.
        let summary = self.store.commit(&self.head).unwrap().record.summary;
        let record = self.store.commit(&self.head).unwrap().record;
        let fresh = atoll_store::tree::ContentSum::update(&self.store, None, record.root).unwrap();
        assert_eq!(fresh, (record.content, summary), "the second hash and the counts");
    }

    /// Commits, compares, and commits once more: nothing may have changed, and nothing may be read.
    pub fn commit_and_check(&mut self) -> Done {
        let done = self.commit();
        self.check();
        // Changes of the last ticks are never clean.
        std::thread::sleep(std::time::Duration::from_millis(25));
        let again = self.commit();
        assert!(!again.changed, "{again:?}");
        assert!(again.notes.index_used);
        let last = self.commit();
        assert_eq!((last.read_files, last.changed, last.notes.passes), (0, false, 1), "{last:?}");
        done
    }

    /// A capture without an index gives the same paths, contents and numbers.
    pub fn check_without_index(&mut self) {
        let _ = fs::remove_file(self.path("index"));
        let done = self.commit();
        assert!(!done.notes.index_used);
        assert!(!done.changed, "without an index: {done:?}");
    }

    pub fn ino(&self, commit: Hash, path: &str) -> Option<Ino> {
        self.root(commit).resolve(path.as_bytes()).unwrap().map(|(ino, _)| ino)
    }
}

/// Mounts or unmounts, waiting for what others hold for a moment.
fn patiently(call: impl Fn() -> rustix::io::Result<()>) {
    let mut result = call();
    for _ in 0..200 {
        if result != Err(rustix::io::Errno::BUSY) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        result = call();
    }
    result.unwrap();
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.mounted {
            let _ = rustix::mount::unmount(self.path("mnt"), UnmountFlags::DETACH);
        }
        if self.scratch == Scratch::Memory {
            let _ = rustix::mount::unmount(self.path("scratch"), UnmountFlags::DETACH);
        }
    }
}

fn describe(change: &Change) -> String {
    let path = String::from_utf8_lossy(&change.path);
    let old = change.old_path.as_ref().map(|old| format!(" from {}", String::from_utf8_lossy(old)));
    let told = matches!(change.kind, ChangeKind::Renamed | ChangeKind::Modified);
    let content = if change.content_changed && told { " +content" } else { "" };
    format!("{:?} {path}{}{content}", change.kind, old.unwrap_or_default())
}

fn request(head: Option<Hash>) -> CommitRequest {
    CommitRequest {
        branch: "main".into(),
        head,
        author: "test".into(),
        time: Time { sec: 1, nsec: 0 },
        utc_offset: 0,
        message: "test".into(),
        meta: BTreeMap::new(),
        folder: None,
        operation: NewOperation { kind: "commit".into(), ..NewOperation::default() },
        allow_empty: false,
        skip_renumbered: true,
    }
}

fn same_attributes(from: &Path, to: &Path) {
    let stat = fs::metadata(from).unwrap();
    fs::set_permissions(to, stat.permissions()).unwrap();
    let times = fs::FileTimes::new().set_modified(stat.modified().unwrap());
    fs::File::open(to).unwrap().set_times(times).unwrap();
}

/// Every name has its way back, every file a name, link counts are right, cookies differ.
pub fn check_tree(tree: TreeView<'_>) {
    let mut inodes = HashMap::new();
    let mut parents = HashSet::new();
    let mut dirents = HashSet::new();
    let mut cookies = HashSet::new();
    let mut names: HashMap<Ino, u32> = HashMap::new();
    let mut subdirs: HashMap<Ino, u32> = HashMap::new();
    let mut others = Vec::new();
    let mut births = HashSet::new();
    for entry in scan(tree.objects, tree.root, &[], None) {
        let (key, value) = entry.unwrap();
        match (Key::decode(&key).unwrap(), value) {
            (Key::Inode(ino), Value::Inode(inode)) => {
                assert!(births.insert(inode.birth), "birth id of {ino:?} twice");
                inodes.insert(ino, inode);
            }
            (Key::Parent(ino, dir, name), Value::Parent) => {
                parents.insert((ino, dir, name.to_vec()));
            }
            (Key::Dirent(dir, name), Value::Dirent(dirent)) => {
                assert!(dirent.cookie > 0 && cookies.insert((dir, dirent.cookie)), "cookie {dirent:?}");
                dirents.insert((dirent.ino, dir, name.to_vec()));
                *names.entry(dirent.ino).or_default() += 1;
                if dirent.kind == FileType::Dir {
                    *subdirs.entry(dir).or_default() += 1;
                }
            }
            (key, _) => others.push(key.ino()),
        }
    }
    assert_eq!(parents, dirents);
    for (ino, inode) in &inodes {
        let want = match inode.kind {
            FileType::Dir => 2 + subdirs.get(ino).unwrap_or(&0),
            _ => *names.get(ino).unwrap_or(&0),
        };
        assert_eq!(inode.nlink, want, "links of {ino:?} {inode:?}");
        assert!(*ino == Ino::ROOT || names.contains_key(ino), "{ino:?} has no name");
    }
    for ino in names.keys().chain(&others) {
        assert!(inodes.contains_key(ino), "{ino:?} has no record");
    }
}
