//! Many processes use one store. Each child is this test program again, told by the environment what to do.

mod store_support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use atoll_store::{Code, Store};
use rustix::process::{Pid, Signal, kill_process};
use store_support::*;

const COMMITS: u64 = 12;

fn spawn(store: &Path, role: &str, number: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env("ATOLL_TEST_STORE", store)
        .env("ATOLL_TEST_ROLE", role)
        .env("ATOLL_TEST_NUMBER", number.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn files_for(number: u64, step: u64) -> BTreeMap<String, Vec<u8>> {
    // Some large (a pack file), some small (in the log), a part shared by all.
    let mut files = some_files(number * 100 + step, if step.is_multiple_of(4) { 60 } else { 3 }, 1800);
    files.extend(some_files(1, 5, 900).into_iter().map(|(name, bytes)| (format!("shared-{name}"), bytes)));
    files
}

/// The children's way in; as a test of its own it has nothing to do.
#[test]
fn child() {
    let Ok(dir) = std::env::var("ATOLL_TEST_STORE") else { return };
    let number: u64 = std::env::var("ATOLL_TEST_NUMBER").unwrap().parse().unwrap();
    let store = Store::open(Path::new(&dir)).unwrap();
    match std::env::var("ATOLL_TEST_ROLE").unwrap().as_str() {
        "commit" => {
            for step in 0..COMMITS {
                commit_files(&store, &format!("branch-{number}"), &files_for(number, step), "step").unwrap();
            }
        }
        "read" => {
            for _ in 0..15 {
                for (name, state) in store.refs().unwrap() {
                    let number: u64 = name.short().strip_prefix("branch-").unwrap().parse().unwrap();
                    let steps = store.ancestors(&state.commit).count() as u64;
                    assert_eq!(files_of(&store, &state.commit).unwrap(), files_for(number, steps - 1));
                }
                store.operations(50).unwrap();
            }
        }
        "gc" => {
            for _ in 0..6 {
                match store.gc(Duration::ZERO, false) {
                    Ok(_) => {}
                    Err(error) if error.code == Code::Busy => {}
                    Err(error) => panic!("{error}"),
                }
            }
        }
        "race" => {
            let mut won = 0;
            for step in 0..30 {
                match commit_files(&store, "main", &files_for(number, step % 3 + 1), "race") {
                    Ok(_) => won += 1,
                    Err(error) => assert!([Code::Moved, Code::Exists].contains(&error.code), "{error}"),
                }
            }
            println!("\nwon {won}");
        }
        "sleep" => {
            let writer = store.writer().unwrap();
            let root = tree_of(&writer, &files_for(7, 0)).unwrap();
            println!("ready");
            std::io::stdout().flush().unwrap();
            let mut line = String::new();
            std::io::stdin().read_line(&mut line).unwrap();
            match commit_tree(&store, writer, "late", root, "late") {
                Ok(published) => println!("\ncommitted {}", published.commits[0]),
                Err(error) => println!("\nrefused {}", error.code.name()),
            }
        }
        role => panic!("no role {role}"),
    }
}

fn finish(children: Vec<Child>) -> Vec<String> {
    children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success(), "{text}");
            text
        })
        .collect()
}

#[test]
fn sixteen_commit_to_sixteen_branches_while_others_read_and_clean_up() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let mut children: Vec<Child> = (0..16).map(|number| spawn(store.dir(), "commit", number)).collect();
    children.extend((0..2).map(|number| spawn(store.dir(), "read", number)));
    children.extend((0..2).map(|number| spawn(store.dir(), "gc", number)));
    finish(children);
    for number in 0..16 {
        let tip = store.resolve(&format!("branch-{number}")).unwrap();
        assert_eq!(store.ancestors(&tip).count() as u64, COMMITS);
        for (back, commit) in store.ancestors(&tip).enumerate() {
            let files = files_for(number, COMMITS - 1 - back as u64);
            assert_eq!(files_of(&store, &commit.unwrap().id).unwrap(), files);
        }
    }
    let report = store.check(&mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
    let seqs: Vec<u64> =
        store.operations(usize::MAX).unwrap().iter().map(|operation| operation.seq).collect();
    assert_eq!(seqs, (1..=16 * COMMITS).rev().collect::<Vec<_>>());
    let path = store.dir().to_owned();
    let refs = store.refs().unwrap();
    drop(store);
    wipe_database(&path);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.refs().unwrap(), refs);
    let report = store.check(&mut |_| ()).unwrap();
    assert!(report.is_clean(), "{report:?}");
}

#[test]
fn a_race_for_one_branch_loses_no_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = new_store(dir.path());
    let texts = finish((0..4).map(|number| spawn(store.dir(), "race", number)).collect());
    let won: usize = texts
        .iter()
        .map(|text| {
            text.lines().find_map(|line| line.strip_prefix("won ")).unwrap().parse::<usize>().unwrap()
        })
        .sum();
    assert!(won >= 30);
    assert_eq!(store.ancestors(&store.resolve("main").unwrap()).count(), won);
}

/// CASES 24: a writer is stopped after it found chunks, gc runs, the writer goes on.
#[test]
fn a_stopped_writer_commits_whole_or_is_refused() {
    for dropped in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = new_store(dir.path());
        commit_files(&store, "old", &files_for(7, 0), "what the writer will find").unwrap();
        let mut child = spawn(store.dir(), "sleep", 0);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = lines.by_ref().map(Result::unwrap).find(|line| line.contains("ready"));
        assert!(line.is_some());
        let pid = Pid::from_child(&child);
        kill_process(pid, Signal::STOP).unwrap();
        if dropped {
            delete(&store, "old").unwrap();
        }
        let report = store.gc(Duration::ZERO, false).unwrap();
        assert_eq!(report.commits_removed, u64::from(dropped));
        kill_process(pid, Signal::CONT).unwrap();
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        let outcome = rest
            .into_iter()
            .find(|line| line.starts_with("committed") || line.starts_with("refused"))
            .unwrap();
        assert!(child.wait().unwrap().success());
        if dropped {
            assert_eq!(outcome, "refused changed");
        } else {
            let tip = store.resolve("late").unwrap();
            assert_eq!(outcome, format!("committed {tip}"));
            assert_eq!(files_of(&store, &tip).unwrap(), files_for(7, 0));
        }
        assert!(store.check(&mut |_| ()).unwrap().is_clean());
    }
}
