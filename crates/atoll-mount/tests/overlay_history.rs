//! Workspaces over the real history mount: mount, capture, unmount, start over from the head.

mod common;
#[path = "../../atoll-fs/tests/overlay_support/ops.rs"]
#[allow(dead_code)]
mod ops;

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use atoll_fs::Silent;
use atoll_fs::export::{CompareOptions, compare_folder};
use atoll_fs::import::{CommitRequest, commit_captured};
use atoll_fs::overlay::{HistoryIds, Notes, OverlayCapture, capture, recover_upper, reset_upper};
use atoll_mount::overlay::{FsyncMode, Overlay, mount, umount};
use atoll_store::store::NewOperation;
use atoll_store::tree::{Time, TreeView, changes};
use atoll_store::{Commit, Hash, Ino};
use common::{Files, Node, World};
use ops::{Op, Random, bytes};

/// A mounted workspace of `main`.
struct Workspace<'a> {
    world: &'a World,
    base: Commit,
    head: Hash,
}

impl<'a> Workspace<'a> {
    fn new(world: &'a World, base: Commit) -> Self {
        for name in ["ws", "mnt"] {
            fs::create_dir(world.dir.path().join(name)).unwrap();
        }
        let ws = Workspace { world, head: base.id, base };
        ws.mount();
        ws
    }

    fn at(&self, name: &str) -> PathBuf {
        self.world.dir.path().join(name)
    }

    fn ws(&self, name: &str) -> PathBuf {
        self.at("mnt").join(name)
    }

    fn mount(&self) {
        recover_upper(&self.at("ws"), &self.base.id).unwrap();
        let overlay = Overlay {
            lower: self.world.folder(&self.base),
            upper: self.at("ws/upper"),
            work: self.at("ws/work"),
            fsync: FsyncMode::Real,
        };
        mount(&overlay, &self.at("mnt")).unwrap();
    }

    /// Commits; whether there was something, how many files were read, and the rest.
    fn commit(&mut self, mounted: bool) -> (bool, u64, Notes) {
        let store = &self.world.store;
        let lower = HistoryIds { slot: store.slot(&self.base.id).unwrap() };
        let options = OverlayCapture {
            upper: self.at("ws/upper"),
            work: self.at("ws/work"),
            index: self.at("ws/index"),
            workspace: "0123456789abcdef".into(),
            base: self.base.id,
            head: self.head,
            lower: &lower,
            mountpoint: mounted.then(|| self.at("mnt")),
            freezer: None,
            trust_index: true,
            looked: None,
            threads: 2,
            seed: None,
        };
        let request = CommitRequest {
            branch: "main".into(),
            head: Some(self.head),
            author: "test".into(),
            time: Time { sec: 1, nsec: 0 },
            utc_offset: 0,
            message: "test".into(),
            meta: BTreeMap::new(),
            folder: None,
            operation: NewOperation { kind: "commit".into(), ..NewOperation::default() },
            allow_empty: false,
            skip_renumbered: true,
        };
        let (mut index, mut notes) = (None, Notes::default());
        let done = commit_captured(store, &request, &mut || {
            let captured = capture(store, &options, &Silent)?;
            (index, notes) = (Some(captured.index), captured.notes);
            Ok(captured.captured)
        })
        .unwrap();
        index.unwrap().save(&done.commit).unwrap();
        self.head = done.commit;
        (done.published.is_some(), done.report.read_files, notes)
    }

    /// Unmounts, captures the quiet upper, lets it go and mounts the head.
    fn start_over(&mut self) {
        umount(&self.at("mnt")).unwrap();
        self.commit(false);
        reset_upper(&self.at("ws"), &self.head, &mut || Ok(())).unwrap();
        self.base = self.world.store.commit(&self.head).unwrap();
        self.mount();
    }

    fn tree(&self, commit: Hash) -> TreeView<'_> {
        TreeView::new(&self.world.store, self.world.store.commit(&commit).unwrap().record.root)
    }

    fn ino(&self, commit: Hash, path: &str) -> Option<Ino> {
        self.tree(commit).resolve(path.as_bytes()).unwrap().map(|(ino, _)| ino)
    }

    /// The head, byte for byte, is what the workspace shows.
    fn check(&self) {
        let options = CompareOptions { limit: 20, ..CompareOptions::default() };
        let found = compare_folder(self.tree(self.head), b"", &self.at("mnt"), &options, &Silent).unwrap();
        let found: Vec<_> =
            found.iter().map(|m| format!("{}: {}", String::from_utf8_lossy(&m.path), m.what)).collect();
        assert!(found.is_empty(), "the commit and the workspace differ: {found:#?}");
    }
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        let _ = umount(&self.at("mnt"));
    }
}

fn sample() -> Files {
    let mut files = Files::default()
        .file("readme", "hello\n")
        .file("big", bytes(1, 600_000))
        .file("src/main", bytes(2, 3000))
        .file("src/deep/er/leaf", "leaf")
        .file("gone/a", "a")
        .file("gone/b", "b")
        .node("src/twin", Node::Hard("src/main".into()))
        .node("zother", Node::Hard("src/main".into()))
        .node("link", Node::Link("src/main".into()))
        .node("empty", Node::Dir)
        .node("sparse", Node::Sparse(vec![(65_536, vec![7; 4096])], 1_000_000));
    for at in 0..40 {
        files = files.file(&format!("many/{at}"), bytes(at, 500));
    }
    files
}

/// What holds for trees without extended attributes and for those with.
fn a_workspace_s_life(files: &Files) {
    let world = World::new();
    let base = world.commit("main", files);
    let Some(server) = world.serve() else { return };
    let mut ws = Workspace::new(&world, base.clone());
    ws.check();

    let append = |path: PathBuf, text: &[u8]| {
        OpenOptions::new().append(true).open(path).unwrap().write_all(text).unwrap();
    };
    append(ws.ws("big"), b"more");
    append(ws.ws("sparse"), b"more");
    append(ws.ws("src/main"), b"through one name of three");
    fs::set_permissions(ws.ws("readme"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::rename(ws.ws("many"), ws.ws("src/moved")).unwrap();
    fs::rename(ws.ws("src/deep"), ws.ws("deep")).unwrap();
    append(ws.ws("deep/er/leaf"), b"+");
    fs::remove_dir_all(ws.ws("gone")).unwrap();
    fs::create_dir(ws.ws("gone")).unwrap();
    fs::write(ws.ws("gone/c"), "c").unwrap();
    fs::write(ws.ws("new"), bytes(9, 70_000)).unwrap();
    drop(OpenOptions::new().write(true).open(ws.ws("src/moved/3")).unwrap());
    let (changed, _, notes) = ws.commit(true);
    assert!(changed && !notes.index_used);
    ws.check();
    for (before, after) in
        [("many", "src/moved"), ("src/deep/er", "deep/er"), ("big", "big"), ("zother", "src/twin")]
    {
        assert_eq!(ws.ino(base.id, before), ws.ino(ws.head, after), "{after}");
    }
    let tree = |commit: Hash| Some(world.store.commit(&commit).unwrap().record.root);
    let found = changes(&world.store, tree(base.id), tree(ws.head)).unwrap();
    let moved = found.iter().filter(|change| change.path.starts_with(b"src/moved")).count();
    assert_eq!(moved, 1, "a moved folder is one change, and a file in it that was only opened is none");
    assert!(!ws.commit(true).0);

    // Only the index folder has the change when the name that was copied up goes.
    fs::remove_file(ws.ws("src/main")).unwrap();
    assert!(ws.commit(true).0);
    ws.check();

    let stat = |ws: &Workspace<'_>| {
        let stat = fs::metadata(ws.ws("new")).unwrap();
        (stat.ino() as u32, stat.mtime_nsec(), stat.ctime_nsec(), stat.size())
    };
    let before = stat(&ws);
    ws.start_over();
    ws.check();
    assert_eq!(stat(&ws), before, "what git compares stays over the remount");
    append(ws.ws("src/moved/7"), b"again");
    fs::rename(ws.ws("src/moved"), ws.ws("many")).unwrap();
    fs::remove_file(ws.ws("zother")).unwrap();
    assert!(ws.commit(true).0);
    ws.check();
    assert_eq!(ws.ino(base.id, "many"), ws.ino(ws.head, "many"));
    assert_eq!(server.info.restarts, 0);
    drop(ws);
    drop(server);
}

#[test]
fn a_workspace_s_life_without_attributes() {
    a_workspace_s_life(&sample());
}

#[test]
fn a_workspace_s_life_with_attributes() {
    let files = sample()
        .node("readme", Node::Xattr("user.word".into(), b"value".to_vec()))
        .node("many", Node::Xattr("user.of a folder".into(), vec![0, 255, 7]));
    a_workspace_s_life(&files);
}

/// A mapped file that was copied up shows the lower's number, with `xino`'s bits.
#[test]
fn inherited_files_that_are_mapped_are_found() {
    let world = World::new();
    let base = world.commit("main", &sample());
    let Some(server) = world.serve() else { return };
    let mut ws = Workspace::new(&world, base);
    fs::write(ws.ws("new"), bytes(3, 9000)).unwrap();
    let program = "import mmap, sys\n\
        files = [open(name, 'r+b') for name in sys.argv[1:]]\n\
        maps = [mmap.mmap(file.fileno(), 0) for file in files]\n\
        for line in sys.stdin:\n\
        \x20   for each in maps: each[100] = ord(line[0])\n\
        \x20   print('done', flush=True)\n";
    let mut child = Command::new("python3")
        .args(["-c", program])
        .args([ws.ws("big"), ws.ws("src/twin"), ws.ws("new")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for byte in "123".chars() {
        writeln!(child.stdin.as_mut().unwrap(), "{byte}").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "done");
        let (changed, _, notes) = ws.commit(true);
        assert!(changed);
        assert_eq!(notes.mapped, 3);
        for name in ["big", "zother", "new"] {
            let tree = ws.tree(ws.head);
            let (ino, inode) = tree.resolve(name.as_bytes()).unwrap().unwrap();
            assert_eq!(tree.read(ino, inode.size, 100..101).unwrap()[0], byte as u8, "{name}");
        }
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    ws.check();
    drop(ws);
    drop(server);
}

#[test]
fn random_operations_over_history() {
    let world = World::new();
    let base = world.commit("main", &sample());
    let Some(server) = world.serve() else { return };
    let mut ws = Workspace::new(&world, base);
    let mut random = Random(20);
    let mut log = Vec::new();
    for round in 0..8 {
        for _ in 0..40 {
            let op = Op::random(&mut random);
            if op.run(&ws.at("mnt")).is_ok() {
                log.push(format!("{op:?}"));
            }
        }
        // The world of the operations is small: the sample's own files take part too.
        let _ = fs::rename(ws.ws("many"), ws.ws("a"));
        ws.commit(true);
        let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ws.check()));
        if let Err(panic) = checked {
            eprintln!("round {round}, after:\n{}", log.join("\n"));
            std::panic::resume_unwind(panic);
        }
        if round % 2 == 1 {
            ws.start_over();
            ws.check();
        }
    }
    drop(ws);
    drop(server);
}
