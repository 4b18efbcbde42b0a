//! Real mounts, over each transport. Skipped by name where the process may not mount.

mod common;

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::Ordering;

use atoll_fuse::abi::op;
use atoll_fuse::{Config, Session};
use common::{Mounted, sample};

fn walk(mounted: &Mounted) -> usize {
    let mut seen = 0;
    for dir in fs::read_dir(mounted.path()).unwrap() {
        let dir = dir.unwrap();
        seen += 1;
        if dir.file_type().unwrap().is_dir() {
            for file in fs::read_dir(dir.path()).unwrap() {
                assert!(file.unwrap().metadata().unwrap().len() > 0);
                seen += 1;
            }
        }
    }
    seen
}

fn reads_back(config: Config) {
    let Some(mounted) = Mounted::new(sample(false), config) else { return };
    assert_eq!(walk(&mounted), 40 + 40 * 25 + 2);
    assert_eq!(mounted.count(op::LOOKUP), 0, "READDIRPLUS should have brought every entry");
    assert_eq!(fs::read_to_string(mounted.join("dir7/file3")).unwrap(), "7/3\n".repeat(121));
    assert_eq!(fs::read_link(mounted.join("link")).unwrap().to_str(), Some("dir3/file1"));
    assert_eq!(fs::read_to_string(mounted.join("link")).unwrap(), "3/1\n".repeat(41));
    let big = fs::read(mounted.join("big")).unwrap();
    assert!(big == (0..3_000_000u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>());
    assert_eq!(fs::metadata(mounted.join("dir9")).unwrap().ino(), 2 + 26 * 9);
    assert_eq!(fs::metadata(mounted.join("nowhere")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(fs::write(mounted.join("new"), "x").unwrap_err().raw_os_error(), Some(libc::EROFS));
    assert!(mounted.count(op::OPEN) <= 1, "OPEN answered ENOSYS is not asked again");
    assert!(mounted.count(op::OPENDIR) <= 1, "OPENDIR answered ENOSYS is not asked again");
}

#[test]
fn dev_reads_back() {
    reads_back(Config::default());
}

#[test]
fn dev_without_spin_and_threads_reads_back() {
    reads_back(Config { spin: std::time::Duration::ZERO, threads: 1, ..Config::default() });
}

#[test]
fn second_walk_asks_nothing() {
    let Some(mounted) = Mounted::new(sample(false), Config::default()) else { return };
    walk(&mounted);
    fs::read(mounted.join("dir1/file1")).unwrap();
    let before = mounted.session.counters().by_kind();
    walk(&mounted);
    fs::read(mounted.join("dir1/file1")).unwrap();
    assert_eq!(mounted.session.counters().by_kind(), before);
}

#[test]
fn xattrs_are_asked_only_where_there_are_some() {
    let list = |mounted: &Mounted, file: &str| {
        let mut names = [0u8; 256];
        rustix::fs::listxattr(mounted.join(file), &mut names).map(|len| names[..len].to_vec())
    };
    let Some(with) = Mounted::new(sample(true), Config::default()) else { return };
    assert_eq!(list(&with, "dir1/file1").unwrap(), b"user.id\0");
    let mut value = [0u8; 64];
    let len = rustix::fs::getxattr(with.join("dir1"), "user.id", &mut value).unwrap();
    assert_eq!(&value[..len], b"node 28");
    let Some(without) = Mounted::new(sample(false), Config::default()) else { return };
    for _ in 0..3 {
        assert_eq!(list(&without, "dir1/file1"), Err(rustix::io::Errno::OPNOTSUPP));
    }
    assert_eq!(without.count(op::LISTXATTR), 1);
}

#[test]
fn slow_reads_do_not_hold_up_the_others() {
    let Some(mounted) = Mounted::new(sample(false), Config { threads: 3, ..Config::default() }) else {
        return;
    };
    mounted.session.fs().slow.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for reader in 0..4 {
            let mounted = &mounted;
            scope.spawn(move || {
                for folder in (reader..40).step_by(4) {
                    for file in 0..25 {
                        let path = mounted.join(&format!("dir{folder}/file{file}"));
                        let expected = format!("{folder}/{file}\n").repeat(file * 40 + 1);
                        assert_eq!(fs::read_to_string(path).unwrap(), expected);
                    }
                }
            });
        }
    });
}

/// A reader that takes requests and never answers stands for a server that was killed in the middle.
#[test]
fn a_successor_answers_what_the_dead_server_left() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        atoll_fuse::MountOptions { name: "t".into(), subtype: "atoll".into(), ..Default::default() };
    let Ok(device) = atoll_fuse::mount::mount(dir.path(), &options) else {
        eprintln!("skipped: no right to mount FUSE here");
        return;
    };
    struct Unmount<'a>(&'a std::path::Path);
    impl Drop for Unmount<'_> {
        fn drop(&mut self) {
            let _ = atoll_fuse::mount::unmount(self.0, true);
        }
    }
    let unmount = Unmount(dir.path());
    // The dead server: it took INIT and said nothing.
    let mut buffer = vec![0; 128 * 1024];
    rustix::io::read(&device, &mut buffer[..]).unwrap();
    let cat = Command::new("cat")
        .arg(dir.path().join("dir7/file3"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let successor = Session::new(sample(false), Config { resumed: true, ..Config::default() });
    std::thread::scope(|scope| {
        let server = scope.spawn(|| atoll_fuse::serve(&successor, device.as_fd()));
        let output = cat.wait_with_output().unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "7/3\n".repeat(121));
        drop(unmount);
        server.join().unwrap().unwrap();
    });
}

/// Skipped where root has not turned FUSE over io_uring on.
#[test]
fn uring_reads_back() {
    if let Err(why) = atoll_fuse::uring::available() {
        eprintln!("skipped: {why}");
        return;
    }
    reads_back(Config { uring: true, ..Config::default() });
}
