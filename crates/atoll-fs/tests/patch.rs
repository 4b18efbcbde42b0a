//! Patches are given to the real git, and must lead from the old files to the new.

mod files_support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use atoll_fs::patch::{PatchOptions, stat, write_patch};
use atoll_store::MemObjects;
use atoll_store::tree::changes;
use files_support::ops::{apply, op};
use files_support::{Files, Kind, split};
use proptest::prelude::*;

fn patch(old: &Files, new: &Files) -> (String, Vec<Vec<u8>>) {
    let objects = MemObjects::new();
    let (old, new) = (old.tree(&objects), new.tree(&objects));
    let list = changes(&objects, Some(old), Some(new)).unwrap();
    let mut out = Vec::new();
    let report =
        write_patch(&objects, Some(old), Some(new), &list, PatchOptions::default(), &mut out).unwrap();
    (out.escape_ascii().to_string().replace("\\n", "\n").replace("\\\"", "\""), report.left_out)
}

fn git(dir: &Path, args: &[&str], input: &[u8]) -> Result<Vec<u8>, String> {
    let mut child = Command::new("git")
        .args(["-c", "core.fileMode=true", "-c", "apply.whitespace=nowarn"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", dir)
        .env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
    let done = child.wait_with_output().unwrap();
    if done.status.success() {
        Ok(done.stdout)
    } else {
        Err(String::from_utf8_lossy(&done.stderr).into_owned())
    }
}

/// What git knows of the files: no empty folders, one executable bit.
fn as_git(files: &Files) -> BTreeMap<String, (Kind, bool)> {
    let seen = files.seen().into_iter();
    seen.filter(|(_, (kind, ..))| !matches!(kind, Kind::Dir | Kind::Fifo))
        .map(|(path, (kind, mode, ..))| {
            let executable = matches!(kind, Kind::File(_)) && mode & 0o100 != 0;
            (path, (kind, executable))
        })
        .collect()
}

/// Applies the patch between two states with git, forwards and backwards, in a repository and outside of one.
fn check(old: &Files, new: &Files) -> Result<(), String> {
    let objects = MemObjects::new();
    let roots = (old.tree(&objects), new.tree(&objects));
    let list = changes(&objects, Some(roots.0), Some(roots.1)).unwrap();
    let mut text = Vec::new();
    write_patch(&objects, Some(roots.0), Some(roots.1), &list, PatchOptions::default(), &mut text).unwrap();
    for repository in [false, true] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("work");
        std::fs::create_dir(&dir).unwrap();
        // git cannot put a file where a folder with an empty folder in it was: it does not know that one.
        let mut known = old.clone();
        known.entries.retain(|path, entry| {
            let holds_file = |of: &Vec<u8>, e: &files_support::Entry| {
                e.kind != Kind::Dir && files_support::is_below(of, path)
            };
            entry.kind != Kind::Dir || old.entries.iter().any(|(of, e)| holds_file(of, e))
        });
        known.write(&dir);
        if repository {
            git(&dir, &["init", "-q"], b"")?;
        }
        if !text.is_empty() {
            let shown = || String::from_utf8_lossy(&text).into_owned();
            git(&dir, &["apply", "--binary"], &text).map_err(|error| format!("{error}\n{}", shown()))?;
            let found = as_git(&Files::read(&dir, &[".git"]));
            if found != as_git(new) {
                return Err(format!("{:?}\n{:?}\n{}", found, as_git(new), shown()));
            }
            git(&dir, &["apply", "--binary", "-R"], &text)
                .map_err(|error| format!("back: {error}\n{}", shown()))?;
        }
        let found = as_git(&Files::read(&dir, &[".git"]));
        if found != as_git(old) {
            return Err(format!("{:?}\n{:?}", found, as_git(old)));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: files_support::cases(60), max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn git_takes_any_patch(
        before in proptest::collection::vec(op(), 0..40),
        after in proptest::collection::vec(op(), 1..20),
    ) {
        let mut files = Files::default();
        before.iter().for_each(|op| apply(&mut files, op));
        let old = files.clone();
        after.iter().for_each(|op| apply(&mut files, op));
        if let Err(error) = check(&old, &files) {
            return Err(TestCaseError::fail(error));
        }
    }
}

#[test]
fn a_patch_reads_as_git_writes_it() {
    let mut old = Files::default();
    let lines: Vec<u8> = (1..=20).flat_map(|number| format!("line {number}\n").into_bytes()).collect();
    old.dir("d").file("d/kept.txt", &lines).file("gone", b"x\n").file("mode", b"").file("e.bin", b"\0\x01");
    old.symlink("link", "there");
    let mut new = old.clone();
    let changed = String::from_utf8(lines).unwrap().replace("line 10\n", "line ten\nand more\n");
    new.set("d/kept.txt", changed.as_bytes()).remove(b"gone").chmod("mode", 0o755).set("e.bin", b"\0\x02");
    new.rename(b"d", b"moved").remove(b"link").symlink("link", "here").file("new file", b"no end");
    let (text, left_out) = patch(&old, &new);
    for part in [
        "GIT binary patch\nliteral 2\n",
        "diff --git a/gone b/gone\ndeleted file mode 100644\nindex 587be6b4c3f93f93c489c0111bba5596147a26cb..0000000000000000000000000000000000000000\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n",
        "diff --git a/link b/link\nindex ",
        " 120000\n--- a/link\n+++ b/link\n@@ -1 +1 @@\n-there\n\\\\ No newline at end of file\n+here\n\\\\ No newline at end of file\n",
        "diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\ndiff",
        "diff --git a/d/kept.txt b/moved/kept.txt\nsimilarity index 88%\nrename from d/kept.txt\nrename to moved/kept.txt\nindex ",
        "--- a/d/kept.txt\n+++ b/moved/kept.txt\n@@ -7,7 +7,8 @@ line 6\n line 7\n line 8\n line 9\n-line 10\n+line ten\n+and more\n line 11\n line 12\n line 13\n",
        "diff --git a/new file b/new file\nnew file mode 100644\nindex 0000000000000000000000000000000000000000..",
        "--- /dev/null\n+++ b/new file\\t\n@@ -0,0 +1 @@\n+no end\n\\\\ No newline at end of file\n",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    assert_eq!(left_out, Vec::<Vec<u8>>::new());
    check(&old, &new).unwrap();
}

#[test]
fn what_git_cannot_say_is_reported() {
    let mut old = Files::default();
    old.dir("d").file("a", b"a\n").file("b", b"b\n");
    let mut new = old.clone();
    new.chmod("a", 0o600).chmod("d", 0o700).add(b"pipe", Kind::Fifo, 0o600).dir("empty");
    let (text, left_out) = patch(&old, &new);
    assert_eq!(text, "");
    assert_eq!(left_out, [&b"a"[..], b"d", b"pipe"]);
}

#[test]
fn files_take_each_others_places() {
    let mut old = Files::default();
    old.dir("d").file("d/x", b"one\n").file("e", b"two\n").file("f", b"three\n");
    // Exchange two files, a folder for a file, a file for a folder.
    let mut new = old.clone();
    new.rename(b"e", b"t").rename(b"f", b"e").rename(b"t", b"f");
    check(&old, &new).unwrap();
    let mut new = old.clone();
    new.remove(b"d").file("d", b"a file now\n");
    check(&old, &new).unwrap();
    let mut new = old.clone();
    new.remove(b"e").dir("e").file("e/in", b"deeper\n").rename(b"f", b"e/f");
    check(&old, &new).unwrap();
    let mut new = old.clone();
    new.rename(b"d/x", b"t").remove(b"d").rename(b"t", b"d").symlink("s", "d");
    check(&old, &new).unwrap();
}

#[test]
fn numbers_are_those_of_git() {
    let mut old = Files::default();
    old.file("t", b"a\nb\nc\n").file("bin", b"\0").file("del", b"1\n2\n").dir("d").file("d/f", b"same\n");
    let mut new = old.clone();
    new.set("t", b"a\nB\nc\nd\n")
        .set("bin", b"\0\0\0")
        .remove(b"del")
        .rename(b"d", b"e")
        .symlink("l", "target");
    let objects = MemObjects::new();
    let roots = (old.tree(&objects), new.tree(&objects));
    let list = changes(&objects, Some(roots.0), Some(roots.1)).unwrap();
    let stats = stat(&objects, Some(roots.0), Some(roots.1), &list).unwrap();
    let short: Vec<_> = stats
        .iter()
        .map(|s| {
            (std::str::from_utf8(&s.path).unwrap(), s.added, s.deleted, s.binary, s.old_size, s.new_size)
        })
        .collect();
    let expected = [
        ("bin", 0, 0, true, 1, 3),
        ("del", 0, 2, false, 4, 0),
        ("e/f", 0, 0, false, 5, 5),
        ("l", 1, 0, false, 0, 6),
        ("t", 2, 1, false, 6, 8),
    ];
    assert_eq!(short, expected);
    assert_eq!(stats[2].old_path.as_deref(), Some(&b"d/f"[..]));
    assert_eq!(split(b"d/f").0, b"d");
}
