//! Random operations on a workspace and on a plain folder: the commits show what the workspace shows, and both
//! are what the plain folder is. `ATOLL_MODEL_SEEDS=FROM..TO` runs others than the default seeds.

mod overlay_support;

use std::fs;
use std::io;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

use atoll_fs::Silent;
use atoll_fs::export::{CompareOptions, ExportOptions, compare_folder, export_folder};
use atoll_fs::overlay::reset_upper;
use overlay_support::ops::{Op, Random};
use overlay_support::{Bench, PlainIds, Scratch, bytes, can_mount};
use rustix::fs::XattrFlags;

fn fill(lower: &Path) {
    for dir in ["a/a", "a/b/c", "b/a", "c/d/a", "d"] {
        fs::create_dir_all(lower.join(dir)).unwrap();
    }
    for (at, name) in ["a/c", "a/b/a", "a/b/d", "b/b", "b/c", "c/a", "c/d/b", "a/b/c/a"].iter().enumerate() {
        fs::write(lower.join(name), bytes(at as u64, 400 * at + 50)).unwrap();
    }
    fs::write(lower.join("c/c"), bytes(99, 400_000)).unwrap();
    for (from, to) in [("b/b", "c/b"), ("b/b", "a/d"), ("a/b/a", "a/b/b")] {
        fs::hard_link(lower.join(from), lower.join(to)).unwrap();
    }
    symlink("somewhere", lower.join("d/a")).unwrap();
    rustix::fs::setxattr(lower.join("c/a"), "user.one", b"old", XattrFlags::empty()).unwrap();
    chown(lower.join("b/c"), Some(5), Some(6)).unwrap();
}

/// Names, kinds, bytes, modes, owners, attributes and links are those of the plain folder.
fn check_model(bench: &Bench, model: &Path) {
    let options = CompareOptions { mtime: false, dir_times: false, limit: 20, ..CompareOptions::default() };
    let found = compare_folder(bench.root(bench.head), b"", model, &options, &Silent).unwrap();
    let found: Vec<_> =
        found.iter().map(|m| format!("{}: {}", String::from_utf8_lossy(&m.path), m.what)).collect();
    assert!(found.is_empty(), "the commit and the model differ: {found:#?}");
}

/// Unmounts, captures, empties the upper and starts over with the head as the base.
fn rebase(bench: &mut Bench, number: u64) {
    bench.umount();
    bench.commit();
    let lower = bench.path(&format!("lower{number}"));
    let tree = bench.root(bench.head);
    export_folder(tree, b"", &lower, &ExportOptions::default(), &Silent).unwrap();
    let ids = PlainIds::new(&lower, tree);
    let head = bench.head;
    reset_upper(&bench.path("scratch"), &head, &mut || Ok(())).unwrap();
    fs::remove_dir_all(bench.path("lower")).unwrap();
    fs::rename(&lower, bench.path("lower")).unwrap();
    (bench.ids, bench.base) = (ids, head);
    bench.make_upper();
    bench.mount();
}

fn run(seed: u64, scratch: Scratch, steps: u32) {
    let mut random = Random(seed);
    let mut bench = Bench::new(scratch, fill);
    let model = bench.path("model");
    let copied = Command::new("cp").arg("-a").arg(bench.path("lower")).arg(&model).status().unwrap();
    assert!(copied.success());
    let mut log = Vec::new();
    for step in 0..steps {
        let op = Op::random(&mut random);
        let (one, other) = (op.run(&bench.path("mnt")), op.run(&model));
        let text = format!("{step}: {op:?} -> {one:?}");
        assert_eq!(
            one.as_ref().map_err(io::Error::kind),
            other.as_ref().map_err(io::Error::kind),
            "seed {seed}: {text}, plain folder: {other:?}\n{}",
            log.join("\n")
        );
        if one.is_ok() {
            log.push(text);
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match random.below(40) {
            0 | 1 => {
                bench.commit();
                bench.check();
                check_model(&bench, &model);
                Some("commit")
            }
            2 => {
                bench.umount();
                bench.mount();
                Some("remount")
            }
            3 => {
                let _ = fs::remove_file(bench.path("index"));
                Some("index lost")
            }
            4 if step % 3 == 0 => {
                rebase(&mut bench, u64::from(step));
                bench.check();
                check_model(&bench, &model);
                Some("rebase")
            }
            _ => None,
        }));
        match done {
            Ok(done) => log.extend(done.map(str::to_owned)),
            Err(panic) => {
                eprintln!("seed {seed}, after:\n{}", log.join("\n"));
                std::panic::resume_unwind(panic);
            }
        }
    }
    bench.commit_and_check();
    check_model(&bench, &model);
    bench.check_without_index();
}

fn seeds(default: std::ops::Range<u64>) -> std::ops::Range<u64> {
    match std::env::var("ATOLL_MODEL_SEEDS") {
        Ok(text) => {
            let (from, to) = text.split_once("..").expect("FROM..TO");
            from.parse().unwrap()..to.parse().unwrap()
        }
        Err(_) => default,
    }
}

#[test]
fn random_operations_on_disk() {
    if can_mount() {
        seeds(0..8).for_each(|seed| run(seed, Scratch::Disk, 150));
    }
}

#[test]
fn random_operations_in_memory() {
    if can_mount() {
        seeds(100..108).for_each(|seed| run(seed, Scratch::Memory, 150));
    }
}
