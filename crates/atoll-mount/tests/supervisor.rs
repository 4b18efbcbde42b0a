//! The mounts outlive their server, and go when nothing uses them. Skipped by name where the process may not
//! mount.

mod common;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use atoll_store::Code;
use common::{Files, World};
use rustix::process::{Pid, Signal, kill_process};

/// 60 folders of 50 files: small ones inline, larger ones in chunks.
fn sample() -> Files {
    let mut files = Files::default();
    for number in 0..3000u32 {
        let text = format!("{number}\n").repeat(1 + (number as usize % 7) * 150);
        files = files.file(&format!("dir{:02}/file{number}", number % 60), text);
    }
    files
}

fn kill(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

fn server_pid(world: &World) -> u32 {
    atoll_mount::servers()
        .unwrap()
        .iter()
        .find(|server| server.history == world.paths.root)
        .map_or(0, |s| s.pid)
}

/// Waits for something that another process does, at most 10 seconds.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what}: not within 10 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_mounted(dir: &Path) -> bool {
    atoll_mount::overlay::find_mount(dir).unwrap().is_some()
}

/// A hash over names and contents, by the real tar.
fn tar_sum(dir: &Path) -> Result<String, String> {
    let script = "set -o pipefail; tar cf - --sort=name . | sha256sum";
    let output = Command::new("bash").arg("-c").arg(script).current_dir(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() || !said.is_empty() {
        return Err(said);
    }
    Ok(String::from_utf8(output.stdout).unwrap())
}

/// Drops what the kernel has of the mount, so that requests come.
fn drop_caches() {
    let _ = fs::write("/proc/sys/vm/drop_caches", "3");
}

#[test]
fn killed_servers_are_replaced_without_an_error() {
    let world = World::new();
    let commit = world.commit("main", &sample());
    let Some(_server) = world.serve() else { return };
    let dir = world.folder(&commit);
    let expected = tar_sum(&dir).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    let kills = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|reader| {
                let (dir, expected, done) = (&dir, &expected, &done);
                scope.spawn(move || {
                    let mut rounds = 0;
                    while !done.load(std::sync::atomic::Ordering::Relaxed) || rounds == 0 {
                        drop_caches();
                        if reader == 0 {
                            let find = Command::new("find")
                                .arg(dir)
                                .args(["-printf", "%s %C@ %i\n"])
                                .output()
                                .unwrap();
                            assert!(find.status.success(), "{}", String::from_utf8_lossy(&find.stderr));
                            assert_eq!(find.stdout.iter().filter(|byte| **byte == b'\n').count(), 3061);
                        } else {
                            assert_eq!(&tar_sum(dir).unwrap(), expected);
                        }
                        rounds += 1;
                    }
                })
            })
            .collect();
        let mut kills = 0;
        let mut last = 0;
        while kills < 15 {
            until("another server", || {
                let pid = server_pid(&world);
                pid != 0 && pid != last
            });
            last = server_pid(&world);
            std::thread::sleep(Duration::from_millis(30));
            kill(last);
            kills += 1;
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
        kills
    });
    until("the last server", || server_pid(&world) != 0);
    let info = atoll_mount::servers().unwrap().remove(0);
    assert_eq!(info.restarts, kills);
    assert_eq!(tar_sum(&dir).unwrap(), expected);
}

#[test]
fn node_ids_are_the_same_after_a_restart() {
    let world = World::new();
    let commit = world.commit("main", &sample());
    let Some(server) = world.serve() else { return };
    let dir = world.folder(&commit);
    let handle = |path: &Path| {
        rustix::fs::statx(
            rustix::fs::CWD,
            path,
            rustix::fs::AtFlags::empty(),
            rustix::fs::StatxFlags::BASIC_STATS,
        )
        .unwrap()
        .stx_ino
    };
    let before = (handle(&dir), handle(&dir.join("dir07/file7")));
    let open = fs::File::open(dir.join("dir07/file67")).unwrap();
    kill(server.info.pid);
    // By the open file, whose node id only a successor that finds it again can know.
    let text = std::io::read_to_string(&open).unwrap();
    assert_eq!(text, "67\n".repeat(1 + (67 % 7) * 150));
    drop(open);
    drop(server);
    atoll_mount::stop_server(&world.paths).unwrap();
    until("the end", || !is_mounted(&world.paths.plain));
    let _server = world.serve().unwrap();
    assert_eq!((handle(&dir), handle(&dir.join("dir07/file7"))), before);
}

#[test]
fn an_unused_server_ends_and_unmounts() {
    let world = World::with_idle("0.3");
    world.commit("main", &sample());
    let Some(server) = world.serve() else { return };
    let (pid, supervisor) = (server.info.pid, server.info.supervisor_pid);
    std::thread::sleep(Duration::from_millis(600));
    assert!(is_mounted(&world.paths.plain), "a connection keeps it");
    drop(server);
    until("the end", || !is_mounted(&world.paths.plain) && !is_mounted(&world.paths.xattr));
    for pid in [pid, supervisor] {
        until("the process ends", || {
            fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
        });
    }
    assert!(atoll_mount::servers().unwrap().is_empty());
    // And it can be had again.
    assert!(world.serve().is_some());
}

#[test]
fn a_used_server_stays() {
    let world = World::with_idle("0.2");
    let commit = world.commit("main", &sample());
    let Some(server) = world.serve() else { return };
    drop(server);
    let mut sleeper = Command::new("sleep")
        .arg("60")
        .current_dir(world.folder(&commit))
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(600));
    let mounted = is_mounted(&world.paths.plain);
    let stopped = atoll_mount::stop_server(&world.paths);
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert!(mounted, "a working directory keeps it");
    assert_eq!(stopped.unwrap_err().code, Code::Busy);
    until("the end", || !is_mounted(&world.paths.plain));
}

#[test]
fn a_dropped_commit_that_is_served_is_readable_until_its_server_ends() {
    let world = World::new();
    world.commit("main", &Files::default().file("kept", "kept"));
    let gone = world.commit("gone", &sample());
    let Some(server) = world.serve() else { return };
    let dir = world.folder(&gone);
    let expected = tar_sum(&dir).unwrap();
    world.delete("gone");
    let now = Duration::ZERO;
    world.store.gc(now, false).unwrap();
    // A successor knows it too, and that it must stay.
    for _ in 0..2 {
        drop_caches();
        assert_eq!(tar_sum(&dir).unwrap(), expected);
        kill(server_pid_wait(&world, 0));
        assert_eq!(world.store.gc(now, false).unwrap().commits_removed, 0);
    }
    drop(server);
    until(
        "the end",
        || !matches!(atoll_mount::stop_server(&world.paths), Err(error) if error.code == Code::Busy),
    );
    until("it was freed", || world.store.gc(now, false).unwrap().commits_removed == 1);
    assert_eq!(world.store.commit(&gone.id).unwrap_err().code, Code::NotFound);
}

#[test]
fn what_a_dead_supervisor_left_is_mounted_again() {
    let world = World::new();
    let commit = world.commit("main", &sample());
    let Some(server) = world.serve() else { return };
    kill(server.info.supervisor_pid);
    until("the server notices", || atoll_mount::servers().unwrap()[0].supervisor_pid == 0);
    // Alone it still serves, and is found.
    drop_caches();
    assert_eq!(fs::read_to_string(world.folder(&commit).join("dir01/file1")).unwrap(), "1\n".repeat(151));
    assert_eq!(world.serve().unwrap().info.pid, server.info.pid);
    kill(server.info.pid);
    until("the mount is dead", || {
        fs::metadata(&world.paths.plain).is_err_and(|error| error.raw_os_error() == Some(107))
    });
    let again = world.serve().unwrap();
    assert_ne!(again.info.pid, server.info.pid);
    assert_eq!(fs::read_to_string(world.folder(&commit).join("dir01/file1")).unwrap(), "1\n".repeat(151));
}

#[test]
fn a_store_that_cannot_be_opened_is_said_and_leaves_no_mount() {
    let world = World::new();
    world.commit("main", &sample());
    fs::write(world.store.dir().join("atoll.toml"), "format = 999\n").unwrap();
    let error = atoll_mount::ensure_server(&world.store, &common::helper()).unwrap_err();
    if error.code == Code::Permission {
        eprintln!("skipped: no right to mount FUSE here");
        return;
    }
    assert!(!error.message.is_empty());
    assert!(!is_mounted(&world.paths.plain) && !is_mounted(&world.paths.xattr), "{error}");
}

/// An overlay with everything that a workspace has, over a commit's folder.
struct Overlay {
    target: std::path::PathBuf,
    top: std::path::PathBuf,
}

impl Overlay {
    fn new(world: &World, lower: &Path, name: &str) -> Option<Self> {
        let top = world.dir.path().join(name);
        let [upper, work, target] = ["upper", "work", "merged"].map(|part| top.join(part));
        for dir in [&upper, &work, &target] {
            fs::create_dir_all(dir).unwrap();
        }
        let overlay = Overlay { target, top };
        overlay.mount(lower).then_some(overlay)
    }

    fn mount(&self, lower: &Path) -> bool {
        let options = format!(
            "lowerdir={},upperdir={1}/upper,workdir={1}/work,redirect_dir=on,index=on,xino=on,metacopy=on",
            lower.display(),
            self.top.display()
        );
        let status = Command::new("mount")
            .args(["-t", "overlay", "atoll-test", "-o", &options])
            .arg(&self.target)
            .status();
        let mounted = status.is_ok_and(|status| status.success());
        if !mounted {
            eprintln!("skipped: no overlay here (needs root and an upper that is no overlay itself)");
        }
        mounted
    }

    fn unmount(&self) {
        assert!(Command::new("umount").arg(&self.target).status().unwrap().success());
    }
}

#[test]
fn overlay_above_a_killed_server() {
    overlay_keeps_its_files(&World::with_idle("0.2"), true);
}

/// A ring's server must not be killed; all else is the same.
#[test]
fn overlay_above_a_ring() {
    if let Err(why) = atoll_fuse::uring::available() {
        eprintln!("skipped: {why}");
        return;
    }
    overlay_keeps_its_files(&World::with("0.2", "uring"), false);
}

fn overlay_keeps_its_files(world: &World, kills: bool) {
    let commit =
        world.commit("main", &sample().node("dir07/twin", common::Node::Hard("dir07/file67".into())));
    let Some(server) = world.serve() else { return };
    let lower = world.folder(&commit);
    let Some(overlay) = Overlay::new(world, &lower, "one") else { return };
    let merged = overlay.target.clone();
    server.pin("one", &merged).unwrap();
    let pid = server.info.pid;
    assert_eq!(server.info.transport, if kills { "dev" } else { "uring" });
    drop(server);
    // A pinned server is not idle.
    std::thread::sleep(Duration::from_millis(400));
    assert!(is_mounted(&world.paths.plain));
    assert_eq!(server_pid(world), pid);

    let ino = |path: &str| fs::metadata(merged.join(path)).unwrap().ino();
    let before = ino("dir01/file1");
    fs::write(merged.join("dir01/file1"), "changed").unwrap();
    assert_eq!(ino("dir01/file1"), before, "copy-up keeps the number");
    if kills {
        kill(pid);
    }
    fs::rename(merged.join("dir02"), merged.join("moved")).unwrap();
    assert_eq!(fs::read_to_string(merged.join("moved/file2")).unwrap(), "2\n".repeat(301));
    if kills {
        kill(server_pid_wait(world, pid));
    }
    let twin = merged.join("dir07/twin");
    fs::write(&twin, "both").unwrap();
    assert_eq!(
        fs::read_to_string(merged.join("dir07/file67")).unwrap(),
        "both",
        "a hard link survives copy-up"
    );
    fs::remove_file(merged.join("dir03/file3")).unwrap();
    let check = |what: &str| {
        for round in 0..3 {
            // Each time again: what the kernel made of a file handle at the first is checked at the second.
            assert_eq!(fs::read_to_string(merged.join("dir01/file1")).unwrap(), "changed", "{what} {round}");
            let moved = fs::read_to_string(merged.join("moved/file62")).unwrap();
            assert_eq!(moved, "62\n".repeat(1 + 6 * 150), "{what} {round}");
            assert_eq!(fs::read_to_string(merged.join("dir07/file67")).unwrap(), "both", "{what} {round}");
            assert!(!merged.join("dir03/file3").exists() && !merged.join("dir02").exists(), "{what} {round}");
            assert_eq!(ino("dir01/file1"), before, "{what} {round}");
        }
    };
    check("after kills");
    drop_caches();
    check("after kills, cold");

    // With index=on the lower's root has to be the same after every restart.
    overlay.unmount();
    until("the end", || !is_mounted(&world.paths.plain));
    let _server = world.serve().unwrap();
    assert!(overlay.mount(&lower), "the same upper over the same commit, another connection");
    check("mounted again");
    overlay.unmount();
}

fn server_pid_wait(world: &World, other: u32) -> u32 {
    until("another server", || ![0, other].contains(&server_pid(world)));
    server_pid(world)
}
