//! Reads a pack, wherever it stands.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::code;
use super::format::{Coding, Frame, HEADER_LEN, HEADER_MAGIC, TRAILER_LEN, Table};
use crate::{Code, Error, Result};

/// An open pack: a file, or a part of the operation log.
pub(crate) struct PackFile {
    name: String,
    file: Arc<File>,
    start: u64,
    table: Table,
}

impl PackFile {
    /// Opens the pack that stands in `file` from `start`, `len` bytes long.
    ///
    /// # Errors
    /// `Damaged` when its table or trailer is not what was written; frames are checked when they are read.
    pub(crate) fn open(name: String, file: Arc<File>, start: u64, len: u64) -> Result<PackFile> {
        let table = Self::read_table(&file, start, len).map_err(|error| match error.code {
            Code::Damaged | Code::NewerFormat => {
                Error::new(error.code, format!("The pack {name} cannot be used: {}.", error.message))
            }
            _ => Error { message: format!("The pack {name} could not be read: {}", error.message), ..error },
        })?;
        Ok(PackFile { name, file, start, table })
    }

    fn read_table(file: &File, start: u64, len: u64) -> Result<Table> {
        let short = || Error::damaged("it is too short");
        let trailer_at =
            len.checked_sub((TRAILER_LEN + HEADER_LEN) as u64).ok_or_else(short)? + HEADER_LEN as u64;
        let mut trailer = [0; TRAILER_LEN];
        read_at(file, &mut trailer, start + trailer_at)?;
        let offset = Table::offset(&trailer, len)?;
        let mut header = [0; HEADER_LEN];
        read_at(file, &mut header, start)?;
        if &header[..8] != HEADER_MAGIC {
            return Err(Error::damaged("it has no header"));
        }
        let mut table = vec![0; (trailer_at - offset) as usize];
        read_at(file, &mut table, start + offset)?;
        Table::decode(&table, &trailer)
    }

    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// A frame's stored bytes, checked.
    pub(crate) fn stored(&self, frame: &Frame) -> Result<Vec<u8>> {
        let mut stored = vec![0; frame.stored as usize];
        read_at(&self.file, &mut stored, self.start + frame.offset).map_err(|error| Error {
            message: format!("The pack {} could not be read: {}", self.name, error.message),
            ..error
        })?;
        if xxhash_rust::xxh3::xxh3_64(&stored) != frame.checksum {
            return Err(self.damaged(frame, "its bytes do not match their checksum"));
        }
        Ok(stored)
    }

    /// A frame's raw bytes. `base` gives the raw form of the object that a delta stands on.
    pub(crate) fn raw(&self, frame: &Frame, base: Option<&[u8]>) -> Result<Vec<u8>> {
        let mut stored = vec![0; frame.stored as usize];
        read_at(&self.file, &mut stored, self.start + frame.offset).map_err(|error| Error {
            message: format!("The pack {} could not be read: {}", self.name, error.message),
            ..error
        })?;
        if frame.coding == Coding::Raw {
            // Spares a copy of what is the largest part of many stores.
            return match xxhash_rust::xxh3::xxh3_64(&stored) == frame.checksum {
                true => Ok(stored),
                false => Err(self.damaged(frame, "its bytes do not match their checksum")),
            };
        }
        code::decode(frame, &stored, base).map_err(|why| self.damaged(frame, &why))
    }

    /// What can still be had of a damaged frame, from its start. Not checked.
    pub(crate) fn salvage(&self, frame: &Frame) -> Vec<u8> {
        const SECTOR: usize = 4096;
        let mut stored = vec![0; frame.stored as usize];
        let at = self.start + frame.offset;
        if read_at(&self.file, &mut stored, at).is_err() {
            // A disk that cannot read one sector fails the whole read.
            for (piece, bytes) in stored.chunks_mut(SECTOR).enumerate() {
                let _ = read_at(&self.file, bytes, at + (piece * SECTOR) as u64);
            }
        }
        code::salvage(frame, &stored)
    }

    fn damaged(&self, frame: &Frame, why: &str) -> Error {
        Error::damaged(format!(
            "The pack {} is damaged at byte {} ({} bytes): {why}.",
            self.name,
            self.start + frame.offset,
            frame.stored
        ))
    }
}

fn read_at(file: &File, buffer: &mut [u8], at: u64) -> Result<()> {
    file.read_exact_at(buffer, at).map_err(|source| match source.kind() {
        std::io::ErrorKind::UnexpectedEof => Error::damaged("it ends too early"),
        _ => Error::from(source),
    })
}
