//! The journal: every change of a workspace, one after the other, with the bytes of small writes. What was written
//! to it survives the death of the process; what was synced survives a power cut.
//!
//! It consists of segments. A segment begins with a [`Head`]; the first one of a journal also with the state that
//! it starts from. Each record carries a checksum over itself and all before it in its segment, so the first bad
//! one ends what can be believed.
//!
//! A record: length of the change and of the bytes behind it (4 bytes each, little-endian), the request it answers
//! (8), the checksum (8), the change (postcard), the bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

use super::content::Place;
use super::op::Op;

/// The version of what stands in a journal.
pub const VERSION: u32 = 1;
/// Bytes before a change.
pub(super) const RECORD: usize = 24;
/// A segment that has so many bytes is followed by another.
const SEGMENT: u64 = 32 << 20;
/// How far the space of a segment is taken beforehand.
const AHEAD: u64 = 4 << 20;
/// What a change that frees space may still use where others get ENOSPC.
const RESERVE: u64 = 256 << 10;

/// What a segment begins with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub version: u32,
    /// The segment's number.
    pub segment: u32,
    /// Whether the state before stands here, so that nothing of earlier segments is needed but bytes.
    pub begins: bool,
    /// Changes in the journal before this segment.
    pub changes: u64,
    /// The commit that the state is based on.
    pub base: [u8; 32],
    /// See [`super::state::State`].
    pub random: u32,
    pub fresh: u32,
    pub next: u32,
    /// Which start of the machine this was written in: what was not synced is there only in the same one.
    pub boot: String,
}

/// The end of the journal, where it grows.
pub struct Journal {
    folder: PathBuf,
    head: Head,
    file: Arc<File>,
    /// The last record's checksum.
    check: u64,
    end: u64,
    /// Space that is taken already ends here.
    taken: u64,
    /// Changes since the journal began.
    pub changes: u64,
    /// Segments with something that was not synced, and whether a name of one is new.
    unsynced: Vec<Arc<File>>,
    new_names: bool,
    /// Bytes in segments before this one, since the journal began.
    earlier: u64,
    buffer: Vec<u8>,
}

/// What has to be synced to make the journal durable up to now.
pub struct Unsynced {
    files: Vec<Arc<File>>,
    folder: Option<PathBuf>,
}

impl Unsynced {
    /// Syncs it.
    ///
    /// # Errors
    /// The file system's.
    pub fn sync(&self) -> io::Result<()> {
        for file in &self.files {
            file.sync_data()?;
        }
        if let Some(folder) = &self.folder {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    }
}

/// A segment's file name.
pub(super) fn name(segment: u32) -> String {
    format!("{segment:08}")
}

/// A record's checksum, given that of the one before.
pub(super) fn checksum(before: u64, lengths: &[u8], parts: &[&[u8]]) -> u64 {
    let mut hasher = Xxh3::with_seed(before);
    hasher.update(lengths);
    for part in parts {
        hasher.update(part);
    }
    hasher.digest()
}

impl Journal {
    /// Begins a segment under a temporary name. Nothing reads it before [`Journal::publish`].
    ///
    /// # Errors
    /// The file system's.
    pub fn create(folder: &Path, head: Head) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(folder.join("new"))?;
        let mut journal = Journal {
            folder: folder.to_owned(),
            changes: head.changes,
            file: Arc::new(file),
            check: 0,
            end: 0,
            taken: 0,
            unsynced: Vec::new(),
            new_names: false,
            earlier: 0,
            buffer: Vec::new(),
            head,
        };
        let head = postcard::to_allocvec(&journal.head).map_err(io::Error::other)?;
        journal.write(0, &head, &[])?;
        Ok(journal)
    }

    /// Gives a segment its name. `sync`: all of it is on the disk first, and so is the name afterwards.
    ///
    /// # Errors
    /// The file system's.
    pub fn publish(&mut self, sync: bool) -> io::Result<()> {
        if sync {
            self.file.sync_data()?;
        }
        std::fs::rename(self.folder.join("new"), self.folder.join(name(self.head.segment)))?;
        self.new_names = true;
        if sync {
            self.unsynced().sync()?;
        }
        Ok(())
    }

    /// Goes on where the last of the `segments` ends, which were read. Whether they were synced is not known.
    pub(super) fn resume(
        folder: &Path,
        head: Head,
        segments: Vec<Arc<File>>,
        check: u64,
        end: u64,
        changes: u64,
    ) -> Self {
        let file = segments.last().expect("a journal has a segment").clone();
        Journal {
            folder: folder.to_owned(),
            head,
            check,
            end,
            taken: end,
            changes,
            unsynced: segments,
            new_names: true,
            earlier: 0,
            file,
            buffer: Vec::new(),
        }
    }

    /// The segment that grows, and its number.
    pub fn file(&self) -> (u32, &Arc<File>) {
        (self.head.segment, &self.file)
    }

    /// Bytes written since the journal began.
    pub fn written(&self) -> u64 {
        self.earlier + self.end
    }

    /// The folder that it is in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What its last segment began with.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Writes a change with the bytes that belong to it, and says where those are. `request` is the kernel's
    /// request that it answers, or 0; `frees`: it may use the last space.
    ///
    /// # Errors
    /// The file system's; the change is not in the journal then.
    pub fn append(&mut self, request: u64, op: &Op, bytes: &[u8], frees: bool) -> io::Result<Place> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        let encoded = postcard::to_extend(op, buffer).map_err(io::Error::other)?;
        let needed = (RECORD + encoded.len() + bytes.len()) as u64;
        let written = self.room(needed, frees).and_then(|()| self.write(request, &encoded, bytes));
        self.buffer = encoded;
        let offset = written?;
        self.changes += 1;
        Ok(Place { file: self.head.segment, offset })
    }

    /// Goes on in a new segment when this one is long enough. Returns the new one.
    ///
    /// # Errors
    /// The file system's; then the journal goes on in the old one.
    pub fn roll(&mut self, head: impl FnOnce(Head) -> Head) -> io::Result<Option<(u32, Arc<File>)>> {
        if self.end < SEGMENT {
            return Ok(None);
        }
        let old = self.head.clone();
        let head = head(Head { segment: old.segment + 1, begins: false, changes: self.changes, ..old });
        let mut next = Journal::create(&self.folder, head)?;
        next.publish(false)?;
        next.unsynced.append(&mut self.unsynced);
        next.earlier = self.written();
        next.buffer = std::mem::take(&mut self.buffer);
        *self = next;
        Ok(Some((self.head.segment, self.file.clone())))
    }

    /// What is to be synced; what is written from now on is not part of it.
    pub fn unsynced(&mut self) -> Unsynced {
        let folder = std::mem::take(&mut self.new_names).then(|| self.folder.clone());
        Unsynced { files: std::mem::take(&mut self.unsynced), folder }
    }

    /// Takes space beforehand, so that one write in a thousand meets a full disk, and there is some left to delete.
    fn room(&mut self, needed: u64, frees: bool) -> io::Result<()> {
        let reserve = if frees { 0 } else { RESERVE };
        if self.end + needed + reserve <= self.taken {
            return Ok(());
        }
        let mut refused = None;
        for ahead in [AHEAD, RESERVE] {
            let len = needed + ahead.max(reserve);
            match rustix::fs::fallocate(&*self.file, FallocateFlags::KEEP_SIZE, self.end, len) {
                Ok(()) => {
                    self.taken = self.end + len;
                    return Ok(());
                }
                Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(()),
                Err(error) => refused = Some(error),
            }
        }
        // What frees space is tried with what there is.
        if frees { Ok(()) } else { Err(refused.expect("there was a try").into()) }
    }

    /// Writes a record; returns where the bytes behind the change are.
    fn write(&mut self, request: u64, change: &[u8], bytes: &[u8]) -> io::Result<u64> {
        let mut head = [0; RECORD];
        head[..4].copy_from_slice(&(change.len() as u32).to_le_bytes());
        head[4..8].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        head[8..16].copy_from_slice(&request.to_le_bytes());
        let check = checksum(self.check, &head[..16], &[change, bytes]);
        head[16..].copy_from_slice(&check.to_le_bytes());
        write_at(self.file.as_fd(), &[&head, change, bytes], self.end)?;
        if self.unsynced.last().is_none_or(|last| !Arc::ptr_eq(last, &self.file)) {
            self.unsynced.push(self.file.clone());
        }
        let place = self.end + (RECORD + change.len()) as u64;
        self.check = check;
        self.end = place + bytes.len() as u64;
        Ok(place)
    }
}

/// All the parts one after the other, in one call where the system takes them in one.
fn write_at(file: std::os::fd::BorrowedFd<'_>, parts: &[&[u8]], mut offset: u64) -> io::Result<()> {
    let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
    let mut left = &mut slices[..];
    IoSlice::advance_slices(&mut left, 0);
    while !left.is_empty() {
        match rustix::io::pwritev(file, left, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                IoSlice::advance_slices(&mut left, written);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
