//! Changes are brought into real folders: the folder must become the result, keep what is the user's own, and come
//! through a kill at every step.

mod files_support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use atoll_fs::Silent;
use atoll_fs::apply::{ApplyOptions, ApplyReport, LeftOut, Plan, apply, plan, resume};
use atoll_store::tree::ChangeKind;
use atoll_store::{Code, Error, MemObjects, Result};
use files_support::ops::{self, op};
use files_support::{Files, Kind, cases};
use proptest::prelude::*;

/// Two states, and the folder that starts with the first.
struct Case {
    scratch: tempfile::TempDir,
    objects: MemObjects,
    old: Files,
    new: Files,
}

impl Case {
    fn new(old: &Files, new: &Files) -> Case {
        let scratch = tempfile::tempdir().unwrap();
        fs::create_dir(scratch.path().join("work")).unwrap();
        old.write(&scratch.path().join("work"));
        Case { scratch, objects: MemObjects::new(), old: old.clone(), new: new.clone() }
    }

    fn dir(&self) -> PathBuf {
        self.scratch.path().join("work")
    }

    fn options(&self) -> ApplyOptions {
        ApplyOptions {
            target: self.dir(),
            journal: self.scratch.path().join("journal"),
            ..ApplyOptions::default()
        }
    }

    fn run(&self, options: &ApplyOptions) -> Result<(Plan, ApplyReport)> {
        let roots = (self.old.tree(&self.objects), self.new.tree(&self.objects));
        apply(&self.objects, Some(roots.0), roots.1, options, &mut |_| Ok(()), &Silent)
    }

    fn plan(&self, options: &ApplyOptions) -> Plan {
        let roots = (self.old.tree(&self.objects), self.new.tree(&self.objects));
        plan(&self.objects, Some(roots.0), roots.1, options, &Silent).unwrap()
    }

    fn all(&self) -> ApplyOptions {
        ApplyOptions { all: true, ..self.options() }
    }

    fn found(&self) -> Files {
        Files::read(&self.dir(), &[])
    }

    /// Nothing is left beside the folder.
    fn is_tidy(&self) -> bool {
        let names: Vec<_> =
            fs::read_dir(self.scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names == ["work"]
    }
}

fn conflicts(result: Result<(Plan, ApplyReport)>) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.code, Code::Conflict, "{error}");
    error
}

fn two_states() -> impl Strategy<Value = (Files, Files)> {
    let ops = |len| proptest::collection::vec(op(), len);
    (ops(0..40), ops(1..20)).prop_map(|(before, after)| {
        let mut files = Files::default();
        before.iter().for_each(|op| ops::apply(&mut files, op));
        let old = files.clone();
        after.iter().for_each(|op| ops::apply(&mut files, op));
        (old, files)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(120), max_shrink_iters: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_folder_becomes_the_result((old, new) in two_states()) {
        let case = Case::new(&old, &new);
        let (plan, report) = case.run(&case.all()).unwrap();
        prop_assert_eq!(case.found().seen(), new.seen());
        prop_assert_eq!(report, ApplyReport::default());
        prop_assert_eq!(plan.conflicts, vec![]);
        prop_assert!(case.is_tidy());
        // Again: all is there already.
        let (again, _) = case.run(&case.all()).unwrap();
        prop_assert!(again.is_empty(), "{:?}", again);
        prop_assert_eq!(case.found().seen(), new.seen());
    }

    #[test]
    fn own_changes_stop_it_or_stay(
        (old, new) in two_states(),
        own in proptest::collection::vec(op(), 1..6),
    ) {
        let case = Case::new(&old, &new);
        fs::remove_dir_all(case.dir()).unwrap();
        fs::create_dir(case.dir()).unwrap();
        let mut mine = old.clone();
        own.iter().for_each(|op| ops::apply(&mut mine, op));
        mine.write(&case.dir());
        let before = case.found();
        match case.run(&case.all()) {
            Err(error) => {
                prop_assert_eq!(error.code, Code::Conflict, "{}", error);
                prop_assert_eq!(case.found(), before, "a refused apply changes nothing");
                prop_assert!(case.is_tidy());
            }
            Ok((plan, report)) => {
                prop_assert_eq!(plan.conflicts, vec![]);
                prop_assert_eq!(&report.kept_aside, &None);
                // Every content that only the user has is still there, somewhere.
                let found = case.found();
                for (path, entry) in &mine.entries {
                    let own = !old.entries.values().any(|old| old.kind == entry.kind);
                    let kept = found.entries.values().any(|found| found.kind == entry.kind);
                    prop_assert!(!own || kept, "{:?} is lost", path.escape_ascii().to_string());
                }
            }
        }
        // With force, every changed file is as the result has it.
        if let Ok((plan, _)) = case.run(&ApplyOptions { force: true, ..case.all() }) {
            let found = case.found();
            for change in plan.changes.iter().filter(|change| change.new.is_some()) {
                let (is, wanted) = (&found.entries[&change.path], &new.entries[&change.path]);
                // A changed mode does not need the user's contents.
                if change.kind == ChangeKind::Metadata && is.kind != wanted.kind {
                    let own = mine.entries.get(change.old_path.as_ref().unwrap_or(&change.path));
                    prop_assert_eq!(Some(&is.kind), own.map(|entry| &entry.kind));
                } else {
                    prop_assert_eq!(&is.kind, &wanted.kind, "{:?}", change.path);
                }
                prop_assert!(is.mode == wanted.mode || wanted.kind == Kind::Dir, "{:?}", change.path);
            }
        }
    }
}

fn start() -> Files {
    let mut old = Files::default();
    old.dir("src").file("src/a.c", b"int a;\n").file("src/b.c", b"int b;\n").file("README", b"read me\n");
    old.symlink("link", "README").dir("docs").file("docs/x", b"x\n").file("docs/y", b"y\n");
    old
}

#[test]
fn all_kinds_of_changes() {
    let old = start();
    let mut new = old.clone();
    new.set("src/a.c", &[b'z'; 20_000]).chmod("README", 0o755).remove(b"docs/x").rename(b"docs", b"manual");
    new.remove(b"link")
        .symlink("link", "src")
        .add(b"pipe", Kind::Fifo, 0o600)
        .dir("empty")
        .link("README", "src/also");
    new.dir("locked").file("locked/in", b"1").chmod("locked", 0o555).add(
        b"odd",
        Kind::File(b"s".to_vec()),
        0o4755,
    );
    new.entries.get_mut(&b"src/b.c"[..]).unwrap().xattrs.insert(b"user.note".to_vec(), b"seen".to_vec());
    let case = Case::new(&old, &new);
    let before = fs::metadata(case.dir().join("src/b.c")).unwrap().ino();
    let (plan, report) = case.run(&case.all()).unwrap();
    assert_eq!(case.found().seen(), new.seen());
    assert_eq!(report, ApplyReport::default());
    assert_eq!(plan.changes.len(), 12);
    assert_eq!(fs::metadata(case.dir().join("src/b.c")).unwrap().ino(), before, "only attributes changed");
    assert_eq!(fs::metadata(case.dir().join("README")).unwrap().nlink(), 2);
    assert!(case.is_tidy());
}

/// Where folders stand before and after, other folders do: their names do not tell whether they have moved.
#[test]
fn a_folder_moves_over_another_and_a_new_one_takes_its_place() {
    let mut old = Files::default();
    old.dir("b").file("b/a", b"").file("b/b", b"").dir("d").dir("d/e").symlink("d/e/link", "x");
    let mut new = old.clone();
    new.remove(b"d").rename(b"b", b"d").remove(b"d/b").dir("b");
    becomes(&old, &new);
    // What is moved out of a folder that moves itself, and has the same contents before and after.
    let mut old = Files::default();
    old.dir("a").file("a/f", b"1").file("c", b"1");
    let mut new = old.clone();
    new.remove(b"c").rename(b"a/f", b"c").rename(b"a", b"b").dir("a").file("a/f", b"1");
    becomes(&old, &new);
    // What is deleted in a folder that moves, while the one in its place has the same.
    let mut old = Files::default();
    old.dir("a").file("a/f", b"1").dir("c").file("c/g", b"2");
    let mut new = old.clone();
    new.remove(b"a/f").remove(b"c").rename(b"a", b"c").dir("a").file("a/f", b"1");
    becomes(&old, &new);
    // One of two that swap has other contents deep inside only.
    let mut old = Files::default();
    old.dir("a").dir("a/x").file("a/x/f", b"1").dir("b").dir("b/x").file("b/x/f", b"2");
    let mut new = old.clone();
    new.rename(b"a", b"t").rename(b"b", b"a").rename(b"t", b"b");
    becomes(&old, &new);
}

/// A file is deleted, and its equal is moved to its path.
#[test]
fn a_file_is_replaced_by_its_equal() {
    let mut old = Files::default();
    old.file("a", b"1").file("b", b"").file("c", b"");
    let mut new = old.clone();
    new.remove(b"a").rename(b"b", b"a").set("a", b"22").rename(b"c", b"b");
    becomes(&old, &new);
}

/// The user has moved a file as the result has it, over one that was to move away.
#[test]
fn force_keeps_what_is_right_already() {
    let mut old = Files::default();
    old.symlink("d", "x").file("f", b"");
    let mut new = old.clone();
    new.rename(b"d", b"e").rename(b"f", b"d");
    let case = Case::new(&old, &new);
    fs::rename(case.dir().join("f"), case.dir().join("d")).unwrap();
    conflicts(case.run(&case.all()));
    case.run(&ApplyOptions { force: true, ..case.all() }).unwrap();
    assert_eq!(case.found().seen(), new.seen());
}

/// Half of a swap: nothing tells which of the two states was meant.
#[test]
fn a_folder_that_looks_moved_in_part_stops_it() {
    let mut old = Files::default();
    old.dir("a").file("a/1", b"1").file("a/2", b"2").dir("b").file("b/3", b"3");
    let mut new = old.clone();
    new.rename(b"a", b"t").rename(b"b", b"a").rename(b"t", b"b");
    let case = Case::new(&old, &new);
    fs::rename(case.dir().join("a/1"), case.dir().join("b/1")).unwrap();
    let before = case.found();
    conflicts(case.run(&case.all()));
    assert_eq!(case.found(), before);
    case.run(&ApplyOptions { force: true, ..case.all() }).unwrap();
    assert_eq!(case.found().seen(), new.seen());
}

fn becomes(old: &Files, new: &Files) {
    let case = Case::new(old, new);
    case.run(&case.all()).unwrap();
    assert_eq!(case.found().seen(), new.seen());
    let (again, _) = case.run(&case.all()).unwrap();
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn a_dry_run_changes_nothing() {
    let (old, mut new) = (start(), start());
    new.remove(b"src").file("n", b"n");
    let case = Case::new(&old, &new);
    let before = case.found();
    let plan = case.plan(&case.all());
    assert_eq!(plan.changes.len(), 4);
    assert_eq!(plan.overwrites, [&b"src/a.c"[..], b"src/b.c"]);
    assert_eq!(case.found(), before);
    assert!(case.is_tidy());
}

#[test]
fn changed_paths_are_all_named_and_force_overwrites_them() {
    let (old, mut new) = (start(), start());
    new.set("README", b"new\n")
        .remove(b"src/a.c")
        .file("extra", b"theirs")
        .rename(b"docs/x", b"docs/z")
        .chmod("src/b.c", 0o755);
    let case = Case::new(&old, &new);
    fs::write(case.dir().join("README"), "mine\n").unwrap();
    fs::write(case.dir().join("src/a.c"), "mine\n").unwrap();
    fs::write(case.dir().join("extra"), "mine\n").unwrap();
    fs::remove_file(case.dir().join("docs/x")).unwrap();
    fs::set_permissions(case.dir().join("src/b.c"), fs::Permissions::from_mode(0o600)).unwrap();
    let before = case.found();
    let error = conflicts(case.run(&case.all()));
    for name in [
        "README (changed since)",
        "src/a.c (changed since)",
        "extra (exists)",
        "docs/x (is gone)",
        "src/b.c (changed",
    ] {
        assert!(error.message.contains(name), "{name}: {error}");
    }
    assert_eq!(case.found(), before);
    let mut called = 0;
    let roots = (old.tree(&case.objects), new.tree(&case.objects));
    let force = ApplyOptions { force: true, ..case.all() };
    let mut count = |plan: &Plan| {
        called += plan.conflicts.len();
        Ok(())
    };
    apply(&case.objects, Some(roots.0), roots.1, &force, &mut count, &Silent).unwrap();
    assert_eq!(called, 5);
    assert_eq!(case.found().seen(), new.seen());
}

#[test]
fn a_caller_that_cannot_save_stops_it() {
    let (old, mut new) = (start(), start());
    new.set("README", b"new\n");
    let case = Case::new(&old, &new);
    let roots = (old.tree(&case.objects), new.tree(&case.objects));
    let mut refuse = |_: &Plan| Err(Error::new(Code::NoSpace, "Full."));
    let error = apply(&case.objects, Some(roots.0), roots.1, &case.all(), &mut refuse, &Silent).unwrap_err();
    assert_eq!(error.code, Code::NoSpace);
    assert_eq!(case.found().seen(), old.seen());
    assert!(case.is_tidy());
}

#[test]
fn own_files_stay_where_folders_go_or_move() {
    let (old, mut new) = (start(), start());
    new.remove(b"docs").rename(b"src", b"lib");
    let case = Case::new(&old, &new);
    fs::write(case.dir().join("docs/mine"), "m").unwrap();
    fs::write(case.dir().join("src/mine"), "m").unwrap();
    let (_, report) = case.run(&case.all()).unwrap();
    assert_eq!(report.kept_folders, [b"docs"]);
    let found = case.found().seen();
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["README", "docs", "docs/mine", "lib", "lib/a.c", "lib/b.c", "lib/mine", "link"]);
}

#[test]
fn no_link_leads_out_of_the_folder() {
    let (old, mut new) = (start(), start());
    new.set("src/a.c", b"changed\n").file("src/new", b"new\n").remove(b"docs/x");
    let case = Case::new(&old, &new);
    let outside = tempfile::tempdir().unwrap();
    start().write(outside.path());
    for name in ["src", "docs"] {
        fs::rename(case.dir().join(name), case.scratch.path().join(name)).unwrap();
        symlink(outside.path().join(name), case.dir().join(name)).unwrap();
    }
    let error = conflicts(case.run(&case.all()));
    assert!(error.message.contains("symbolic link"), "{error}");
    conflicts(case.run(&ApplyOptions { force: true, ..case.all() }));
    assert_eq!(Files::read(outside.path(), &[]).seen(), old.seen());
}

#[test]
fn git_and_what_it_ignores_are_left_out() {
    let mut old = start();
    old.dir(".git").file(".git/config", b"[core]\n").file(".gitignore", b"/build/\n*.log\n!keep.log\n");
    old.dir("build").file("build/old", b"o").file("tracked.log", b"t\n");
    let mut new = old.clone();
    new.file(".git/hooks", b"evil")
        .file("a.log", b"l")
        .file("keep.log", b"k")
        .set("build/old", b"n")
        .file("build/n", b"n");
    new.set("README", b"new\n")
        .dir("sub")
        .file("sub/.gitignore", b"local\n")
        .file("sub/local", b"1")
        .set("tracked.log", b"u\n");
    new.dir("sub/.git").file("sub/.git/HEAD", b"ref");
    let case = Case::new(&old, &new);
    let git = |args: &[&str]| {
        let done = Command::new("git")
            .args(args)
            .current_dir(case.dir())
            .env("HOME", case.scratch.path())
            .output()
            .unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    fs::remove_dir_all(case.dir().join(".git")).unwrap();
    git(&["init", "-q"]);
    git(&["add", "-f", "tracked.log"]);
    git(&["add", "."]);
    let (plan, _) = case.run(&case.options()).unwrap();
    let left: Vec<_> =
        plan.left_out.iter().map(|(path, why)| (std::str::from_utf8(path).unwrap(), *why)).collect();
    let expected = [
        (".git/hooks", LeftOut::Git),
        ("a.log", LeftOut::Ignored),
        ("build/n", LeftOut::Ignored),
        ("build/old", LeftOut::Ignored),
        ("sub/.git", LeftOut::Git),
        ("sub/.git/HEAD", LeftOut::Git),
        ("sub/local", LeftOut::Ignored),
    ];
    assert_eq!(left, expected);
    let applied: Vec<_> =
        plan.changes.iter().map(|change| std::str::from_utf8(&change.path).unwrap()).collect();
    assert_eq!(applied, ["README", "keep.log", "sub", "sub/.gitignore", "tracked.log"]);
    assert!(!case.dir().join("a.log").exists() && case.dir().join("keep.log").exists());
    // `--all` brings the rest; `.git` is git's own by now, so only what does not meet it.
    let rest = ApplyOptions { all: true, paths: vec![b"build".to_vec(), b"sub".to_vec()], ..case.options() };
    let (plan, _) = case.run(&rest).unwrap();
    assert_eq!(fs::read(case.dir().join("build/old")).unwrap(), b"n");
    assert!(plan.left_out.iter().all(|(_, why)| *why == LeftOut::Outside));
}

#[test]
fn only_the_paths_that_were_asked_for() {
    let (old, mut new) = (start(), start());
    new.set("src/a.c", b"1")
        .set("README", b"2")
        .dir("new")
        .dir("new/deep")
        .file("new/deep/f", b"3")
        .file("new/g", b"4");
    new.rename(b"docs", b"manual").set("manual/x", b"5");
    let case = Case::new(&old, &new);
    let some = |paths: &[&[u8]]| ApplyOptions {
        paths: paths.iter().map(|path| path.to_vec()).collect(),
        ..case.all()
    };
    case.run(&some(&[b"src", b"new/deep/f"])).unwrap();
    let found = case.found().seen();
    assert_eq!(found["src/a.c"].0, Kind::File(b"1".to_vec()));
    assert_eq!(found["README"].0, Kind::File(b"read me\n".to_vec()));
    assert_eq!(found["new/deep/f"].0, Kind::File(b"3".to_vec()));
    assert!(!found.contains_key("new/g") && !found.contains_key("manual"));
    case.run(&case.all()).unwrap();
    assert_eq!(case.found().seen(), new.seen());
}

#[test]
fn a_change_while_it_is_prepared_stops_it() {
    let (old, mut new) = (start(), start());
    new.set("README", b"new\n").file("later", b"1");
    let case = Case::new(&old, &new);
    let roots = (old.tree(&case.objects), new.tree(&case.objects));
    let dir = case.dir();
    let mut edit = |_: &Plan| {
        fs::write(dir.join("README"), "typed just now\n").unwrap();
        Ok(())
    };
    let error = apply(&case.objects, Some(roots.0), roots.1, &case.all(), &mut edit, &Silent).unwrap_err();
    assert_eq!(error.code, Code::Changed);
    assert_eq!(fs::read(case.dir().join("README")).unwrap(), b"typed just now\n");
    assert!(!case.dir().join("later").exists() && case.is_tidy());
}

/// The states of the kill test: everything moves at once.
fn upheaval() -> (Files, Files) {
    let mut old = start();
    old.file("swap1", b"1")
        .file("swap2", b"2")
        .dir("d")
        .dir("d/e")
        .file("d/e/f", b"f")
        .file("was-file", b"w");
    let mut new = old.clone();
    new.rename(b"swap1", b"t")
        .rename(b"swap2", b"swap1")
        .rename(b"t", b"swap2")
        .rename(b"d/e", b"e")
        .remove(b"d");
    new.file("d", b"a file now")
        .remove(b"was-file")
        .dir("was-file")
        .file("was-file/in", b"i")
        .rename(b"docs", b"src/docs");
    new.set("README", b"changed")
        .chmod("src/b.c", 0o700)
        .rename(b"src", b"lib")
        .link("README", "lib/readme")
        .remove(b"lib/a.c");
    (old, new)
}

/// Not a test by itself: the process that `killed_at_every_step` kills.
#[test]
#[ignore = "run by another test"]
fn child_apply() {
    let dir = PathBuf::from(std::env::var_os("ATOLL_TEST_APPLY").expect("run by another test"));
    let (old, new) = upheaval();
    let objects = MemObjects::new();
    let roots = (old.tree(&objects), new.tree(&objects));
    let options = ApplyOptions {
        target: dir.join("work"),
        journal: dir.join("journal"),
        all: true,
        ..ApplyOptions::default()
    };
    apply(&objects, Some(roots.0), roots.1, &options, &mut |_| Ok(()), &Silent).unwrap();
}

fn run_child(dir: &Path, fault: u64) -> bool {
    Command::new(std::env::current_exe().unwrap())
        .args(["child_apply", "--exact", "--ignored"])
        .env("ATOLL_TEST_APPLY", dir)
        .env("ATOLL_APPLY_FAULT", fault.to_string())
        .output()
        .unwrap()
        .status
        .success()
}

#[test]
fn killed_at_every_step() {
    if !cfg!(debug_assertions) {
        return;
    }
    let (old, new) = upheaval();
    let mut seen = [0, 0];
    for fault in 1.. {
        let case = Case::new(&old, &new);
        let done = run_child(case.scratch.path(), fault);
        // Killed a second time while it is finished: nothing is lost by that either.
        if !done && fault % 3 == 0 {
            run_resume(case.scratch.path(), fault % 7 + 1);
        }
        resume(&case.scratch.path().join("journal")).unwrap();
        let found = case.found().seen();
        let is_old = found == old.seen();
        assert!(is_old || found == new.seen(), "killed at {fault}: neither old nor new: {:?}", found.keys());
        seen[usize::from(!is_old)] += 1;
        assert!(!case.scratch.path().join("journal").join("steps").exists());
        let left: Vec<_> =
            fs::read_dir(case.scratch.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(
            !left.iter().any(|name| name.to_string_lossy().contains("atoll-apply")),
            "killed at {fault}: {left:?}"
        );
        if done {
            break;
        }
    }
    assert!(seen[0] > 5 && seen[1] > 20, "{seen:?}");
}

/// Not a test by itself: finishes an apply, and is killed at that.
#[test]
#[ignore = "run by another test"]
fn child_resume() {
    let dir = PathBuf::from(std::env::var_os("ATOLL_TEST_APPLY").expect("run by another test"));
    resume(&dir.join("journal")).unwrap();
}

fn run_resume(dir: &Path, fault: u64) {
    Command::new(std::env::current_exe().unwrap())
        .args(["child_resume", "--exact", "--ignored"])
        .env("ATOLL_TEST_APPLY", dir)
        .env("ATOLL_APPLY_FAULT", fault.to_string())
        .output()
        .unwrap();
}
