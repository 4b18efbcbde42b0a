//! The operation log on disk: append-only, checked record by record, the truth that the database is rebuilt
//! from.
//!
//! ```text
//! header  32  "ATOLLOG1", version u32, zero u32, generation u64, xxh3 of the 24 bytes before u64
//! record  16  "RCRD", payload's length u32, xxh3 of the payload u64 (seed: generation xor the record's offset)
//!             payload
//! ```
//! The seed keeps a copy of a log that is stored as somebody's file from being taken for records.

mod record;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) use record::{Collected, NumRun, PackId, Published, Record, changes, put_changes};

use crate::fault::{self, Point};
use crate::{Code, Error, Result};

const MAGIC: &[u8; 8] = b"ATOLLOG1";
const RECORD_MAGIC: &[u8; 4] = b"RCRD";
const VERSION: u32 = 1;
/// Where the first record begins.
pub(crate) const HEADER_LEN: u64 = 32;
const RECORD_HEADER_LEN: u64 = 16;

/// An open operation log.
#[derive(Clone)]
pub(crate) struct Log {
    path: PathBuf,
    file: Arc<File>,
    generation: u64,
}

/// What stands at a place in the log.
pub(crate) enum At {
    /// A whole record: its payload, and where the next one begins.
    Record { payload: Vec<u8>, next: u64 },
    /// The end.
    End,
    /// Bytes that are no record: what a writer that died left, or damage. `resumes` is where the next whole
    /// record begins, if there is one (then it is damage: nothing is written after a torn record).
    Torn { resumes: Option<u64> },
}

impl Log {
    /// Makes an empty log at `path`, which must not exist. The caller syncs.
    pub(crate) fn create(path: &Path, generation: u64) -> Result<Log> {
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|source| Error::io("create the operation log", path, source))?;
        let mut header = Vec::with_capacity(HEADER_LEN as usize);
        header.extend_from_slice(MAGIC);
        header.extend_from_slice(&VERSION.to_le_bytes());
        header.extend_from_slice(&0u32.to_le_bytes());
        header.extend_from_slice(&generation.to_le_bytes());
        header.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(&header).to_le_bytes());
        let log = Log { path: path.to_owned(), file: Arc::new(file), generation };
        log.write(&header, 0)?;
        Ok(log)
    }

    /// Opens the log at `path`.
    ///
    /// # Errors
    /// `Damaged` without a right header, `NewerFormat` when a later program wrote it.
    pub(crate) fn open(path: &Path) -> Result<Log> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(path)
            .or_else(|_| File::open(path))
            .map_err(|source| Error::io("open the operation log", path, source))?;
        let mut header = [0; HEADER_LEN as usize];
        let read = file.read_exact_at(&mut header, 0);
        let checksum = u64::from_le_bytes(header[24..].try_into().expect("eight bytes"));
        if read.is_err() || &header[..8] != MAGIC || checksum != xxhash_rust::xxh3::xxh3_64(&header[..24]) {
            return Err(Error::damaged(format!(
                "The operation log {} has no right header; put back a copy of the store, or of this file.",
                path.display()
            )));
        }
        if u32::from_le_bytes(header[8..12].try_into().expect("four bytes")) > VERSION {
            return Err(Error::new(
                Code::NewerFormat,
                format!(
                    "{} was written by a newer version of atoll; update this program to use the store.",
                    path.display()
                ),
            ));
        }
        let generation = u64::from_le_bytes(header[16..24].try_into().expect("eight bytes"));
        Ok(Log { path: path.to_owned(), file: Arc::new(file), generation })
    }

    /// Changes when the log is rewritten.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(crate) fn len(&self) -> Result<u64> {
        Ok(self.file.metadata().map_err(|source| Error::io("look at", &self.path, source))?.len())
    }

    fn seed(&self, at: u64) -> u64 {
        self.generation ^ at
    }

    /// Appends a record at `at`, the end, and returns the new end.
    pub(crate) fn append(&self, at: u64, payload: &[u8]) -> Result<u64> {
        let len = u32::try_from(payload.len()).map_err(|_| {
            Error::new(
                Code::Unsupported,
                "An operation's record would be longer than 4 GiB; divide the operation.",
            )
        })?;
        let mut bytes = Vec::with_capacity(payload.len() + RECORD_HEADER_LEN as usize);
        bytes.extend_from_slice(RECORD_MAGIC);
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&xxhash_rust::xxh3::xxh3_64_with_seed(payload, self.seed(at)).to_le_bytes());
        bytes.extend_from_slice(payload);
        self.write(&bytes, at)?;
        Ok(at + bytes.len() as u64)
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<()> {
        let write = || {
            fault::hit(Point::LogWrite)?;
            self.file.write_all_at(bytes, at)?;
            fault::hit(Point::LogWritten)
        };
        write().map_err(|source| Error::io("write", &self.path, source))
    }

    pub(crate) fn sync(&self) -> Result<()> {
        let sync = || {
            fault::hit(Point::LogSync)?;
            Ok(rustix::fs::fdatasync(&self.file)?)
        };
        sync().map_err(|source| Error::io("sync", &self.path, source))
    }

    /// Cuts everything off from `at`, durably: what stood there was never acknowledged.
    pub(crate) fn cut(&self, at: u64) -> Result<()> {
        let cut = || {
            self.file.set_len(at)?;
            self.file.sync_data()
        };
        cut().map_err(|source| Error::io("cut the torn end off", &self.path, source))
    }

    /// Saves what stands from `at` beside the log, before it is cut while the database is being rebuilt (then
    /// nobody can say that it was never acknowledged).
    pub(crate) fn save_tail(&self, at: u64) -> Result<PathBuf> {
        let mut tail = vec![0; self.len()?.saturating_sub(at) as usize];
        let path = self.path.with_file_name(format!("oplog.cut-{at}"));
        self.file
            .read_exact_at(&mut tail, at)
            .and_then(|()| std::fs::write(&path, &tail))
            .map_err(|source| Error::io("save the torn end of the log to", &path, source))?;
        Ok(path)
    }

    /// The bytes of a pack inside the log.
    pub(crate) fn read_blob(&self, at: u64, len: u64) -> Result<Vec<u8>> {
        let mut blob = vec![0; len as usize];
        self.read(&mut blob, at)?;
        Ok(blob)
    }

    /// What stands at `at`.
    pub(crate) fn at(&self, at: u64) -> Result<At> {
        let len = self.len()?;
        if at >= len {
            return Ok(At::End);
        }
        if let Some(payload) = self.record(at, len)? {
            let next = at + RECORD_HEADER_LEN + payload.len() as u64;
            return Ok(At::Record { payload, next });
        }
        Ok(At::Torn { resumes: self.resume(at + 1, len)? })
    }

    fn record(&self, at: u64, len: u64) -> Result<Option<Vec<u8>>> {
        if at + RECORD_HEADER_LEN > len {
            return Ok(None);
        }
        let mut header = [0; RECORD_HEADER_LEN as usize];
        self.read(&mut header, at)?;
        let payload_len = u64::from(u32::from_le_bytes(header[4..8].try_into().expect("four bytes")));
        if &header[..4] != RECORD_MAGIC || at + RECORD_HEADER_LEN + payload_len > len {
            return Ok(None);
        }
        let mut payload = vec![0; payload_len as usize];
        self.read(&mut payload, at + RECORD_HEADER_LEN)?;
        let checksum = u64::from_le_bytes(header[8..].try_into().expect("eight bytes"));
        Ok((checksum == xxhash_rust::xxh3::xxh3_64_with_seed(&payload, self.seed(at))).then_some(payload))
    }

    fn resume(&self, mut from: u64, len: u64) -> Result<Option<u64>> {
        let mut window = vec![0; 1 << 16];
        while from + RECORD_HEADER_LEN <= len {
            let take = window.len().min((len - from) as usize);
            self.read(&mut window[..take], from)?;
            for at in window[..take]
                .windows(4)
                .enumerate()
                .filter(|(_, four)| four == RECORD_MAGIC)
                .map(|(at, _)| at)
            {
                if self.record(from + at as u64, len)?.is_some() {
                    return Ok(Some(from + at as u64));
                }
            }
            from += (take - 3) as u64;
        }
        Ok(None)
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> Result<()> {
        self.file.read_exact_at(buffer, at).map_err(|source| Error::io("read", &self.path, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_end_and_damage_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("oplog");
        let log = Log::create(&path, 42).unwrap();
        let second = log.append(HEADER_LEN, b"first").unwrap();
        let end = log.append(second, b"second").unwrap();
        let log = Log::open(&path).unwrap();
        assert!(
            matches!(log.at(HEADER_LEN).unwrap(), At::Record { payload, next } if payload == b"first" && next == second)
        );
        assert!(matches!(log.at(end).unwrap(), At::End));
        for cut in second + 1..end {
            log.file.set_len(cut).unwrap();
            assert!(matches!(log.at(second).unwrap(), At::Torn { resumes: None }), "cut at {cut}");
        }
        log.cut(second).unwrap();
        log.append(second, b"second").unwrap();
        log.file.write_all_at(b"F", HEADER_LEN + RECORD_HEADER_LEN).unwrap();
        assert!(matches!(log.at(HEADER_LEN).unwrap(), At::Torn { resumes: Some(at) } if at == second));
    }

    #[test]
    fn a_log_inside_a_record_is_not_read_as_records() {
        let dir = tempfile::tempdir().unwrap();
        let inner = Log::create(&dir.path().join("inner"), 42).unwrap();
        inner.append(HEADER_LEN, b"payload").unwrap();
        let bytes = std::fs::read(dir.path().join("inner")).unwrap();
        let log = Log::create(&dir.path().join("oplog"), 42).unwrap();
        let end = log.append(HEADER_LEN, &bytes).unwrap();
        log.file.write_all_at(b"x", HEADER_LEN + 4).unwrap();
        assert!(matches!(log.at(HEADER_LEN).unwrap(), At::Torn { resumes: None }));
        assert_eq!(log.len().unwrap(), end);
    }
}
