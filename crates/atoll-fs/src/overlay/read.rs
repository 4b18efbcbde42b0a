//! Reads what changed: attributes, contents and link targets of an upper's files, by several threads.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use atoll_store::tree::FileType;
use atoll_store::{Error, Result, Writer};
use rustix::io::Errno;

use super::attrs::Attrs;
use super::looked::Looked;
use crate::ingest::contents::StreamError;
use crate::ingest::edits::target;
use crate::ingest::{Extents, Ingest};
use crate::progress::{Phase, Progress, check};
use crate::scan::host::{open_dir, open_file};
use crate::scan::{HostStat, join, unreadable};

/// How often a file that changes while it is read is read again.
const TRIES: u32 = 4;

/// A file or folder to be read.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// Its folder; of a folder, itself.
    pub dir: Box<[u8]>,
    /// Its name; empty for a folder.
    pub name: Box<[u8]>,
    /// What the walk saw.
    pub stat: HostStat,
}

/// Whether it is the same file, in whatever state.
pub(super) fn same_file(a: &HostStat, b: &HostStat) -> bool {
    (a.ino, a.kind, a.btime) == (b.ino, b.kind, b.btime)
}

/// What was read of a file or folder.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// True of the rest: the same before and after.
    pub stat: HostStat,
    /// Its attributes.
    pub attrs: Attrs,
    /// Contents, or a link's target. Nothing when the data is the lower's.
    pub extents: Extents,
}

/// What a run of reads brought.
#[derive(Default)]
pub(super) struct Reads {
    /// By position in the wish list; `None` where the name is not that file any more.
    pub facts: Vec<Option<Box<Facts>>>,
    /// Folders in which a name was not what it had been.
    pub torn: BTreeSet<Box<[u8]>>,
    /// Files that changed during every read.
    pub restless: Vec<Vec<u8>>,
    /// Files whose contents were read, and their bytes.
    pub files: u64,
    /// See `files`.
    pub bytes: u64,
}

impl Reads {
    fn take(&mut self, other: Reads) {
        self.torn.extend(other.torn);
        self.restless.extend(other.restless);
        self.files += other.files;
        self.bytes += other.bytes;
    }
}

/// Facts by position in the wish list.
type Found = Vec<(usize, Box<Facts>)>;

/// What became of one wish.
enum Outcome {
    Read(Box<Facts>),
    Torn,
    Restless,
}

/// Where files are read from, and where their contents go.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    /// The folder that is captured.
    pub root: BorrowedFd<'a>,
    /// Its path, for messages.
    pub shown: &'a Path,
    /// Takes new contents.
    pub writer: &'a Writer,
    /// What need not be read.
    pub looked: &'a Looked,
}

/// Reads everything wanted.
pub(super) fn read(
    source: &Source<'_>,
    wanted: &[Wanted],
    threads: usize,
    progress: &dyn Progress,
) -> Result<Reads> {
    const RUN: usize = 32;
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let one = || -> Result<(Found, Reads)> {
        let mut reader = Reader {
            source: *source,
            ingest: Ingest::new(source.writer.batch()),
            open: None,
            reads: Reads::default(),
        };
        let mut found = Vec::new();
        loop {
            let start = next.fetch_add(RUN, Ordering::Relaxed);
            if start >= wanted.len() || stop.load(Ordering::Relaxed) {
                break;
            }
            let run = start..wanted.len().min(start + RUN);
            let before = reader.reads.bytes;
            for at in run.clone() {
                let done = check(progress).and_then(|()| reader.read(&wanted[at]));
                match done {
                    Ok(Outcome::Read(facts)) => found.push((at, facts)),
                    Ok(Outcome::Torn) => drop(reader.reads.torn.insert(wanted[at].dir.clone())),
                    Ok(Outcome::Restless) => {
                        reader.reads.restless.push(join(&wanted[at].dir, &wanted[at].name));
                    }
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                }
            }
            progress.advance(Phase::Read, run.len() as u64, reader.reads.bytes - before);
        }
        reader.ingest.finish()?;
        Ok((found, reader.reads))
    };
    let threads = threads.min(wanted.len().div_ceil(RUN)).max(1);
    let results: Vec<_> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(one)).collect();
        let mut results = vec![one()];
        for other in others {
            results.push(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        results
    });
    let mut reads = Reads::default();
    reads.facts.resize_with(wanted.len(), || None);
    for result in results {
        let (found, part) = result?;
        reads.take(part);
        for (at, facts) in found {
            reads.facts[at] = Some(facts);
        }
    }
    Ok(reads)
}

/// One thread's means.
struct Reader<'a> {
    source: Source<'a>,
    ingest: Ingest<'a>,
    open: Option<(Box<[u8]>, OwnedFd)>,
    reads: Reads,
}

impl Reader<'_> {
    fn read(&mut self, wanted: &Wanted) -> Result<Outcome> {
        match self.open_folder(&wanted.dir) {
            Ok(()) => {}
            Err(error) if is_gone(error) => return Ok(Outcome::Torn),
            Err(error) => return Err(self.failed(wanted, error)),
        }
        let mut outcome = Outcome::Restless;
        for _ in 0..TRIES {
            outcome = match self.attempt(wanted) {
                Ok(outcome) => outcome,
                Err(StreamError::Short) => Outcome::Restless,
                Err(StreamError::Store(error)) => return Err(error),
                Err(StreamError::Read(error)) => match Errno::from_io_error(&error) {
                    Some(error) if is_gone(error) => Outcome::Torn,
                    Some(error) => return Err(self.failed(wanted, error)),
                    None => return Err(error.into()),
                },
            };
            if !matches!(outcome, Outcome::Restless) {
                break;
            }
        }
        Ok(outcome)
    }

    /// Keeps the folder of the last file open: the next one is most often in it too.
    fn open_folder(&mut self, path: &[u8]) -> rustix::io::Result<()> {
        if self.open.as_ref().is_none_or(|(open, _)| **open != *path) {
            self.open = None;
            self.open = Some((path.into(), open_dir(self.source.root, path)?));
        }
        Ok(())
    }

    fn attempt(&mut self, wanted: &Wanted) -> Result<Outcome, StreamError> {
        let Some((_, dir)) = &self.open else { return Ok(Outcome::Torn) };
        let dir = dir.as_fd();
        let file = match wanted.stat.kind {
            FileType::File => Some(open_file(dir, &wanted.name).map_err(io)?),
            _ => None,
        };
        let look = || match &file {
            Some(file) => HostStat::of(file),
            None if wanted.name.is_empty() => HostStat::of(dir),
            None => HostStat::at(dir, &*wanted.name),
        };
        let stat = look().map_err(io)?;
        if !same_file(&stat, &wanted.stat) {
            return Ok(Outcome::Torn);
        }
        let mut extents = Extents::new();
        let attrs = if let Some(file) = &file {
            let attrs = Attrs::of(file).map_err(io)?;
            let known = self.source.looked.extents(&stat, self.source.writer).map_err(StreamError::Store)?;
            if let Some(known) = known.filter(|_| !attrs.metacopy) {
                extents = known;
            } else if !attrs.metacopy && stat.size > 0 {
                let before = self.ingest.bytes;
                let read = self.ingest.file(file, stat.size, stat.allocated);
                self.reads.files += 1;
                self.reads.bytes += self.ingest.bytes - before;
                extents = read?;
            }
            attrs
        } else if wanted.name.is_empty() {
            Attrs::of(dir).map_err(io)?
        } else {
            let name = CString::new(&wanted.name[..]).map_err(|error| StreamError::Read(error.into()))?;
            if stat.kind == FileType::Symlink {
                let path = rustix::fs::readlinkat(dir, &name, Vec::new()).map_err(io)?;
                extents = target(path.as_bytes());
            }
            Attrs::at(dir, &name).map_err(io)?
        };
        // A store through a map leaves no trace here; such files are found by `maps` and never clean.
        Ok(if look().is_ok_and(|after| after.same_state(&stat)) {
            Outcome::Read(Box::new(Facts { stat, attrs, extents }))
        } else {
            Outcome::Restless
        })
    }

    fn failed(&self, wanted: &Wanted, error: Errno) -> Error {
        use std::os::unix::ffi::OsStrExt;
        let path = self.source.shown.join(std::ffi::OsStr::from_bytes(&join(&wanted.dir, &wanted.name)));
        unreadable("read the workspace's file", &path, error, false)
    }
}

fn io(error: Errno) -> StreamError {
    StreamError::Read(error.into())
}

fn is_gone(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE | Errno::NXIO | Errno::ISDIR)
}
