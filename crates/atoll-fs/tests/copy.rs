//! The copy driver: what a workspace's folder holds comes back as a tree, and only what changed is read.

mod import_common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_fs::Silent;
use atoll_fs::copy::{CopyCapture, capture, materialise};
use atoll_fs::import::{CommitRequest, Committed, commit_captured};
use atoll_store::store::NewOperation;
use atoll_store::tree::FileType;
use atoll_store::{Code, Hash, Result};
use import_common::*;

/// Ends the other thread also when an assertion fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Workspace {
    place: Place,
    dir: PathBuf,
    index: PathBuf,
    head: Hash,
}

impl Workspace {
    fn new(fill: impl FnOnce(&Place)) -> Workspace {
        let place = Place::new();
        fill(&place);
        let head = place.import().commit;
        let dir = place.temp.path().join("workspace");
        let index = place.temp.path().join("index");
        materialise(&place.store, &head, &dir, &index, &Silent).unwrap();
        Workspace { place, dir, index, head }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn try_commit(&mut self, save: bool) -> Result<Committed> {
        let options = CopyCapture {
            dir: self.dir.clone(),
            index: self.index.clone(),
            trust_index: true,
            head: self.head,
            threads: 0,
            seed: None,
        };
        let request = CommitRequest {
            branch: "main".into(),
            head: Some(self.head),
            operation: NewOperation { kind: "commit".into(), ..Default::default() },
            ..Default::default()
        };
        let mut pending = None;
        let committed = commit_captured(&self.place.store, &request, &mut || {
            let (captured, index) = capture(&self.place.store, &options, &Silent)?;
            pending = Some(index);
            Ok(captured)
        })?;
        if save {
            pending.unwrap().save(&committed.commit)?;
        }
        self.head = committed.commit;
        Ok(committed)
    }

    fn commit(&mut self) -> Committed {
        self.try_commit(true).unwrap()
    }

    fn differences(&self) -> Vec<String> {
        self.place.compare(self.head, &self.dir, &all())
    }
}

#[test]
fn nothing_changed_nothing_read() {
    let mut workspace = Workspace::new(|place| nasty(&place.folder));
    assert_eq!(workspace.differences(), [""; 0]);
    let before = workspace.head;
    let committed = workspace.commit();
    assert_eq!((committed.report.read_files, committed.report.read_bytes), (0, 0));
    assert!(!committed.report.changed);
    assert!(committed.published.is_none());
    assert_eq!(workspace.head, before);
}

#[test]
fn every_change_is_captured_and_nothing_else_read() {
    let mut workspace = Workspace::new(|place| {
        nasty(&place.folder);
        for name in ["edit", "append", "replace", "remove", "chmod", "move", "times", "retype", "d/x", "d/y"]
        {
            place.write(name, name.repeat(100));
        }
        tick();
    });
    let base = workspace.head;
    let place = &workspace.place;
    let keys = |id, name: &str| place.at(id, name);
    let before: Vec<_> = ["edit", "replace", "move", "d", "d/x"].map(|name| keys(base, name)).into();
    File::options().write(true).open(workspace.path("edit")).unwrap().write_all_at(b"E", 5).unwrap();
    fs::write(workspace.path("replace.tmp"), b"replaced").unwrap();
    fs::rename(workspace.path("replace.tmp"), workspace.path("replace")).unwrap();
    fs::remove_file(workspace.path("remove")).unwrap();
    set_mode(&workspace.path("chmod"), 0o600);
    fs::rename(workspace.path("move"), workspace.path("a/b/moved")).unwrap();
    set_mtime(&workspace.path("times"), 5, 6);
    fs::remove_file(workspace.path("retype")).unwrap();
    fs::create_dir(workspace.path("retype")).unwrap();
    fs::rename(workspace.path("d"), workspace.path("a/e")).unwrap();
    fs::write(workspace.path("new"), b"new").unwrap();
    set_xattr(&workspace.path("large"), "user.new", b"x");
    let file = File::options().append(true).open(workspace.path("append")).unwrap();
    std::io::Write::write_all(&mut &file, b"more").unwrap();
    let committed = workspace.commit();
    assert_eq!(workspace.differences(), [""; 0]);
    // edit, append, replace, chmod, moved, times, new, large: nothing else was opened.
    assert_eq!(committed.report.read_files, 8);
    let place = &workspace.place;
    let after = |name: &str| place.at(workspace.head, name);
    let is = |old: &(atoll_store::Ino, atoll_store::tree::Inode), name: &str| {
        let new = after(name);
        (old.0 == new.0, old.1.birth == new.1.birth)
    };
    assert_eq!(is(&before[0], "edit"), (true, true));
    assert_eq!(is(&before[1], "replace"), (false, true), "a replaced file keeps its birth id");
    assert_eq!(is(&before[2], "a/b/moved"), (true, true));
    assert_eq!(is(&before[3], "a/e"), (true, true));
    assert_eq!(is(&before[4], "a/e/x"), (true, true));
    tick();
    let again = workspace.commit();
    assert!(again.published.is_none());
    let third = workspace.commit();
    assert_eq!(third.report.read_files, 0);
}

#[test]
fn a_lost_or_outdated_index_costs_a_read_and_nothing_else() {
    let mut workspace = Workspace::new(|place| nasty(&place.folder));
    let files = |workspace: &Workspace| workspace.place.commit(workspace.head).record.summary.files;
    let before = workspace.head;
    fs::remove_file(&workspace.index).unwrap();
    let committed = workspace.commit();
    assert_eq!(committed.report.read_files, files(&workspace));
    assert_eq!(workspace.differences(), [""; 0]);
    let changed = workspace.place.store.clone();
    let changes = atoll_store::tree::changes(
        &changed,
        Some(workspace.place.commit(before).record.root),
        Some(workspace.place.commit(workspace.head).record.root),
    );
    assert_eq!(changes.unwrap(), []);
    // A crash after publish: the index is the one before.
    tick();
    fs::write(workspace.path("small"), b"one").unwrap();
    fs::write(workspace.path("new"), b"new").unwrap();
    workspace.try_commit(false).unwrap();
    let (new, _) = workspace.place.at(workspace.head, "new");
    tick();
    let again = workspace.commit();
    assert!(again.published.is_none(), "{:?}", again.report);
    assert!(again.report.read_files >= 2);
    assert_eq!(workspace.place.at(workspace.head, "new").0, new);
    fs::write(&workspace.index, b"damaged").unwrap();
    fs::remove_file(workspace.path("new")).unwrap();
    workspace.commit();
    assert_eq!(workspace.differences(), [""; 0]);
}

#[test]
fn a_change_that_stat_cannot_show_is_found() {
    let mut workspace = Workspace::new(|place| place.write("f", [b'a'; 5000]));
    // Written, captured and written again within one tick of the clock, the time set back each time.
    for round in 0..20u8 {
        fs::write(workspace.path("f"), [b'a' + round; 5000]).unwrap();
        set_mtime(&workspace.path("f"), 100, 0);
        workspace.commit();
        assert_eq!(workspace.place.text(workspace.head, "f"), [b'a' + round; 5000]);
    }
}

#[test]
fn what_the_host_could_not_take_is_kept() {
    if !is_root() {
        return;
    }
    let mut workspace = Workspace::new(|place| nasty(&place.folder));
    let base = workspace.head;
    // As if an ordinary user had materialised it: the device missing and known to be, the owner another.
    let (_, mut index) = atoll_fs_index(&workspace);
    fs::remove_file(workspace.path("null")).unwrap();
    index.absent("null", &workspace);
    workspace.commit();
    assert_eq!(workspace.place.at(workspace.head, "null"), workspace.place.at(base, "null"));
    fs::write(workspace.path("null"), b"now a file").unwrap();
    workspace.commit();
    assert_eq!(workspace.place.at(workspace.head, "null").1.kind, FileType::File);
}

fn atoll_fs_index(_: &Workspace) -> ((), FakeIndex) {
    ((), FakeIndex)
}

/// Marks files as never made, in the index file's own format (FORMAT: magic, commit, body, checksum).
struct FakeIndex;

impl FakeIndex {
    fn absent(&mut self, name: &str, workspace: &Workspace) {
        let bytes = fs::read(&workspace.index).unwrap();
        let key = workspace.place.at(workspace.head, name).0.key();
        let head = 8 + 32 + 16;
        let mut new = bytes[..head].to_vec();
        new.extend(1u64.to_le_bytes());
        new.extend(key.to_le_bytes());
        new.extend(&bytes[head + 8..bytes.len() - 32]);
        let sum = Hash::of(&new);
        new.extend(sum.0);
        fs::write(&workspace.index, new).unwrap();
    }
}

#[test]
fn renames_during_a_walk_lose_and_double_nothing() {
    let mut workspace = Workspace::new(|place| {
        for dir in 0..40 {
            for file in 0..20 {
                place.write(&format!("d{dir:02}/f{file}"), format!("{dir} {file}"));
            }
        }
        place.write("d00/moving", b"always somewhere");
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        let dir = workspace.dir.clone();
        let stop = &stop;
        scope.spawn(move || {
            let mut at = 0;
            while !stop.load(Ordering::Relaxed) {
                let next = (at + 17) % 40;
                fs::rename(dir.join(format!("d{at:02}/moving")), dir.join(format!("d{next:02}/moving")))
                    .unwrap();
                at = next;
                std::thread::sleep(std::time::Duration::from_micros(1500));
            }
        });
        for _ in 0..5 {
            match workspace.try_commit(true) {
                Ok(committed) => {
                    let tree = workspace.place.tree(committed.commit);
                    let paths: BTreeSet<_> = (0..40)
                        .filter(|dir| tree.resolve(format!("d{dir:02}/moving").as_bytes()).unwrap().is_some())
                        .collect();
                    assert_eq!(paths.len(), 1, "{paths:?}");
                }
                Err(error) => assert_eq!(error.code, Code::Changed, "{error}"),
            }
        }
    });
    let committed = workspace.commit();
    assert_eq!(committed.report.files, 801);
    assert_eq!(workspace.differences(), [""; 0]);
    assert!(fs::metadata(&workspace.dir).unwrap().is_dir());
}
