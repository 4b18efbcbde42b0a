//! Captures of a workspace that is in use: maps, the clock's ticks, walks that tear.

mod overlay_support;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use atoll_fs::overlay::{CgroupFreezer, Freezer};
use atoll_store::{Code, Result};
use overlay_support::{Bench, Scratch, bytes, can_mount};

fn fill(lower: &Path) {
    for dir in ["a", "b", "deep/er"] {
        fs::create_dir_all(lower.join(dir)).unwrap();
    }
    fs::write(lower.join("inherited"), bytes(1, 100_000)).unwrap();
    fs::write(lower.join("a/x"), "moving").unwrap();
    for at in 0..200 {
        fs::write(lower.join(format!("deep/er/{at}")), "f").unwrap();
    }
}

/// A process that maps files shared and writable and stores into them when told to.
struct Mapper {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Mapper {
    fn new(files: &[PathBuf]) -> Mapper {
        let program = "import mmap, sys\n\
            maps = []\n\
            for name in sys.argv[1:]:\n\
            \x20   file = open(name, 'r+b')\n\
            \x20   maps.append(mmap.mmap(file.fileno(), 0))\n\
            \x20   file.close()\n\
            print('ready', flush=True)\n\
            for line in sys.stdin:\n\
            \x20   for each in maps: each[100] = ord(line[0])\n\
            \x20   print('done', flush=True)\n";
        let mut child = Command::new("python3")
            .args(["-c", program])
            .args(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut mapper = Mapper { child, lines };
        assert_eq!(mapper.lines.next().unwrap().unwrap(), "ready");
        mapper
    }

    fn store(&mut self, byte: char) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{byte}").unwrap();
        assert_eq!(self.lines.next().unwrap().unwrap(), "done");
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

fn byte_at(bench: &Bench, path: &str) -> u8 {
    let tree = bench.root(bench.head);
    let (ino, inode) = tree.resolve(path.as_bytes()).unwrap().unwrap();
    tree.read(ino, inode.size, 100..101).unwrap()[0]
}

fn stores_through_maps(scratch: Scratch) {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(scratch, fill);
    fs::write(bench.ws("new"), bytes(2, 50_000)).unwrap();
    fs::write(bench.ws("unmapped"), bytes(3, 50_000)).unwrap();
    // Old enough that nothing else makes them unclean.
    thread::sleep(Duration::from_millis(25));
    let mut mapper = Mapper::new(&[bench.ws("new"), bench.ws("inherited")]);
    mapper.store('1');
    thread::sleep(Duration::from_millis(25));
    let done = bench.commit();
    assert_eq!(done.notes.mapped, 2, "{done:?}");
    for round in '2'..='5' {
        let stamp = |name: &str| fs::metadata(bench.upper().join(name)).unwrap();
        let before = [stamp("new"), stamp("inherited")];
        mapper.store(round);
        let after = [stamp("new"), stamp("inherited")];
        // On a disk the kernel may have written the page back meanwhile; then the store is seen.
        if scratch == Scratch::Memory {
            use std::os::unix::fs::MetadataExt;
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(
                    (before.ctime_nsec(), before.mtime()),
                    (after.ctime_nsec(), after.mtime()),
                    "the trap"
                );
            }
        }
        let done = bench.commit();
        assert!(done.changed);
        for name in ["new", "inherited"] {
            assert_eq!(byte_at(&bench, name), round as u8, "{name}");
        }
        assert_eq!(done.read_files, 2, "only what is mapped is read again: {done:?}");
        bench.check();
    }
    mapper.store('6');
    mapper.end();
    // Nobody maps them any more, and yet the last capture's stat data still says nothing.
    bench.commit();
    for name in ["new", "inherited"] {
        assert_eq!(byte_at(&bench, name), b'6', "{name}");
    }
    let last = bench.commit();
    assert_eq!((last.read_files, last.changed, last.notes.mapped), (0, false, 0), "{last:?}");
}

/// A look reads what is not committed once, and sees what changes afterwards all the same.
fn looks(scratch: Scratch) {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(scratch, fill);
    let tick = || thread::sleep(Duration::from_millis(25));
    for at in 0..50 {
        fs::write(bench.ws(&format!("new{at}")), bytes(at, 3000 + at as usize * 7000)).unwrap();
    }
    fs::write(bench.ws("tiny"), "tiny").unwrap();
    let inherited = fs::OpenOptions::new().append(true).open(bench.ws("inherited"));
    std::io::Write::write_all(&mut inherited.unwrap(), b"more").unwrap();
    tick();
    let (read, list) = bench.look();
    assert_eq!((read, list.len()), (52, 52), "{list:?}");
    assert_eq!(bench.look(), (0, list.clone()));
    // Written in the tick of the look that reads it, so it is in doubt; then no more.
    fs::write(bench.ws("new7"), bytes(99, 20_000)).unwrap();
    assert_eq!(bench.look(), (1, list.clone()));
    tick();
    assert!(bench.look().0 <= 1);
    assert_eq!(bench.look(), (0, list.clone()));
    // Back to the base's bytes: that shows only to who compares contents.
    let old = fs::read(bench.path("lower").join("inherited")).unwrap();
    let times = fs::FileTimes::new()
        .set_modified(fs::metadata(bench.path("lower").join("inherited")).unwrap().modified().unwrap());
    fs::write(bench.ws("inherited"), old).unwrap();
    fs::File::open(bench.ws("inherited")).unwrap().set_times(times).unwrap();
    tick();
    let (read, fewer) = bench.look();
    assert_eq!((read, fewer.len()), (1, 51), "{fewer:?}");
    assert_eq!(bench.look(), (0, fewer.clone()));
    // A damaged or foreign file is worth nothing.
    let looked = fs::read(bench.path("looked")).unwrap();
    for at in [3, looked.len() / 2, looked.len() - 1] {
        let mut bytes = looked.clone();
        bytes[at] ^= 1;
        fs::write(bench.path("looked"), bytes).unwrap();
        assert_eq!(bench.look(), (52, fewer.clone()), "byte {at}");
    }
    assert_eq!(bench.look(), (0, fewer.clone()));
    // While anything is mapped, everything is read, and nothing is believed afterwards.
    let mut mapper = Mapper::new(&[bench.ws("new3"), bench.ws("new4")]);
    mapper.store('1');
    tick();
    for round in '2'..='3' {
        mapper.store(round);
        assert_eq!(bench.look(), (52, fewer.clone()));
    }
    mapper.end();
    tick();
    bench.look();
    assert_eq!(bench.look(), (0, fewer.clone()));
    // A commit has all the bytes, and what it has is not looked up again.
    let done = bench.commit_and_check();
    assert_eq!(done.changes, fewer);
    assert_eq!(byte_at(&bench, "new3"), b'3');
    assert_eq!(bench.look(), (0, Vec::new()));
}

#[test]
fn looks_on_disk() {
    looks(Scratch::Disk);
}

#[test]
fn looks_in_memory() {
    looks(Scratch::Memory);
}

#[test]
fn stores_through_maps_on_disk() {
    stores_through_maps(Scratch::Disk);
}

#[test]
fn stores_through_maps_in_memory() {
    stores_through_maps(Scratch::Memory);
}

/// On tmpfs a store through a map that was read before leaves no trace in stat data: the last capture of such an
/// upper does without the index.
#[test]
fn a_map_made_and_undone_between_two_captures_in_memory_is_seen_without_the_index() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(Scratch::Memory, fill);
    fs::write(bench.ws("new"), bytes(2, 50_000)).unwrap();
    thread::sleep(Duration::from_millis(25));
    bench.commit();
    let mut mapper = Mapper::new(&[bench.ws("new")]);
    mapper.store('!');
    mapper.end();
    bench.trust_index = false;
    let done = bench.commit();
    assert!(done.changed && !done.notes.index_used);
    assert_eq!(byte_at(&bench, "new"), b'!');
}

#[test]
fn a_write_in_the_tick_of_the_capture_is_never_missed() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(Scratch::Disk, fill);
    for round in 0..60u64 {
        fs::write(bench.ws("same size"), bytes(round, 300)).unwrap();
        fs::write(bench.ws("inherited"), bytes(round, 100_000)).unwrap();
        bench.commit();
        for name in ["same size", "inherited"] {
            let want = fs::read(bench.ws(name)).unwrap();
            assert_eq!(byte_at(&bench, name), want[100], "{name} in round {round}");
        }
    }
    bench.check();
}

/// Renames one file between two folders until it is told to stop, or to stand still.
struct Mover {
    stop: Arc<AtomicBool>,
    hold: Arc<AtomicBool>,
    held: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Mover {
    fn new(bench: &Bench, pause: Duration) -> Mover {
        let [stop, hold, held] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
        let places = [bench.ws("a/x"), bench.ws("b/x")];
        let flags = (stop.clone(), hold.clone(), held.clone());
        let work = move || {
            let (stop, hold, held) = flags;
            let mut moves = 0u64;
            while !stop.load(Ordering::SeqCst) {
                let from = (moves % 2) as usize;
                fs::rename(&places[from], &places[1 - from]).unwrap();
                moves += 1;
                while hold.load(Ordering::SeqCst) {
                    held.store(true, Ordering::SeqCst);
                    thread::yield_now();
                }
                held.store(false, Ordering::SeqCst);
                if !pause.is_zero() {
                    thread::sleep(pause);
                }
            }
            moves
        };
        Mover { stop, hold, held, thread: Some(thread::spawn(work)) }
    }

    fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Freezer for Mover {
    fn freeze(&self) -> Result<()> {
        self.hold.store(true, Ordering::SeqCst);
        while !self.held.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        Ok(())
    }
    fn thaw(&self) -> Result<()> {
        self.hold.store(false, Ordering::SeqCst);
        Ok(())
    }
}

/// The file is in exactly one of the folders.
fn seen_once(bench: &Bench) {
    let found = ["a/x", "b/x"].iter().filter(|path| bench.ino(bench.head, path).is_some()).count();
    assert_eq!(found, 1, "a file that is renamed all the time is in the tree once");
    overlay_support::check_tree(bench.root(bench.head));
}

#[test]
fn a_walk_never_tears() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(Scratch::Disk, fill);
    let mover = Mover::new(&bench, Duration::from_micros(1500));
    let (mut done, mut refused) = (0, 0);
    for _ in 0..60 {
        match bench.try_commit(None) {
            Ok(_) => {
                done += 1;
                seen_once(&bench);
            }
            Err(error) => {
                assert_eq!(error.code, Code::Changed, "{error}");
                let named = ["folder a ", "folder b ", "file a/x ", "file b/x "];
                assert!(named.iter().any(|name| error.message.contains(name)), "{error}");
                refused += 1;
            }
        }
    }
    let moves = mover.end();
    eprintln!("{done} captures, {refused} refused, {moves} renames");
    assert!(moves > 10);
    bench.commit_and_check();
    seen_once(&bench);
}

#[test]
fn processes_that_never_keep_still_are_frozen() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(Scratch::Disk, fill);
    let mover = Mover::new(&bench, Duration::ZERO);
    let mut frozen = 0;
    for _ in 0..10 {
        let done = bench.try_commit(Some(&mover)).unwrap();
        frozen += u32::from(done.notes.frozen);
        seen_once(&bench);
        assert!(!mover.hold.load(Ordering::SeqCst), "they go on afterwards");
    }
    mover.end();
    eprintln!("frozen in {frozen} of 10 captures");
    bench.commit_and_check();
}

/// A cgroup of its own with a freezer, removed at the end.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Cgroup> {
        let name = format!("atoll-test-{}", std::process::id());
        for root in ["/sys/fs/cgroup", "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified"] {
            let dir = Path::new(root).join(&name);
            if fs::create_dir(&dir).is_ok() {
                if dir.join("cgroup.freeze").exists() || dir.join("freezer.state").exists() {
                    return Some(Cgroup(dir));
                }
                let _ = fs::remove_dir(&dir);
            }
        }
        eprintln!("skipped: no cgroup with a freezer can be made");
        None
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_cgroup_is_frozen_and_goes_on() {
    if !can_mount() {
        return;
    }
    let Some(cgroup) = Cgroup::new() else { return };
    let mut bench = Bench::new(Scratch::Disk, fill);
    let script = "import os\n\
        print('ready', flush=True)\n\
        while os.path.exists('go'):\n\
        \x20   os.rename('a/x', 'b/x')\n\
        \x20   os.rename('b/x', 'a/x')\n";
    fs::write(bench.ws("go"), "").unwrap();
    let mut child = Command::new("python3")
        .args(["-c", script])
        .current_dir(bench.ws(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    fs::write(cgroup.0.join("cgroup.procs"), child.id().to_string()).unwrap();
    BufReader::new(child.stdout.take().unwrap()).lines().next();
    let freezer = CgroupFreezer::new(&cgroup.0);
    for _ in 0..5 {
        bench.try_commit(Some(&freezer)).unwrap();
        seen_once(&bench);
    }
    // It has to run to see that it should end.
    fs::remove_file(bench.ws("go")).unwrap();
    assert!(child.wait().unwrap().success());
    bench.commit_and_check();
}

#[test]
fn files_that_come_and_go_do_not_matter() {
    if !can_mount() {
        return;
    }
    let mut bench = Bench::new(Scratch::Disk, fill);
    let stop = Arc::new(AtomicBool::new(false));
    let (flag, dir) = (stop.clone(), bench.ws("deep"));
    let churn = thread::spawn(move || {
        let mut round = 0u64;
        while !flag.load(Ordering::SeqCst) {
            let sub = dir.join(format!("d{}", round % 3));
            let _ = fs::remove_dir_all(&sub);
            fs::create_dir(&sub).unwrap();
            fs::write(sub.join("f"), bytes(round, 2000)).unwrap();
            fs::rename(sub.join("f"), dir.join("er/f")).unwrap();
            OpenOptions::new().append(true).open(dir.join("er/1")).unwrap().write_all(b"+").unwrap();
            round += 1;
            thread::sleep(Duration::from_millis(2));
        }
        round
    });
    let mut done = 0;
    for _ in 0..40 {
        match bench.try_commit(None) {
            Ok(_) => {
                done += 1;
                overlay_support::check_tree(bench.root(bench.head));
            }
            Err(error) => assert_eq!(error.code, Code::Changed, "{error}"),
        }
    }
    stop.store(true, Ordering::SeqCst);
    let rounds = churn.join().unwrap();
    eprintln!("{done} of 40 captures during {rounds} rounds");
    bench.commit_and_check();
    bench.check_without_index();
}
