//! Names and stat data of a host folder, read by several threads without following any link.
//!
//! A walk of a live folder tears: a file that is renamed between two folders meanwhile can be missed or seen
//! twice. So a scan can tell which folders changed since it read them, and read just those again.

mod dir;
pub mod host;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex};

use atoll_store::tree::{FileType, Time};
use atoll_store::{Code, Error, Result};
use rustix::io::Errno;

use crate::ignore::Ignores;
use crate::import::SkipReason;
use crate::progress::{Phase, Progress, check};
pub use host::HostStat;

/// A name in a scanned folder.
#[derive(Debug, Clone)]
pub struct ScanEntry {
    /// The name.
    pub name: Box<[u8]>,
    /// What the host says about it.
    pub stat: HostStat,
}

/// A scanned folder.
pub struct ScanDir {
    /// What the host said about it just before its names were read.
    pub stat: HostStat,
    /// Its names, sorted.
    pub entries: Vec<ScanEntry>,
    /// A change in the clock tick in which the folder was read could have left no trace in its ctime.
    racy: bool,
    /// The patterns that hold in it.
    ignores: Ignores,
    skipped: Vec<(Box<[u8]>, SkipReason)>,
    ignored: u64,
    /// Why the whole folder is left out.
    verdict: Option<SkipReason>,
}

impl ScanDir {
    fn left_out(stat: HostStat, reason: SkipReason) -> ScanDir {
        ScanDir {
            stat,
            entries: Vec::new(),
            racy: false,
            ignores: Ignores::default(),
            skipped: Vec::new(),
            ignored: 0,
            verdict: Some(reason),
        }
    }
}

/// How a folder is scanned.
pub struct ScanOptions<'a> {
    /// Patterns of what to leave out; `None` also ignores `.atollignore` files (a capture).
    pub ignores: Option<Ignores>,
    /// Leave out folders that cannot be read.
    pub skip_unreadable: bool,
    /// Leave out atoll stores.
    pub skip_stores: bool,
    /// How many threads.
    pub threads: usize,
    /// Told of every folder.
    pub progress: &'a dyn Progress,
}

impl ScanOptions<'_> {
    /// Whether it could be left out that something cannot be read, and was not asked for: an import.
    pub fn may_skip(&self) -> bool {
        self.ignores.is_some() && !self.skip_unreadable
    }
}

/// Reading failed: `doing` completes "atoll could not …". Where the right to read is missing, the message says what
/// to do; `may_skip` as [`ScanOptions::may_skip`].
pub fn unreadable(doing: &str, path: &Path, error: Errno, may_skip: bool) -> Error {
    let mut failed = Error::io(doing, path, error.into());
    if matches!(error, Errno::ACCESS | Errno::PERM) {
        failed.message.push_str(" Give yourself the right to read it (chmod u+rX) and try again");
        failed.message.push_str(match may_skip {
            true => ", or leave out what cannot be read with --skip-unreadable.",
            false => ".",
        });
    }
    failed
}

/// A scanned folder and all below it.
pub struct Scan {
    /// The folder, as it was given.
    pub folder: PathBuf,
    /// The folder, open.
    pub root: OwnedFd,
    /// Every folder by its path from the root (`b""`).
    pub dirs: BTreeMap<Box<[u8]>, ScanDir>,
}

/// `dir/name`, or `name` in the root.
pub fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    if !dir.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// How many threads to use when the caller leaves it open.
pub fn threads(wanted: usize) -> usize {
    match wanted {
        0 => std::thread::available_parallelism().map_or(2, |count| count.get()).clamp(2, 16),
        wanted => wanted,
    }
}

/// The clock that file systems take their timestamps from: it moves in ticks.
pub fn coarse_now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    Time { sec: now.tv_sec, nsec: now.tv_nsec as u32 }
}

impl Scan {
    /// Scans a folder.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Permission` naming a folder that cannot be read, `Usage` for malformed
    /// patterns.
    pub fn new(folder: &Path, options: &ScanOptions<'_>) -> Result<Scan> {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(folder, flags, Mode::empty())
            .map_err(|error| unreadable("read the folder", folder, error, false))?;
        let mut scan = Scan { folder: folder.to_owned(), root, dirs: BTreeMap::new() };
        let ignores = options.ignores.clone().unwrap_or_default();
        scan.read(vec![(Box::default(), ignores)], options)?;
        Ok(scan)
    }

    /// The host path of a path in the folder, for messages.
    pub fn host_path(&self, path: &[u8]) -> PathBuf {
        if path.is_empty() { self.folder.clone() } else { self.folder.join(OsStr::from_bytes(path)) }
    }

    /// What was left out, with the reason; and how many names patterns left out.
    pub fn left_out(&self) -> (Vec<(Vec<u8>, SkipReason)>, u64) {
        let skipped = self
            .dirs
            .iter()
            .flat_map(|(path, dir)| dir.skipped.iter().map(|(name, reason)| (join(path, name), *reason)))
            .collect();
        (skipped, self.dirs.values().map(|dir| dir.ignored).sum())
    }

    /// Takes a name out of a scanned folder, with all below it, for a reason.
    pub fn leave_out(&mut self, dir: &[u8], name: &[u8], reason: SkipReason) {
        if let Some(scanned) = self.dirs.get_mut(dir) {
            scanned.entries.retain(|entry| *entry.name != *name);
            scanned.skipped.push((name.into(), reason));
        }
        self.forget(&join(dir, name));
    }

    /// The folders that changed since they were read, or that are gone, or that are listed and were not found.
    pub fn unstable(&self) -> Result<BTreeSet<Box<[u8]>>> {
        let mut found = BTreeSet::new();
        let mut inodes = std::collections::HashMap::with_capacity(self.dirs.len());
        for (path, dir) in &self.dirs {
            let now = self.stat(path);
            if dir.racy || !now.is_ok_and(|now| now.same_state(&dir.stat)) {
                found.insert(path.clone());
            }
            // One folder under two paths: it was moved while the walk went on.
            if let Some(other) = inodes.insert(dir.stat.ino, path) {
                found.insert(parent(path).into());
                found.insert(parent(other).into());
            }
            for entry in dir.entries.iter().filter(|entry| entry.stat.kind == FileType::Dir) {
                if !self.dirs.contains_key(&join(path, &entry.name)[..]) {
                    found.insert(path.clone());
                }
            }
        }
        Ok(found)
    }

    fn stat(&self, path: &[u8]) -> rustix::io::Result<HostStat> {
        if path.len() < 4000 && !path.is_empty() {
            return HostStat::at(&self.root, path);
        }
        HostStat::of(host::open_beneath(self.root.as_fd(), path, rustix::fs::OFlags::PATH)?)
    }

    /// Reads these folders again, and folders that are new in them.
    pub fn read_again(&mut self, paths: BTreeSet<Box<[u8]>>, options: &ScanOptions<'_>) -> Result<()> {
        let mut work = Vec::new();
        for path in paths {
            let ignores = match self.dirs.get(parent(&path)) {
                _ if path.is_empty() => options.ignores.clone().unwrap_or_default(),
                Some(above) => above.ignores.clone(),
                None => continue,
            };
            // Its patterns may have changed, and with them what is left out below.
            if self.dirs.contains_key(&path) {
                work.push((path, ignores));
            }
        }
        self.read(work, options)
    }

    /// Removes a folder and all below it from the scan.
    fn forget(&mut self, path: &[u8]) {
        self.dirs.remove(path);
        let (mut from, mut to) = (path.to_vec(), path.to_vec());
        from.push(b'/');
        to.push(b'/' + 1);
        let below: Vec<_> = self
            .dirs
            .range::<[u8], _>((std::ops::Bound::Included(&from[..]), std::ops::Bound::Excluded(&to[..])))
            .map(|(path, _)| path.clone())
            .collect();
        for path in below {
            self.dirs.remove(&path);
        }
    }

    fn read(&mut self, work: Vec<(Box<[u8]>, Ignores)>, options: &ScanOptions<'_>) -> Result<()> {
        let before = |path: &[u8]| {
            let dir = self.dirs.get(path)?;
            Some(
                dir.entries
                    .iter()
                    .map(|entry| (entry.name.clone(), entry.stat.ino))
                    .collect::<BTreeMap<_, _>>(),
            )
        };
        let queue = Queue {
            state: Mutex::new(State { pending: work.len(), work, failed: None }),
            wake: Condvar::new(),
        };
        let known: BTreeMap<Box<[u8]>, u64> =
            self.dirs.iter().map(|(path, dir)| (path.clone(), dir.stat.ino)).collect();
        let root = self.root.as_fd();
        let shown = |path: &[u8]| self.host_path(path);
        let one = || {
            let mut found = Vec::new();
            while let Some((path, ignores)) = queue.take() {
                let result =
                    check(options.progress).and_then(|()| dir::read(root, &path, &ignores, options, &shown));
                match result {
                    Ok(Some(dir)) => {
                        options.progress.advance(Phase::Scan, dir.entries.len() as u64, 0);
                        let below = dir
                            .entries
                            .iter()
                            .filter(|entry| entry.stat.kind == FileType::Dir)
                            .map(|entry| (join(&path, &entry.name).into_boxed_slice(), entry.stat.ino))
                            // A folder that is known and still the same one vouches for itself.
                            .filter(|(path, ino)| known.get(path) != Some(ino))
                            .map(|(path, _)| (path, dir.ignores.clone()));
                        queue.done(below);
                        found.push((path, Some(dir)));
                    }
                    Ok(None) => {
                        queue.done(std::iter::empty());
                        found.push((path, None));
                    }
                    Err(error) => queue.fail(error),
                }
            }
            found
        };
        let found: Vec<_> = std::thread::scope(|scope| {
            let others: Vec<_> = (1..options.threads.max(1)).map(|_| scope.spawn(one)).collect();
            let mut found = one();
            for other in others {
                found.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            found
        });
        if let Some(error) = queue.state.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).failed
        {
            return Err(error);
        }
        // What a folder does not hold any more, or holds as another folder, goes; the new reading comes after.
        let mut gone = Vec::new();
        for (path, dir) in &found {
            for (name, ino) in before(path).unwrap_or_default() {
                let kept = dir.as_ref().is_some_and(|dir| {
                    dir.entries.binary_search_by(|entry| entry.name.cmp(&name)).is_ok_and(|at| {
                        dir.entries[at].stat.ino == ino && dir.entries[at].stat.kind == FileType::Dir
                    })
                });
                if !kept {
                    gone.push(join(path, &name));
                }
            }
            if dir.is_none() {
                gone.push(path.to_vec());
            }
        }
        for path in gone {
            self.forget(&path);
        }
        let mut left_out = Vec::new();
        for (path, dir) in found {
            match dir {
                Some(ScanDir { verdict: Some(reason), .. }) => left_out.push((path, reason)),
                Some(dir) => drop(self.dirs.insert(path, dir)),
                None => {}
            }
        }
        for (path, reason) in left_out {
            if path.is_empty() {
                let place = self.folder.display();
                return Err(Error::new(
                    Code::Usage,
                    format!("{place} is an atoll store; import the folder that you work in instead."),
                ));
            }
            let name = path[parent(&path).len()..].strip_prefix(b"/").unwrap_or(&path);
            self.leave_out(parent(&path), name, reason);
        }
        Ok(())
    }
}

/// The folder of a path; the root's is the root.
pub fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(b"", |at| &path[..at])
}

struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    work: Vec<(Box<[u8]>, Ignores)>,
    /// Folders that wait or are being read.
    pending: usize,
    failed: Option<Error>,
}

impl Queue {
    fn take(&self) -> Option<(Box<[u8]>, Ignores)> {
        let mut state = self.state.lock().ok()?;
        loop {
            if state.failed.is_some() || state.pending == 0 {
                return None;
            }
            match state.work.pop() {
                Some(work) => return Some(work),
                None => state = self.wake.wait(state).ok()?,
            }
        }
    }

    fn done(&self, below: impl Iterator<Item = (Box<[u8]>, Ignores)>) {
        if let Ok(mut state) = self.state.lock() {
            let before = state.work.len();
            state.work.extend(below);
            state.pending += state.work.len() - before;
            state.pending -= 1;
            self.wake.notify_all();
        }
    }

    fn fail(&self, error: Error) {
        if let Ok(mut state) = self.state.lock() {
            state.failed.get_or_insert(error);
            self.wake.notify_all();
        }
    }
}
