//! Reads the files that need it, by several threads, each file until it kept still.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use atoll_store::tree::FileType;
use atoll_store::{Code, Error, Result};
use rustix::io::Errno;

use super::contents::StreamError;
use super::xattrs::{self, Xattrs};
use super::{Extents, Ingest, Target, edits, secrets};
use crate::progress::{Phase, check};
use crate::scan::host::{open_dir, open_file};
use crate::scan::{HostStat, Scan, ScanOptions, join, unreadable};

/// How often a file that changes while it is read is read again.
const ATTEMPTS: u32 = 10;

/// A file that is to be read.
pub struct Wanted {
    /// Its folder.
    pub dir: Box<[u8]>,
    /// Its name there; empty for the root folder itself.
    pub name: Box<[u8]>,
    /// What the scan saw.
    pub stat: HostStat,
}

/// What was read of a file.
#[derive(Debug, Clone)]
pub struct Content {
    /// Its stat data, the same before and after.
    pub stat: HostStat,
    /// Its extended attributes.
    pub xattrs: Xattrs,
    /// Its contents or target.
    pub extents: Extents,
    /// Its size in the tree: the host's, but for a file whose contents were rewritten.
    pub size: u64,
    /// Whether it looks like a secret.
    pub secret: bool,
}

/// How reading a file ended.
pub enum Outcome {
    /// It was read.
    Read(Content),
    /// The name is gone, or is another file's by now.
    Gone,
    /// The right to read it is missing, and that is no error.
    Unreadable,
}

/// How files are read.
pub struct ReadOptions<'a> {
    /// What is left out, how many threads, who is told of every file: as the folder was scanned.
    pub scan: &'a ScanOptions<'a>,
    /// Contents to store instead of the host's, by path.
    pub overrides: &'a BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Files are handed to threads in runs of neighbours, which compress well together.
const RUN: usize = 64;

/// Reads the wanted files into `target`; the outcomes stand in the same order, with the bytes read.
///
/// # Errors
/// `Changed` naming a file that never kept still, `Permission` naming one that cannot be read.
pub fn read(
    scan: &Scan,
    target: &Target<'_>,
    wanted: &[Wanted],
    options: &ReadOptions<'_>,
) -> Result<(Vec<Outcome>, u64)> {
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let threads = options.scan.threads.clamp(1, wanted.len().div_ceil(RUN).max(1));
    let one = || {
        let mut worker = Worker { scan, options, ingest: target.ingest(), dir: None };
        let mut outcomes = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let from = next.fetch_add(RUN, Ordering::Relaxed);
            if from >= wanted.len() {
                break;
            }
            for (at, file) in wanted.iter().enumerate().skip(from).take(RUN) {
                match check(options.scan.progress).and_then(|()| worker.file(file)) {
                    Ok(outcome) => outcomes.push((at, outcome)),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        keep_first(&failed, at, error);
                        break;
                    }
                }
            }
        }
        let bytes = worker.ingest.bytes;
        if let Err(error) = worker.ingest.finish() {
            keep_first(&failed, usize::MAX, error);
        }
        (outcomes, bytes)
    };
    let (mut outcomes, bytes) = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let (mut outcomes, mut bytes) = one();
        for other in others {
            let (more, read) = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            outcomes.extend(more);
            bytes += read;
        }
        (outcomes, bytes)
    });
    if let Some((_, error)) = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        return Err(error);
    }
    outcomes.sort_unstable_by_key(|(at, _)| *at);
    Ok((outcomes.into_iter().map(|(_, outcome)| outcome).collect(), bytes))
}

/// The error of the first file in order is the one that is told, whichever thread was faster.
fn keep_first(failed: &Mutex<Option<(usize, Error)>>, at: usize, error: Error) {
    if let Ok(mut failed) = failed.lock()
        && failed.as_ref().is_none_or(|(first, _)| at < *first)
    {
        *failed = Some((at, error));
    }
}

struct Worker<'a> {
    scan: &'a Scan,
    options: &'a ReadOptions<'a>,
    ingest: Ingest<'a>,
    dir: Option<(Box<[u8]>, OwnedFd)>,
}

/// Why one attempt gave nothing.
enum Failure {
    /// The file changed meanwhile: again.
    Moving,
    /// A system call failed.
    Host(Errno),
    /// The store failed.
    Store(Error),
}

impl From<Errno> for Failure {
    fn from(error: Errno) -> Self {
        Failure::Host(error)
    }
}

impl From<StreamError> for Failure {
    fn from(error: StreamError) -> Self {
        match error {
            StreamError::Short => Failure::Moving,
            StreamError::Read(error) => Failure::Host(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            StreamError::Store(error) => Failure::Store(error),
        }
    }
}

impl Worker<'_> {
    fn file(&mut self, file: &Wanted) -> Result<Outcome> {
        let path = join(&file.dir, &file.name);
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                std::thread::sleep(Duration::from_millis(1 << attempt.min(6)));
            }
            match self.attempt(file, &path) {
                Ok(Some(content)) => {
                    self.options.scan.progress.advance(Phase::Read, 1, content.stat.size);
                    return Ok(Outcome::Read(content));
                }
                Ok(None) | Err(Failure::Host(Errno::NOENT | Errno::LOOP | Errno::NOTDIR | Errno::STALE)) => {
                    return Ok(Outcome::Gone);
                }
                Err(Failure::Moving) => {}
                Err(Failure::Host(Errno::ACCESS | Errno::PERM)) if self.options.scan.skip_unreadable => {
                    return Ok(Outcome::Unreadable);
                }
                Err(Failure::Host(error)) => {
                    let may_skip = self.options.scan.may_skip() && !path.is_empty();
                    return Err(unreadable("read", &self.scan.host_path(&path), error, may_skip));
                }
                Err(Failure::Store(error)) => return Err(error),
            }
        }
        let place = self.scan.host_path(&path);
        Err(Error::new(
            Code::Changed,
            format!(
                "{} kept changing while it was read; stop what writes to it and try again.",
                place.display()
            ),
        ))
    }

    /// `None`: the name is not this file's any more.
    fn attempt(&mut self, file: &Wanted, path: &[u8]) -> Result<Option<Content>, Failure> {
        let dir = match self.dir.take() {
            Some((path, dir)) if path == file.dir => dir,
            _ => open_dir(self.scan.root.as_fd(), &file.dir)?,
        };
        let content = self.content(&dir, file, path);
        self.dir = Some((file.dir.clone(), dir));
        content
    }

    fn content(&mut self, dir: &OwnedFd, file: &Wanted, path: &[u8]) -> Result<Option<Content>, Failure> {
        let name = &file.name[..];
        let is_it = |stat: &HostStat| stat.ino == file.stat.ino && stat.kind == file.stat.kind;
        if file.stat.kind == FileType::File {
            let open = open_file(dir, name)?;
            let before = HostStat::of(&open)?;
            if !is_it(&before) {
                return Ok(None);
            }
            let instead = self.options.overrides.get(path);
            let (extents, size) = match instead {
                Some(bytes) => (self.ingest.bytes(bytes).map_err(Failure::Store)?, bytes.len() as u64),
                None => (self.ingest.file(&open, before.size, before.allocated)?, before.size),
            };
            let secret = instead.is_none() && secrets::looks_secret(name, self.ingest.head());
            let xattrs = xattrs::read(&open)?;
            if !HostStat::of(&open)?.same_state(&before) {
                return Err(Failure::Moving);
            }
            return Ok(Some(Content { stat: before, xattrs, extents, size, secret }));
        }
        let before = if name.is_empty() { HostStat::of(dir)? } else { HostStat::at(dir, name)? };
        if !is_it(&before) {
            return Ok(None);
        }
        let xattrs = match file.stat.kind {
            FileType::Dir if name.is_empty() => xattrs::read(dir)?,
            _ => xattrs::read_at(dir, name)?,
        };
        let mut size = 0;
        let mut extents = Extents::new();
        if file.stat.kind == FileType::Symlink {
            let target = match self.options.overrides.get(path) {
                Some(target) => target.clone(),
                None => rustix::fs::readlinkat(dir, name, Vec::new())?.into_bytes(),
            };
            size = target.len() as u64;
            extents = edits::target(&target);
        }
        let after = if name.is_empty() { HostStat::of(dir)? } else { HostStat::at(dir, name)? };
        if !after.same_state(&before) {
            return Err(Failure::Moving);
        }
        Ok(Some(Content { stat: before, xattrs, extents, size, secret: false }))
    }
}
