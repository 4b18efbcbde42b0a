//! A live workspace: a writable file system over an immutable tree. It knows no FUSE: an adapter translates.
//!
//! Every change is an `Op`. It is checked against the `State`, written to the `Journal`, applied, and only then
//! answered: so the journal is the workspace, whatever ends the process. Bytes of small writes stand in the journal,
//! those of large ones in the data area; neither is overwritten while a state shows it.

mod apply;
mod area;
mod capture;
mod content;
mod durable;
mod files;
mod journal;
mod list;
mod names;
mod node;
mod op;
mod replay;
mod runs;
mod state;
mod xattrs;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_store::tree::{Inode, Time};
use atoll_store::{Code, Error, Ino};
use parking_lot::Mutex;
use rustix::io::Errno;

use area::{AREA, Area};
use content::Freed;
use journal::Journal;
use node::Node;
use op::Op;
use state::State;

pub use capture::Frozen;
pub use durable::Options;
pub use files::Part;
pub use list::Listed;
pub use names::{New, RenameMode};
pub use op::Attrs;
pub use replay::Lost;
pub use state::Base;
pub use xattrs::Having;

/// An answer, or the errno that the caller gets.
pub type Reply<T> = Result<T, Errno>;

/// On whose behalf something is done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Who {
    /// The number of the request, by which it is known again when it is sent twice; 0: it will not be.
    pub request: u64,
    /// The user that a new file belongs to.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// What `stat` shows of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its number.
    pub ino: Ino,
    /// Its record; `nlink` 0: it has no name.
    pub inode: Inode,
    /// Last access, as far as somebody set it.
    pub atime: Time,
    /// Bytes of it that are no holes.
    pub allocated: u64,
}

/// What is to be answered to a request that was done already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    /// The file that it made, linked or changed.
    File(Ino),
    /// How many bytes it wrote.
    Written(u64),
    /// That it was done.
    Nothing,
}

/// A live workspace. All methods may be called from several threads.
pub struct Live {
    inner: Mutex<Inner>,
    /// One sync at a time; the others wait for it, and most find that it was theirs too.
    syncing: Mutex<()>,
    /// Changes that are on the disk.
    durable: AtomicU64,
    listings: list::Listings,
    options: Options,
}

struct Inner {
    state: State,
    journal: Journal,
    area: Area,
    /// The files that bytes are in, by number.
    files: HashMap<u32, Arc<File>>,
    /// What changes have let go of since the last time it was looked at.
    freed: Vec<Freed>,
    /// What was let go before the sync that is under way, or the next.
    unsynced: Vec<Freed>,
    /// Bytes of each segment that are in use.
    used: HashMap<u32, u64>,
    /// How often the kernel knows a file.
    held: HashMap<Ino, u64>,
    /// The last requests that changed something.
    requests: VecDeque<(u64, Op)>,
    /// Whoever reads bytes without the lock, or has a frozen state, has a copy: until it is gone nothing that was
    /// let go is used again.
    pins: Arc<()>,
    /// It is not known how often the kernel knows files: those without a name stay until the next start.
    orphans_stay: bool,
    /// See [`Options::durable`].
    durable: bool,
    /// See [`Options::boot`].
    boot: String,
    /// How many changes there were with the last that a sync is for.
    last_change: u64,
    /// Nothing may follow: a change could not be applied, or a disk refused a sync.
    broken: bool,
}

impl Live {
    /// What `stat` shows.
    ///
    /// # Errors
    /// ENOENT when there is no such file.
    pub fn stat(&self, ino: Ino) -> Reply<Stat> {
        self.inner.lock().stat(ino)
    }

    /// What a name is; `None` when there is none.
    ///
    /// # Errors
    /// ENOENT for a folder that is gone, ENOTDIR, ENAMETOOLONG.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Reply<Option<Stat>> {
        names::check(name)?;
        let inner = self.inner.lock();
        if !inner.state.is_dir(dir).map_err(failed)? {
            return Err(Errno::NOTDIR);
        }
        match inner.state.lookup(dir, name).map_err(failed)? {
            Some(dirent) => inner.stat(dirent.ino).map(Some),
            None => Ok(None),
        }
    }

    /// The folder that a folder is in; the root's is itself.
    ///
    /// # Errors
    /// ENOENT when the folder has no name any more.
    pub fn parent(&self, dir: Ino) -> Reply<Ino> {
        if dir == Ino::ROOT {
            return Ok(dir);
        }
        let parent = self.inner.lock().state.parent(dir).map_err(failed)?;
        parent.map(|(parent, _)| parent).ok_or(Errno::NOENT)
    }

    /// The kernel learned of a file once more: until it is released as often, the file lives without a name.
    pub fn hold(&self, ino: Ino) {
        *self.inner.lock().held.entry(ino).or_insert(0) += 1;
    }

    /// The kernel forgot what it learned `count` times.
    pub fn release(&self, ino: Ino, count: u64) {
        let mut inner = self.inner.lock();
        let Some(held) = inner.held.get_mut(&ino) else { return };
        *held = held.saturating_sub(count);
        if *held > 0 {
            return;
        }
        inner.held.remove(&ino);
        if inner.orphans_stay {
            return;
        }
        let orphan = inner.state.nodes.get(&ino).is_some_and(|node| node.inode.nlink == 0);
        if orphan && let Err(error) = inner.make(0, Op::Reap { ino }, &[], true) {
            // It is taken away the next time that the workspace is opened.
            log::warn!("The space of a deleted file is not free yet: {error}.");
        }
    }

    /// What a request did, when it is one of the last that changed something: it was sent again, and must not be
    /// done twice.
    pub fn done(&self, request: u64) -> Option<Done> {
        let inner = self.inner.lock();
        inner.requests.iter().rev().find(|(done, _)| *done == request).map(|(_, op)| match op {
            Op::Create { ino, .. } | Op::Link { ino, .. } | Op::Set { ino, .. } => Done::File(*ino),
            Op::Write { len, .. } => Done::Written(*len),
            _ => Done::Nothing,
        })
    }

    fn now(&self) -> Time {
        (self.options.clock)()
    }
}

impl Inner {
    fn node(&self, ino: Ino) -> Reply<Arc<Node>> {
        self.state.node(ino).map_err(failed)?.ok_or(Errno::NOENT)
    }

    /// Writes a change down and applies it.
    fn make(&mut self, request: u64, op: Op, bytes: &[u8], frees: bool) -> Reply<()> {
        if self.broken {
            return Err(Errno::IO);
        }
        let mut written = self.journal.append(request, &op, bytes, frees);
        if written.as_ref().is_err_and(is_full) && self.reclaim() {
            written = self.journal.append(request, &op, bytes, frees);
        }
        let place = written.map_err(refused)?;
        if let Op::Write { place: None, len, .. } = &op {
            *self.used.entry(place.file).or_insert(0) += len;
        }
        if let Err(error) = self.state.apply(&op, Some(place), &mut self.freed) {
            // It was checked before: only the base can have failed, between the two. The next start reads on.
            self.broken = true;
            return Err(failed(error));
        }
        self.last_change = self.journal.changes;
        // In memory there is no sync that would do it.
        if !self.durable && self.freed.len() > 1024 {
            let freed = std::mem::take(&mut self.freed);
            self.unsynced.extend(freed);
            self.recycle_unsynced();
        }
        if request != 0 {
            if self.requests.len() == replay::REMEMBERED {
                self.requests.pop_front();
            }
            self.requests.push_back((request, op));
        }
        let (random, fresh, next) = (self.state.random, self.state.fresh, self.state.next);
        match self.journal.roll(|head| journal::Head { random, fresh, next, ..head }) {
            Ok(Some((segment, file))) => {
                self.files.insert(segment, file);
            }
            Ok(None) => {}
            Err(error) => log::debug!("The journal goes on in a long segment: {error}."),
        }
        Ok(())
    }

    /// Freed bytes that nobody may see any more are free for others.
    fn recycle(&mut self, freed: Vec<Freed>) {
        for Freed { place, len } in freed {
            if place.file == AREA {
                self.area.free(place.offset, len);
            } else if let Some(used) = self.used.get_mut(&place.file) {
                *used = used.saturating_sub(len);
            }
        }
    }
}

/// The store's error as the caller sees it; the sentence is for the log.
fn failed(error: Error) -> Errno {
    log::error!("{error}");
    match error.code {
        Code::NoSpace => Errno::NOSPC,
        _ => Errno::IO,
    }
}

/// Whether the host has no space left.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// A write of the journal or the area that the host refused.
fn refused(error: io::Error) -> Errno {
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    if !matches!(errno, Errno::NOSPC | Errno::DQUOT) {
        log::error!("A change could not be written to the workspace's journal: {error}.");
    }
    errno
}

/// Where a workspace's files are in its folder.
fn area_path(folder: &std::path::Path) -> PathBuf {
    folder.join("data")
}

impl std::fmt::Debug for Live {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Live").field("durable", &self.durable.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}
