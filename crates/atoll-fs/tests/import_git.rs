//! Git in an imported folder: never while it writes, and never a way back to the original repository.

mod import_common;

use std::fs;
use std::path::Path;
use std::process::Command;

use atoll_fs::Silent;
use atoll_fs::export::{ExportOptions, export_folder};
use atoll_fs::import::SkipReason;
use atoll_store::Code;
use import_common::*;

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"])
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .expect("git is needed for this test");
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn repository(dir: &Path) {
    fs::create_dir_all(dir).unwrap();
    git(dir, &["init", "-q"]);
    fs::write(dir.join("file"), b"one\n").unwrap();
    git(dir, &["add", "."]);
    git(dir, &["commit", "-q", "-m", "one"]);
}

/// Exports the last import, moves the original away, and returns where the copy is.
fn moved_away(place: &Place) -> std::path::PathBuf {
    let out = place.temp.path().join("out");
    let tree = place.tree(place.head().unwrap());
    export_folder(tree, b"", &out, &ExportOptions::default(), &Silent).unwrap();
    fs::rename(&place.folder, place.temp.path().join("away")).unwrap();
    out
}

#[test]
fn a_running_git_stops_the_import() {
    let place = Place::new();
    repository(&place.folder);
    for lock in [".git/index.lock", ".git/refs/heads/main.lock", ".git/packed-refs.lock"] {
        fs::write(place.path(lock), b"").unwrap();
        let error = place.import_with(|_| {}).unwrap_err();
        assert_eq!(error.code, Code::Busy);
        assert!(error.message.contains(lock), "{error}");
        fs::remove_file(place.path(lock)).unwrap();
    }
    fs::write(place.path(".git/gc.pid"), format!("{} here\n", std::process::id())).unwrap();
    assert_eq!(place.import_with(|_| {}).unwrap_err().code, Code::Busy);
    // A gc that was killed leaves its file behind; nobody has this number.
    fs::write(place.path(".git/gc.pid"), b"99999999 here\n").unwrap();
    fs::write(place.path("yarn.lock"), b"no lock of git's").unwrap();
    let id = place.import().commit;
    assert_eq!(place.compare(id, &place.folder, &all()), [""; 0]);
}

#[test]
fn submodules_and_inner_worktrees_come_along() {
    let place = Place::new();
    repository(&place.folder);
    let other = place.temp.path().join("other");
    repository(&other);
    git(&place.folder, &["submodule", "add", "-q", other.to_str().unwrap(), "sub"]);
    git(&place.folder, &["commit", "-q", "-m", "sub"]);
    git(&place.folder, &["worktree", "add", "-q", ".trees/w1", "-b", "w1"]);
    fs::write(place.path(".git/info/exclude"), b".trees\n").unwrap();
    // Old versions of git, and people, write absolute paths.
    let absolute = fs::canonicalize(place.path(".git/modules/sub")).unwrap();
    fs::write(place.path("sub/.git"), format!("gitdir: {}\n", absolute.display())).unwrap();
    let sub = fs::canonicalize(place.path("sub")).unwrap();
    git(&place.folder, &["config", "-f", ".git/modules/sub/config", "core.worktree", sub.to_str().unwrap()]);
    tick();
    let imported = place.import();
    let rewritten: Vec<_> =
        imported.report.rewritten.iter().map(|path| String::from_utf8_lossy(path)).collect();
    assert_eq!(
        rewritten,
        [".git/modules/sub/config", ".git/worktrees/w1/gitdir", ".trees/w1/.git", "sub/.git"]
    );
    let again = place.import();
    assert!(again.published.is_none(), "rewriting gives the same tree again");
    let out = moved_away(&place);
    for dir in ["", "sub", ".trees/w1"] {
        assert_eq!(git(&out.join(dir), &["status", "--porcelain"]), "", "{dir}");
        fs::write(out.join(dir).join("file"), b"two\n").unwrap();
        git(&out.join(dir), &["commit", "-q", "-a", "-m", "two"]);
    }
    git(&out, &["fsck", "--full"]);
    let at = git(&out.join(".trees/w1"), &["rev-parse", "--show-toplevel"]);
    assert!(at.trim().ends_with("out/.trees/w1"), "{at}");
}

#[test]
fn worktrees_elsewhere_stay_there() {
    let place = Place::new();
    repository(&place.folder);
    let outside = place.temp.path().join("outside");
    git(&place.folder, &["worktree", "add", "-q", outside.to_str().unwrap(), "-b", "w"]);
    let imported = place.import();
    assert_eq!(imported.report.skipped, [(b".git/worktrees/outside".to_vec(), SkipReason::Worktree)]);
    let before = fs::read(outside.join(".git")).unwrap();
    let out = moved_away(&place);
    git(&out, &["worktree", "repair"]);
    git(&out, &["worktree", "prune"]);
    git(&out, &["switch", "-q", "w"]);
    assert_eq!(fs::read(outside.join(".git")).unwrap(), before);
}

/// Runs what the refusal says.
fn mend(place: &Place, after: &str) {
    let error = place.import_with(|_| {}).unwrap_err();
    assert_eq!(error.code, Code::Unsupported, "{error}");
    let (_, commands) = error.message.split_once(after).unwrap_or_else(|| panic!("{error}"));
    let status = Command::new("sh").args(["-ec", commands]).stdout(std::process::Stdio::null()).status();
    assert!(status.unwrap().success(), "{commands}");
}

#[test]
fn what_is_refused_is_mended_by_the_commands_that_are_named() {
    let place = Place::new();
    let main = place.temp.path().join("it's main");
    repository(&main);
    git(&main, &["worktree", "add", "-q", place.path("a w").to_str().unwrap(), "-b", "w"]);
    fs::write(place.path("a w/staged"), b"staged\n").unwrap();
    git(&place.path("a w"), &["add", "staged"]);
    fs::write(place.path("a w/file"), b"changed\n").unwrap();
    mend(&place, "repository of its own: ");
    git(&place.folder, &["clone", "-q", "--shared", main.to_str().unwrap(), "shared"]);
    mend(&place, "make the repository independent: ");
    git(&place.path("shared"), &["config", "core.worktree", main.to_str().unwrap()]);
    mend(&place, "first run: ");
    // A submodule without the repository that it belongs to.
    let above = place.temp.path().join("above");
    repository(&above);
    git(&above, &["submodule", "add", "-q", main.to_str().unwrap(), "sub"]);
    let admin = fs::canonicalize(above.join(".git/modules/sub")).unwrap();
    fs::rename(above.join("sub"), place.path("sub")).unwrap();
    fs::write(place.path("sub/.git"), format!("gitdir: {}\n", admin.display())).unwrap();
    mend(&place, "repository of its own: ");
    let before = git(&main, &["log", "--all", "--format=%H %s"]);
    place.import();
    let out = moved_away(&place);
    assert_eq!(git(&out.join("a w"), &["status", "--porcelain"]), " M file\nA  staged\n");
    assert_eq!(git(&out.join("a w"), &["branch", "--show-current"]), "w\n");
    for dir in ["a w", "shared", "sub"] {
        fs::write(out.join(dir).join("file"), b"two\n").unwrap();
        git(&out.join(dir), &["commit", "-q", "-a", "-m", "two"]);
        git(&out.join(dir), &["fsck", "--full"]);
    }
    assert_eq!(git(&main, &["log", "--all", "--format=%H %s"]), before);
    // Or without git.
    let place = Place::new();
    git(&main, &["worktree", "add", "-q", place.path("w2").to_str().unwrap(), "-b", "w2"]);
    let imported = place.import_with(|options| options.excludes = vec![".git".into()]).unwrap();
    assert!(place.has(imported.commit, "w2/file") && !place.has(imported.commit, "w2/.git"));
}

#[test]
fn a_way_out_is_refused() {
    let place = Place::new();
    let main = place.temp.path().join("main");
    repository(&main);
    let refused = |place: &Place, word: &str| {
        let error = place.import_with(|_| {}).unwrap_err();
        assert_eq!(error.code, Code::Unsupported, "{error}");
        assert!(error.message.contains(word), "{error}");
        assert_eq!(place.head(), None);
    };
    git(&main, &["worktree", "add", "-q", place.path("w").to_str().unwrap(), "-b", "w"]);
    refused(&place, "w/.git");
    fs::remove_dir_all(place.path("w")).unwrap();
    git(&place.folder, &["clone", "-q", "--shared", main.to_str().unwrap(), "shared"]);
    refused(&place, "alternates");
    git(&place.path("shared"), &["repack", "-q", "-a", "-d"]);
    fs::remove_file(place.path("shared/.git/objects/info/alternates")).unwrap();
    git(&place.path("shared"), &["config", "core.worktree", main.to_str().unwrap()]);
    refused(&place, "core.worktree");
    fs::remove_dir_all(place.path("shared")).unwrap();
    fs::create_dir(place.path("linked")).unwrap();
    std::os::unix::fs::symlink(main.join(".git"), place.path("linked/.git")).unwrap();
    refused(&place, "linked/.git");
    fs::remove_file(place.path("linked/.git")).unwrap();
    repository(&place.path("linked"));
    fs::remove_dir_all(place.path("linked/.git/refs")).unwrap();
    std::os::unix::fs::symlink(main.join(".git/refs"), place.path("linked/.git/refs")).unwrap();
    refused(&place, "refs");
    fs::remove_file(place.path("linked/.git/refs")).unwrap();
    fs::create_dir(place.path("linked/.git/refs")).unwrap();
    place.import();
}

#[test]
fn alternates_inside_are_made_relative() {
    let place = Place::new();
    repository(&place.path("one"));
    git(&place.folder, &["clone", "-q", "--shared", place.path("one").to_str().unwrap(), "two"]);
    let imported = place.import();
    assert_eq!(imported.report.rewritten, [b"two/.git/objects/info/alternates"]);
    let out = moved_away(&place);
    git(&out.join("two"), &["fsck", "--full"]);
    assert_eq!(git(&out.join("two"), &["log", "--format=%s"]), "one\n");
}
