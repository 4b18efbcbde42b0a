//! Writes a pack: in memory while it is small, then in a file that is locked until it is published, so that
//! cleaners (which take only what they can lock) leave it alone.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::fs::{FlockOperation, flock};

use super::format::{Coding, Entry, Frame, HEADER_LEN, HEADER_MAGIC, Kind, Table, VERSION};
use super::{EMBED_MAX, code, file_name, unfinished_name};
use crate::fault::{self, Point};
use crate::{Error, Num, Result};

/// A pack that is being written.
pub(crate) struct Builder {
    dir: PathBuf,
    memory: Vec<u8>,
    file: Option<Unfinished>,
    frames: Vec<Frame>,
    len: u64,
    syncer: Option<Syncer>,
    unsynced: u64,
}

/// So often a file that grows is synced in the background, so that the last sync has little left to do.
const SYNC_EVERY: u64 = 16 << 20;

/// A locked file; removed when dropped before it is published.
struct Unfinished {
    id: u64,
    path: PathBuf,
    file: Arc<File>,
    keep: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.keep {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A complete pack on its way into the operation log.
pub(crate) struct Finished {
    pub(crate) table: Table,
    pub(crate) packed: Packed,
    pub(crate) len: u64,
    file: Option<Unfinished>,
}

/// Where a finished pack is.
pub(crate) enum Packed {
    /// Here; it goes into the operation log.
    Memory(Vec<u8>),
    /// In the file of this id, synced.
    File(u64),
}

impl Finished {
    /// Keeps the file: something durable names it now.
    pub(crate) fn keep(mut self) {
        if let Some(file) = &mut self.file {
            file.keep = true;
        }
    }
}

fn header() -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_LEN);
    header.extend_from_slice(HEADER_MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&0u32.to_le_bytes());
    header
}

impl Builder {
    /// A pack for the folder `dir`; `sync` says whether it must reach the disk before it is named.
    pub(crate) fn new(dir: &Path, sync: bool) -> Builder {
        let memory = header();
        let syncer = sync.then(Syncer::default);
        Builder {
            dir: dir.to_owned(),
            len: memory.len() as u64,
            memory,
            file: None,
            frames: Vec::new(),
            syncer,
            unsynced: 0,
        }
    }

    /// Makes it a file even when it stays small.
    pub(crate) fn into_file(mut self) -> Result<Builder> {
        self.spill()?;
        Ok(self)
    }

    fn spill(&mut self) -> Result<()> {
        let file = create_locked(&self.dir)?;
        write(&file, &self.memory, 0)?;
        self.memory = Vec::new();
        self.file = Some(file);
        Ok(())
    }

    /// The bytes written so far.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was appended.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Appends a frame and returns its index.
    pub(crate) fn append(
        &mut self,
        kind: Kind,
        coding: Coding,
        raw: usize,
        stored: &[u8],
        base: Num,
        depth: u8,
    ) -> Result<u32> {
        let frame = Frame {
            offset: self.len,
            stored: stored.len() as u32,
            raw: raw as u32,
            checksum: xxhash_rust::xxh3::xxh3_64(stored),
            base,
            kind,
            coding,
            depth,
        };
        if self.file.is_none() && self.memory.len() + stored.len() > EMBED_MAX {
            self.spill()?;
        }
        match &self.file {
            None => self.memory.extend_from_slice(stored),
            Some(file) => {
                write(file, stored, self.len)?;
                self.unsynced += stored.len() as u64;
                if self.unsynced > SYNC_EVERY {
                    self.unsynced = 0;
                    if let Some(syncer) = &mut self.syncer {
                        syncer.start(&file.file)?;
                    }
                }
            }
        }
        self.len += stored.len() as u64;
        self.frames.push(frame);
        Ok((self.frames.len() - 1) as u32)
    }

    /// A frame's record.
    pub(crate) fn frame(&self, index: u32) -> Frame {
        self.frames[index as usize]
    }

    /// The raw bytes of a frame that was appended before.
    pub(crate) fn raw(&self, index: u32, base: Option<&[u8]>) -> Result<Vec<u8>> {
        let frame = self.frame(index);
        let mut stored = vec![0; frame.stored as usize];
        match &self.file {
            None => stored.copy_from_slice(&self.memory[frame.offset as usize..][..frame.stored as usize]),
            Some(file) => file
                .file
                .read_exact_at(&mut stored, frame.offset)
                .map_err(|source| Error::io("read the unfinished pack", &file.path, source))?,
        }
        code::decode(&frame, &stored, base)
            .map_err(|why| Error::damaged(format!("A pack that was just written is damaged: {why}.")))
    }

    /// Completes the pack with the table of its objects (sorted by number). A file is synced, named and its
    /// folder synced.
    pub(crate) fn finish(mut self, entries: &[(Num, Entry)]) -> Result<Finished> {
        let table = Table::new(entries, std::mem::take(&mut self.frames));
        let tail = table.encode(self.len);
        let len = self.len + tail.len() as u64;
        let Some(mut file) = self.file.take() else {
            self.memory.extend_from_slice(&tail);
            return Ok(Finished { table, packed: Packed::Memory(self.memory), len, file: None });
        };
        write(&file, &tail, self.len)?;
        let sync = self.syncer.is_some();
        if let Some(mut syncer) = self.syncer.take() {
            let synced = syncer.wait().and_then(|()| {
                fault::hit(Point::PackSync)?;
                Ok(rustix::fs::fdatasync(&file.file)?)
            });
            synced.map_err(|source| Error::io("sync the pack", &file.path, source))?;
        }
        let path = self.dir.join(file_name(file.id));
        fault::hit(Point::PackRename)?;
        std::fs::rename(&file.path, &path).map_err(|source| Error::io("name the pack", &path, source))?;
        file.path = path;
        if sync {
            sync_dir(&self.dir)?;
        }
        Ok(Finished { table, packed: Packed::File(file.id), len, file: Some(file) })
    }
}

/// Syncs a file in the background. Every result is collected: the kernel reports a failed write only once.
#[derive(Default)]
struct Syncer {
    running: Option<JoinHandle<io::Result<()>>>,
}

impl Syncer {
    fn start(&mut self, file: &Arc<File>) -> Result<()> {
        if self.running.as_ref().is_some_and(|running| !running.is_finished()) {
            return Ok(());
        }
        self.wait().map_err(|source| {
            Error::new(crate::Code::Io, format!("A pack could not be synced: {source}."))
        })?;
        let file = Arc::clone(file);
        self.running = Some(std::thread::spawn(move || Ok(rustix::fs::fdatasync(&file)?)));
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        match self.running.take().map(JoinHandle::join) {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that synced it panicked")),
        }
    }
}

fn write(file: &Unfinished, bytes: &[u8], at: u64) -> Result<()> {
    fault::hit(Point::PackWrite)?;
    file.file.write_all_at(bytes, at).map_err(|source| Error::io("write the pack", &file.path, source))
}

fn sync_dir(dir: &Path) -> Result<()> {
    fault::hit(Point::DirSync)?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|source| Error::io("sync the folder", dir, source))
}

fn create_locked(dir: &Path) -> Result<Unfinished> {
    loop {
        let id = getrandom::u64()
            .map_err(|error| Error::new(crate::Code::Io, format!("No random numbers: {error}.")))?;
        let path = dir.join(unfinished_name(id));
        if dir.join(file_name(id)).exists() {
            continue;
        }
        fault::hit(Point::PackCreate)?;
        let file = match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            Err(source) => return Err(Error::io("create the pack", &path, source)),
        };
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| Error::io("lock the pack", &path, error.into()))?;
        // A cleaner can have locked and removed it in between.
        if file.metadata().map_err(|source| Error::io("look at the pack", &path, source))?.nlink() > 0 {
            return Ok(Unfinished { id, path, file: Arc::new(file), keep: false });
        }
    }
}

/// Opens and locks a pack file when nobody else holds its lock.
pub(crate) fn lock_if_free(path: &Path) -> Result<Option<File>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(Error::io("open the pack", path, source)),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(Error::io("lock the pack", path, error.into())),
    }
}
