//! Importing again: who keeps its number, what is read, what is left out, and folders that do not keep still.

mod import_common;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering};

use atoll_fs::import::{ImportOptions, SkipReason, last_import};
use atoll_store::Code;
use atoll_store::tree::{FileType, Time};
use import_common::*;

#[test]
fn an_unchanged_folder_is_the_same_tree_and_is_not_read() {
    let place = Place::new();
    nasty(&place.folder);
    tick();
    let first = place.import();
    assert_eq!(first.report.unchanged, 0);
    let second = place.import();
    assert_eq!((second.report.read_files, second.report.read_bytes), (0, 0));
    assert!(second.published.is_none());
    assert_eq!(second.report.unchanged, second.report.files);
    assert_eq!(second.commit, first.commit);
    let folder = fs::canonicalize(&place.folder).unwrap();
    let found = last_import(&place.store, &first.commit, folder.as_os_str().as_encoded_bytes()).unwrap();
    assert_eq!(found, Some(first.commit));
    assert_eq!(last_import(&place.store, &first.commit, b"/other").unwrap(), None);
}

#[test]
fn a_file_that_was_in_doubt_is_read_once_more_and_not_again() {
    let place = Place::new();
    place.write("old", "old");
    tick();
    place.write("young", "young");
    let written = fs::metadata(place.path("young")).unwrap();
    let options = ImportOptions { folder: place.folder.clone(), ..Default::default() };
    let first = place.import_as(&options, &|captured| {
        // As if it had begun in the very tick in which that file was written.
        let mut record: serde_json::Value = serde_json::from_str(&captured.meta["import"]).unwrap();
        record["started_ns"] = (written.ctime() * 1_000_000_000 + written.ctime_nsec()).into();
        captured.meta.insert("import".into(), record.to_string());
    });
    let first = first.unwrap().commit;
    tick();
    let second = place.import();
    assert_eq!((second.commit, second.report.read_files), (first, 1), "in doubt, so it was read");
    let third = place.import();
    assert_eq!((third.commit, third.report.read_files), (first, 0));
    // Without the database it is in doubt again, and the answer is the same.
    for name in ["meta.db", "meta.db-wal", "meta.db-shm"] {
        let _ = fs::remove_file(place.store.dir().join(name));
    }
    for expected in [1, 0] {
        let again = place.import();
        assert_eq!((again.commit, again.report.read_files), (first, expected));
    }
    // What changes after that is seen, and what was remembered holds for that tree alone.
    place.write("young", "grown");
    let changed = place.import();
    assert_ne!(changed.commit, first);
    assert_eq!(place.text(changed.commit, "young"), b"grown");
}

#[test]
fn the_same_folder_and_seed_give_the_same_tree() {
    let place = Place::new();
    nasty(&place.folder);
    let tree = |threads| {
        use atoll_fs::import::{ImportOptions, import_folder};
        use atoll_store::Objects;
        let folder = place.folder.clone();
        let options = ImportOptions { folder, seed: Some(7), threads, ..Default::default() };
        let captured = import_folder(&place.store, &options, &atoll_fs::Silent).unwrap();
        (captured.writer.hash(captured.root).unwrap(), captured.content)
    };
    let first = tree(1);
    assert_eq!(tree(2), first);
    assert_eq!(tree(5), first);
}

#[test]
fn numbers_are_the_hosts_and_stay() {
    let place = Place::new();
    for name in ["same", "edited", "moved", "replaced", "swap1", "swap2", "dir/in", "gone", "linked"] {
        place.write(name, name);
    }
    tick();
    let one = place.import().commit;
    let at = |id, name: &str| place.at(id, name);
    for name in ["same", "dir", "dir/in"] {
        let low = fs::metadata(place.path(name)).unwrap().ino() as u32;
        assert_eq!(at(one, name).0.low(), low);
        assert_eq!(at(one, name).0.random(), at(one, "same").0.random());
    }
    fs::write(place.path("edited"), b"longer than before").unwrap();
    fs::rename(place.path("moved"), place.path("dir/moved")).unwrap();
    fs::write(place.path("tmp"), b"new contents").unwrap();
    fs::rename(place.path("tmp"), place.path("replaced")).unwrap();
    fs::rename(place.path("swap1"), place.path("tmp")).unwrap();
    fs::rename(place.path("swap2"), place.path("swap1")).unwrap();
    fs::rename(place.path("tmp"), place.path("swap2")).unwrap();
    fs::rename(place.path("dir"), place.path("other")).unwrap();
    fs::remove_file(place.path("gone")).unwrap();
    fs::hard_link(place.path("linked"), place.path("other/link")).unwrap();
    // The old file moves on, so what takes its name is somebody else.
    let two = place.import();
    assert_eq!(place.compare(two.commit, &place.folder, &all()), [""; 0]);
    let two = two.commit;
    assert_eq!(at(one, "same"), at(two, "same"));
    assert_eq!(at(one, "edited").0, at(two, "edited").0);
    assert_eq!(at(one, "moved").0, at(two, "other/moved").0);
    assert_eq!(at(one, "swap1").0, at(two, "swap2").0);
    assert_eq!(at(one, "swap2").0, at(two, "swap1").0);
    assert_eq!(at(one, "dir").0, at(two, "other").0);
    assert_eq!(at(one, "dir/in"), at(two, "other/in"));
    assert_ne!(at(one, "replaced").0, at(two, "replaced").0);
    assert_eq!(at(one, "replaced").1.birth, at(two, "replaced").1.birth);
    assert_eq!(at(two, "linked").0, at(two, "other/link").0);
    assert_eq!(at(two, "linked").1.nlink, 2);
    assert!(!place.has(two, "gone"));
    fs::rename(place.path("same"), place.path("kept elsewhere")).unwrap();
    fs::write(place.path("same"), b"a new file under the old name").unwrap();
    let three = place.import().commit;
    assert_eq!(at(two, "same").0, at(three, "kept elsewhere").0);
    assert_ne!(at(two, "same").1.birth, at(three, "same").1.birth, "the old file has a name left");
}

#[test]
fn cookies_never_change() {
    let place = Place::new();
    for name in ["b", "d", "f"] {
        place.write(name, name);
    }
    let one = place.import().commit;
    let cookies = |id| -> Vec<(String, u64)> {
        let all = place.tree(id).readdir(atoll_store::Ino::ROOT).unwrap();
        all.iter().map(|(name, dirent)| (String::from_utf8(name.to_vec()).unwrap(), dirent.cookie)).collect()
    };
    let named =
        |all: &[(&str, u64)]| all.iter().map(|(name, at)| (name.to_string(), *at)).collect::<Vec<_>>();
    assert_eq!(cookies(one), named(&[("b", 1), ("d", 2), ("f", 3)]));
    place.write("a", "a");
    place.write("e", "e");
    fs::remove_file(place.path("b")).unwrap();
    let two = place.import().commit;
    assert_eq!(cookies(two), named(&[("a", 4), ("d", 2), ("e", 5), ("f", 3)]));
}

#[test]
fn only_what_changed_is_read() {
    let place = Place::new();
    for at in 0..200 {
        place.write(&format!("d{}/f{at}", at % 7), vec![at as u8; 1000 + at]);
    }
    tick();
    place.import();
    fs::write(place.path("d3/f3"), b"changed").unwrap();
    set_mode(&place.path("d4/f4"), 0o600);
    place.write("d5/new", b"new");
    fs::remove_file(place.path("d6/f6")).unwrap();
    let again = place.import();
    assert_eq!(again.report.read_files, 3);
    assert_eq!(again.report.read_bytes, 7 + 1004 + 3);
    assert_eq!(again.report.unchanged, 197);
    assert_eq!(place.compare(again.commit, &place.folder, &all()), [""; 0]);
}

/// Each alone would be easily lost among files that are all as they were.
#[test]
fn one_change_in_an_unchanged_folder_is_seen() {
    type Change = fn(&Place);
    let changes: &[(&str, Change)] = &[
        ("a file less", |place| fs::remove_file(place.path("d/f3")).unwrap()),
        ("an empty folder less", |place| fs::remove_dir(place.path("d/void")).unwrap()),
        ("a file more", |place| place.write("d/more", b"")),
        ("a folder more", |place| fs::create_dir(place.path("d/deeper/more")).unwrap()),
        ("a name less", |place| fs::remove_file(place.path("d/deeper/link")).unwrap()),
        ("a name more", |place| fs::hard_link(place.path("d/f1"), place.path("d/f1 too")).unwrap()),
        ("a moved name", |place| fs::rename(place.path("d/f2"), place.path("d/f22")).unwrap()),
        ("a moved folder", |place| fs::rename(place.path("d/empty"), place.path("empty")).unwrap()),
        ("a file's rights", |place| set_mode(&place.path("d/f4"), 0o640)),
        ("a folder's rights", |place| set_mode(&place.path("d/deeper"), 0o700)),
        ("the root's rights", |place| set_mode(&place.folder, 0o711)),
        ("a time", |place| set_mtime(&place.path("d/f5"), 77, 7)),
        ("an attribute", |place| set_xattr(&place.path("d/deeper/g"), "user.a", b"1")),
        ("as long as before", |place| {
            let before = fs::metadata(place.path("d/f6")).unwrap();
            fs::write(place.path("d/f6"), b"N").unwrap();
            set_mtime(&place.path("d/f6"), before.mtime(), before.mtime_nsec());
        }),
        ("swapped", |place| {
            fs::rename(place.path("d/f7"), place.path("swap")).unwrap();
            fs::rename(place.path("d/f8"), place.path("d/f7")).unwrap();
            fs::rename(place.path("swap"), place.path("d/f8")).unwrap();
        }),
        ("another kind", |place| {
            fs::remove_file(place.path("d/f9")).unwrap();
            fs::create_dir(place.path("d/f9")).unwrap();
        }),
    ];
    let place = Place::new();
    for at in 0..10 {
        place.write(&format!("d/f{at}"), [b'0' + at as u8]);
    }
    place.write("d/deeper/g", b"g");
    fs::hard_link(place.path("d/f0"), place.path("d/deeper/link")).unwrap();
    fs::create_dir(place.path("d/empty")).unwrap();
    fs::create_dir(place.path("d/void")).unwrap();
    tick();
    place.import();
    for (what, change) in changes {
        let still = place.import();
        assert_eq!(still.report.read_files, 0, "before: {what}");
        assert_eq!(still.report.unchanged, still.report.files, "before: {what}");
        assert!(still.published.is_none(), "before: {what}");
        change(&place);
        tick();
        let after = place.import();
        assert!(after.published.is_some() && after.report.changed, "{what}");
        assert_eq!(place.compare(after.commit, &place.folder, &all()), [""; 0], "{what}");
    }
}

#[test]
fn a_change_within_a_clock_tick_is_found() {
    let place = Place::new();
    for round in 0..15u8 {
        place.write("f", [round; 64]);
        set_mtime(&place.path("f"), 100, 0);
        let id = place.import().commit;
        assert_eq!(place.text(id, "f"), [round; 64]);
    }
}

#[test]
fn patterns_leave_out() {
    let place = Place::new();
    for name in [
        "keep",
        "a.log",
        "sub/b.log",
        "sub/keep.log",
        "build/out",
        "node_modules/m/index.js",
        ".git/x",
        "x.tmp",
    ] {
        place.write(name, name);
    }
    place.write(".atollignore", "*.log\n/build/\n");
    place.write("sub/.atollignore", "!keep.log\n");
    let imported = place.import_with(|options| options.excludes = vec!["*.tmp".into()]).unwrap();
    let id = imported.commit;
    for name in ["keep", "sub/keep.log", "node_modules/m/index.js", ".git/x", ".atollignore"] {
        assert!(place.has(id, name), "{name}");
    }
    for name in ["a.log", "sub/b.log", "build", "x.tmp"] {
        assert!(!place.has(id, name), "{name}");
    }
    assert_eq!(imported.report.ignored, 4);
    // Patterns that go bring back what they left out, also in folders that did not change.
    place.write(".atollignore", "/build/\n");
    let id = place.import().commit;
    assert!(place.has(id, "sub/b.log") && place.has(id, "x.tmp") && !place.has(id, "build"));
    place.write(".atollignore", "a{\n");
    assert_eq!(place.import_with(|_| {}).unwrap_err().code, Code::Usage);
}

#[test]
fn stores_and_mounts_are_left_out_and_said() {
    let place = Place::new();
    place.write("file", b"f");
    atoll_store::Store::create(&place.path("inner/store"), atoll_store::store::Profile::Off).unwrap();
    place.write("not a store/atoll.toml", b"only a name");
    let imported = place.import();
    assert_eq!(imported.report.skipped, [(b"inner/store".to_vec(), SkipReason::Store)]);
    assert!(place.has(imported.commit, "not a store/atoll.toml"));
    let error = place.import_with(|options| options.folder = place.path("inner/store")).unwrap_err();
    assert_eq!(error.code, Code::Usage);
    if !is_root() {
        return;
    }
    fs::create_dir(place.path("mounted")).unwrap();
    let mount = Mount::tmpfs(&place.path("mounted"));
    fs::write(place.path("mounted/inside"), b"i").unwrap();
    let bound = Mount::bind(&place.folder.join("not a store"), &place.path("inner"));
    let imported = place.import();
    let expected = [(b"inner".to_vec(), SkipReason::Mount), (b"mounted".to_vec(), SkipReason::Mount)];
    drop((mount, bound));
    assert_eq!(imported.report.skipped, expected);
    assert!(!place.has(imported.commit, "mounted/inside"));
}

/// Ends the other thread also when an assertion fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

struct Mount(std::path::PathBuf);

impl Mount {
    fn tmpfs(at: &std::path::Path) -> Mount {
        use rustix::mount::{MountFlags, mount};
        mount("none", at, "tmpfs", MountFlags::empty(), None).unwrap();
        Mount(at.into())
    }

    fn bind(from: &std::path::Path, at: &std::path::Path) -> Mount {
        rustix::mount::mount_bind(from, at).unwrap();
        Mount(at.into())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::empty()).unwrap();
    }
}

#[test]
fn secrets_are_named_once() {
    let place = Place::new();
    place.write(".env", "TOKEN=x");
    place.write("keys/id_rsa", "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n");
    place.write(".npmrc", "//packages.example.test/:_authToken=abc\n");
    place.write("readme", "no secret");
    tick();
    let first = place.import();
    assert_eq!(first.report.secrets, [&b".env"[..], b".npmrc", b"keys/id_rsa"]);
    assert_eq!(place.import().report.secrets, [b""; 0]);
}

#[test]
fn a_busy_file_and_a_busy_folder_are_read_whole() {
    let place = Place::new();
    for at in 0..100 {
        place.write(&format!("d/f{at}"), [1; 100]);
    }
    // Every state of this file is one repeated byte.
    place.write("busy", vec![0u8; 100_000]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        scope.spawn(|| {
            let file = File::options().write(true).open(place.path("busy")).unwrap();
            let mut round = 0u8;
            while !stop.load(Ordering::Relaxed) {
                round = round.wrapping_add(1);
                file.write_all_at(&vec![round; 100_000], 0).unwrap();
                let (from, to) = (place.path("d/f0"), place.path("moved"));
                let (from, to) = if round.is_multiple_of(2) { (to, from) } else { (from, to) };
                fs::rename(from, to).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(25));
            }
            if round % 2 == 1 {
                fs::rename(place.path("moved"), place.path("d/f0")).unwrap();
            }
        });
        for _ in 0..10 {
            let id = place.import().commit;
            let text = place.text(id, "busy");
            assert_eq!(text.len(), 100_000);
            assert!(text.iter().all(|byte| *byte == text[0]), "the file was read while it changed");
            assert!(place.has(id, "moved") != place.has(id, "d/f0"));
        }
    });
    let id = place.import().commit;
    assert_eq!(place.compare(id, &place.folder, &all()), [""; 0]);
}

#[test]
fn a_file_that_never_keeps_still_stops_the_import() {
    let place = Place::new();
    // Reading it takes longer than any other thread can be kept from running.
    place.write("busy", noise(48 << 20, 1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        scope.spawn(|| {
            let file = File::options().write(true).open(place.path("busy")).unwrap();
            while !stop.load(Ordering::Relaxed) {
                file.write_all_at(b"x", 5).unwrap();
            }
        });
        let error = place.import_with(|_| {}).unwrap_err();
        assert_eq!(error.code, Code::Changed);
        assert!(error.message.contains("busy"), "{error}");
    });
    assert_eq!(place.head(), None);
}

#[test]
fn a_map_that_is_written_without_a_trace_is_read() {
    let place = Place::new();
    place.write("mapped", vec![0; 8192]);
    tick();
    let script = "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\n\
        for line in sys.stdin:\n m[0:1]=bytes([int(line)]); print('ok',flush=True)\n";
    let mut child = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(place.path("mapped"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
    for round in 1..6u8 {
        use std::io::{BufRead, Write};
        writeln!(input, "{round}").unwrap();
        output.read_line(&mut String::new()).unwrap();
        tick();
        let id = place.import().commit;
        assert_eq!(place.text(id, "mapped")[0], round);
    }
    drop(input);
    child.wait().unwrap();
}

#[test]
fn what_cannot_be_read_is_named_or_left_out() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    place.write("open", b"o");
    place.write("secret/inside", b"s");
    place.write("closed", b"c");
    set_mode(&place.path("closed"), 0);
    set_mode(&place.path("secret"), 0);
    set_mode(place.temp.path(), 0o755);
    // Rights are a thread's: this one gives up root's.
    let attempt = |skip_unreadable| {
        std::thread::scope(|scope| {
            let place = &place;
            let reader = scope.spawn(move || {
                use atoll_fs::scan::{Scan, ScanOptions};
                let mut rights = rustix::thread::capabilities(None).unwrap();
                rights.effective = rustix::thread::CapabilitySet::empty();
                rustix::thread::set_capabilities(None, rights).unwrap();
                let options = ScanOptions {
                    ignores: None,
                    skip_unreadable,
                    skip_stores: true,
                    threads: 1,
                    progress: &atoll_fs::Silent,
                };
                Scan::new(&place.folder, &options).map(|scan| scan.left_out().0)
            });
            reader.join().unwrap()
        })
    };
    assert_eq!(attempt(true).unwrap(), [(b"secret".to_vec(), SkipReason::Unreadable)]);
    let error = attempt(false).unwrap_err();
    assert_eq!(error.code, Code::Permission);
    assert!(error.message.contains("secret"), "{error}");
}

#[test]
fn files_of_one_device_number_and_kinds_that_change() {
    let place = Place::new();
    place.write("a", b"file");
    place.write("b/c", b"folder");
    std::os::unix::fs::symlink("a", place.path("l")).unwrap();
    let one = place.import().commit;
    fs::remove_file(place.path("a")).unwrap();
    std::os::unix::fs::symlink("b", place.path("a")).unwrap();
    fs::remove_dir_all(place.path("b")).unwrap();
    fs::write(place.path("b"), b"now a file").unwrap();
    fs::remove_file(place.path("l")).unwrap();
    fs::create_dir(place.path("l")).unwrap();
    let two = place.import().commit;
    assert_eq!(place.compare(two, &place.folder, &all()), [""; 0]);
    let kinds = ["a", "b", "l"].map(|name| place.at(two, name).1.kind);
    assert_eq!(kinds, [FileType::Symlink, FileType::File, FileType::Dir]);
    let births: BTreeSet<_> = ["a", "b", "l"]
        .iter()
        .flat_map(|name| [place.at(one, name).1.birth, place.at(two, name).1.birth])
        .collect();
    assert_eq!(births.len(), 6, "another kind of file is another file");
    assert_ne!(place.at(two, "b").1.btime, Time::default());
}
