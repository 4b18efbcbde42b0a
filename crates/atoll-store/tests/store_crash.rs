//! Kills and full disks at every write, sync and rename: the previous state or the new one, never a third.
//!
//! Each child is this test program again. `ATOLL_FAULT` (built with debug assertions only) makes it stop.

mod store_support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use atoll_store::store::{GcOptions, Profile, Workspace};
use atoll_store::tree::Time;
use atoll_store::{Code, Hash, Store};
use store_support::*;

fn run(store: &Path, role: &str, fault: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env("ATOLL_TEST_STORE", store)
        .env("ATOLL_TEST_ROLE", role)
        .env("ATOLL_FAULT", fault)
        .output()
        .unwrap()
}

fn workspace(commit: Hash) -> Workspace {
    Workspace {
        id: "00000000000000aa".to_owned(),
        branch: "main".to_owned(),
        driver: "copy".to_owned(),
        base: commit,
        head: commit,
        mountpoint: Some("/somewhere".into()),
        settings: "{\"a\": 1}".to_owned(),
        created: Time { sec: 5, nsec: 6 },
    }
}

const GC: GcOptions = GcOptions { expire: Duration::ZERO, dry_run: false, thorough: true };

#[test]
fn child() {
    let Ok(dir) = std::env::var("ATOLL_TEST_STORE") else { return };
    if std::env::var("ATOLL_TEST_ROLE").is_ok_and(|role| role == "create") {
        return match Store::create(Path::new(&dir), Profile::Full) {
            Ok(_) => println!("done"),
            Err(error) => println!("refused {}", error.code.name()),
        };
    }
    let store = match Store::open(Path::new(&dir)) {
        Ok(store) => store,
        Err(error) => return println!("refused {}", error.code.name()),
    };
    let outcome = match std::env::var("ATOLL_TEST_ROLE").unwrap().as_str() {
        "small" => commit_files(&store, "main", &small(), "small").map(|_| ()),
        "large" => commit_files(&store, "main", &large(), "large").map(|_| ()),
        "gc" => store.gc_with(&GC).map(|_| ()),
        "workspace" => {
            let tip = store.resolve("main").unwrap();
            store.put_workspace(&workspace(tip)).and_then(|()| store.slot(&tip).map(|_| ()))
        }
        "loop" => {
            for step in 0u64.. {
                let files = some_files(step, if step % 3 == 0 { 40 } else { 2 }, 2500);
                let commit = commit_files(&store, "main", &files, "step").unwrap().commits[0];
                println!("\nacknowledged {step} {commit}");
                if step % 5 == 4 {
                    store.gc_with(&GC).unwrap();
                }
            }
            Ok(())
        }
        role => panic!("no role {role}"),
    };
    match outcome {
        Ok(()) => println!("done"),
        Err(error) => println!("refused {}", error.code.name()),
    }
}

fn first() -> BTreeMap<String, Vec<u8>> {
    some_files(1, 80, 2000)
}

fn small() -> BTreeMap<String, Vec<u8>> {
    some_files(2, 4, 2000)
}

fn large() -> BTreeMap<String, Vec<u8>> {
    some_files(3, 120, 2000)
}

/// A store with a large and some small commits, dead and live.
fn prepare(dir: &Path) -> Store {
    let store = new_store(dir);
    commit_files(&store, "main", &first(), "first").unwrap();
    for seed in 10..20 {
        commit_files(&store, &format!("b{seed}"), &some_files(seed, 6, 2000), "branch").unwrap();
    }
    commit_files(&store, "dead", &some_files(30, 80, 2000), "dead").unwrap();
    for name in ["dead", "b12", "b15"] {
        delete(&store, name).unwrap();
    }
    store
}

fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Opens the store as the child left it (and once more from nothing but log and packs), and returns what `main` holds.
fn survey(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let look = || {
        let store = Store::open(path).unwrap();
        let report = store.check(&mut |_| ()).unwrap();
        assert!(report.is_clean(), "{report:?}");
        for seed in [10, 11, 13, 14, 16, 17, 18, 19] {
            let tip = store.resolve(&format!("b{seed}")).unwrap();
            assert_eq!(files_of(&store, &tip).unwrap(), some_files(seed, 6, 2000));
        }
        files_of(&store, &store.resolve("main").unwrap()).unwrap()
    };
    let seen = look();
    wipe_database(path);
    assert_eq!(look(), seen);
    seen
}

/// Runs `role` with the fault at place 1, 2, … until it gets through; `judge` looks at each outcome.
fn at_every_place(role: &str, fault: &str, mut judge: impl FnMut(&Path, &Output, u64)) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let template = prepare(dir.path()).dir().to_owned();
    for place in 1..300 {
        let path = dir.path().join(format!("{role}-{place}"));
        copy_dir(&template, &path);
        let output = run(&path, role, &format!("{fault}:{place}"));
        judge(&path, &output, place);
        if text(&output).contains("done") {
            return place;
        }
        std::fs::remove_dir_all(&path).unwrap();
    }
    panic!("{role} never got through");
}

fn killed_at_every_place(role: &str, new: Option<&BTreeMap<String, Vec<u8>>>) {
    let places = at_every_place(role, "abort", |path, output, place| {
        let done = text(output).contains("done");
        assert!(done || output.status.signal().is_some(), "place {place}: {}", text(output));
        let seen = survey(path);
        let old = first();
        match new {
            Some(new) => assert!(seen == old && !done || seen == *new, "place {place}: a third state"),
            None => assert!(seen == old, "place {place}: a third state"),
        }
        // And it goes on from there.
        let store = Store::open(path).unwrap();
        commit_files(&store, "main", &some_files(50, 3, 500), "after").unwrap();
        store.gc_with(&GC).unwrap();
        assert!(store.check(&mut |_| ()).unwrap().is_clean());
        let left = std::fs::read_dir(path.join("packs")).unwrap().filter(|entry| {
            entry.as_ref().unwrap().path().extension().is_some_and(|extension| extension == "unfinished")
        });
        assert_eq!(left.count(), 0);
    });
    assert!(places > 5, "{role} passed only {places} places");
}

#[test]
fn killed_while_it_commits_little() {
    killed_at_every_place("small", Some(&small()));
}

#[test]
fn killed_while_it_commits_much() {
    killed_at_every_place("large", Some(&large()));
}

#[test]
fn killed_while_it_cleans_up() {
    killed_at_every_place("gc", None);
}

#[test]
fn killed_while_it_records_a_workspace() {
    killed_at_every_place("workspace", None);
}

#[test]
fn killed_or_out_of_space_while_it_is_made() {
    for fault in ["abort", "enospc"] {
        let dir = tempfile::tempdir().unwrap();
        let mut places = 0;
        for place in 1.. {
            let path = dir.path().join(format!("{place}"));
            let output = run(&path, "create", &format!("{fault}:{place}"));
            if text(&output).contains("done") {
                break;
            }
            places += 1;
            // Either it is a store by now, or one can be made there.
            let store = Store::open(&path).or_else(|error| {
                assert_eq!(error.code, Code::NoStore);
                Store::create(&path, Profile::Full)
            });
            commit_files(&store.unwrap(), "main", &small(), "first").unwrap();
        }
        assert!(places > 4);
    }
}

#[test]
fn a_full_disk_at_every_place_is_said_and_changes_nothing() {
    for (role, new) in [("small", Some(small())), ("large", Some(large())), ("gc", None), ("workspace", None)]
    {
        at_every_place(role, "enospc", |path, output, place| {
            let text = text(output);
            assert!(output.status.success(), "{role} at {place}: {text}");
            assert!(text.contains("done") || text.contains("refused no_space"), "{role} at {place}: {text}");
            let seen = survey(path);
            let expected = match &new {
                Some(new) if text.contains("done") => new.clone(),
                _ => first(),
            };
            assert!(seen == expected, "{role} at {place}: the wrong state");
        });
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::create(&dir.path().join("store"), Profile::Full).unwrap();
    let path = store.dir().to_owned();
    drop(store);
    let mut acknowledged: Vec<(u64, Hash)> = Vec::new();
    for round in 0..12u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--nocapture", "--test-threads=1"])
            .env("ATOLL_TEST_STORE", &path)
            .env("ATOLL_TEST_ROLE", "loop")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let wanted = 1 + (round * 7) % 11;
        let mut take = |line: String| {
            if let Some(rest) = line.strip_prefix("acknowledged ") {
                let (step, id) = rest.split_once(' ').unwrap();
                acknowledged.push((step.parse().unwrap(), Hash::from_hex(id).unwrap()));
                return true;
            }
            false
        };
        let mut count = 0;
        for line in lines.by_ref() {
            count += u64::from(take(line));
            if count == wanted {
                break;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        lines.for_each(|line| {
            take(line);
        });
        if round % 4 == 3 {
            wipe_database(&path);
        }
        let store = Store::open(&path).unwrap();
        for (step, commit) in &acknowledged {
            let files = some_files(*step, if step % 3 == 0 { 40 } else { 2 }, 2500);
            assert_eq!(files_of(&store, commit).unwrap(), files);
        }
        let tip = store.resolve("main").unwrap();
        assert!(store.is_ancestor(&acknowledged.last().unwrap().1, &tip).unwrap());
        assert!(store.check(&mut |_| ()).unwrap().is_clean());
    }
    assert!(acknowledged.len() > 12);
}

/// A real full disk: a small tmpfs. Needs the right to mount.
#[test]
fn a_really_full_disk() {
    let dir = tempfile::tempdir().unwrap();
    let mount = dir.path().join("small");
    std::fs::create_dir(&mount).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "tmpfs"]).arg(&mount).output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: a_really_full_disk needs the right to mount");
        return;
    }
    let result = std::panic::catch_unwind(|| fill_and_free(&mount));
    let unmounted = Command::new("umount").arg(&mount).status().unwrap();
    assert!(unmounted.success());
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn fill_and_free(mount: &Path) {
    let store = new_store(mount);
    let kept = some_files(1, 20, 3000);
    let tip = commit_files(&store, "main", &kept, "kept").unwrap().commits[0];
    let mut made = Vec::new();
    // First with large commits, then with small ones, until not even those fit.
    for (count, len) in [(200, 3000), (10, 3000), (1, 200)] {
        for seed in 0.. {
            let name = format!("fill-{count}-{seed}");
            match commit_files(&store, &name, &some_files(seed * 1000 + count as u64, count, len), "fill") {
                Ok(_) => made.push(name),
                Err(error) => {
                    assert_eq!(error.code, Code::NoSpace, "{error}");
                    break;
                }
            }
        }
    }
    assert!(made.len() > 5);
    assert_eq!(files_of(&store, &tip).unwrap(), kept);
    let path = store.dir().to_owned();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(files_of(&store, &tip).unwrap(), kept);
    assert!(store.check(&mut |_| ()).unwrap().is_clean());
    // Without its reserve, on a disk without a free byte, it opens or says why not, and opens when there is room.
    let path = store.dir().to_owned();
    drop(store);
    let reserve = path.join("reserve");
    let other = mount.join("other");
    let _ = std::fs::remove_file(&reserve);
    let filled = std::fs::write(&other, vec![1; 8 << 20]);
    assert!(filled.is_err());
    match Store::open(&path) {
        Ok(store) => assert_eq!(files_of(&store, &tip).unwrap(), kept),
        Err(error) => assert_eq!(error.code, Code::NoSpace, "{error}"),
    }
    std::fs::remove_file(&other).unwrap();
    std::fs::write(&reserve, vec![0; 512 << 10]).unwrap();
    let store = Store::open(&path).unwrap();
    // Letting go needs a little room itself, which the store kept back.
    delete(&store, made.iter().find(|name| name.starts_with("fill-200")).unwrap()).unwrap();
    let report = store.gc(Duration::ZERO, false).unwrap();
    assert!(report.bytes_freed > 500_000, "{report:?}");
    commit_files(&store, "again", &some_files(9, 20, 3000), "again").unwrap();
    assert_eq!(files_of(&store, &tip).unwrap(), kept);
    assert!(store.check(&mut |_| ()).unwrap().is_clean());
}
