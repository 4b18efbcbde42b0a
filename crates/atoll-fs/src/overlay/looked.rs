//! What `status` has read of files that no commit has yet, so that it need not read them again: by the upper's
//! inode, the hashes of their chunks. A checksummed cache beside the index, of no use to a commit: it has no bytes.
//!
//! It is held to the same rules as the index: a file whose ctime is not before the capture that read it is not
//! recorded, and while any file of the workspace is mapped shared and writable, nothing is recorded or believed.
//!
//! The file, little-endian: magic, the upper root's inode number and birth time, then the records (inode number, ctime,
//! birth time, size, number of extents, and for each its offset, its length, and 1 with a hash or 0 with the bytes),
//! and the XXH3 hash (64 bits) of all that.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use atoll_store::tree::{Extent, FileType, Time};
use atoll_store::{Error, Hash, Objects, Result, Writer};
use xxhash_rust::xxh3::xxh3_64;

use super::index::{InoMap, nanos};
use super::plan::Plan;
use crate::ingest::Extents;
use crate::scan::HostStat;

const MAGIC: &[u8; 8] = b"atollks1";

/// Contents without bytes.
enum Piece {
    Inline(Box<[u8]>),
    Chunk(Hash, u32),
}

struct Seen {
    state: [u64; 3],
    pieces: Vec<(u64, Piece)>,
}

/// Of a file: what changes with its contents, beside its number.
fn state(stat: &HostStat) -> [u64; 3] {
    [nanos(stat.ctime) as u64, nanos(stat.btime) as u64, stat.size]
}

/// What was read, by inode number.
#[derive(Default)]
pub(super) struct Looked {
    files: InoMap<Seen>,
}

impl Looked {
    /// Reads the file; anything wrong with it gives nothing.
    pub fn load(path: &Path, root: &HostStat) -> Looked {
        let read = || {
            let bytes = fs::read(path).ok()?;
            let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
            let mut rest = Reader(body.strip_prefix(MAGIC)?);
            let fits = xxh3_64(body).to_le_bytes() == sum
                && rest.u64()? == root.ino
                && rest.u64()? == nanos(root.btime) as u64;
            let mut files: InoMap<Seen> = HashMap::default();
            while fits && !rest.0.is_empty() {
                let (ino, seen) = rest.seen()?;
                files.insert(ino, seen);
            }
            Some(Looked { files })
        };
        read().unwrap_or_default()
    }

    /// The contents of a file in this state; chunks that no pack has get a number without bytes.
    pub fn extents(&self, stat: &HostStat, writer: &Writer) -> Result<Option<Extents>> {
        let Some(seen) = self.files.get(&stat.ino).filter(|seen| seen.state == state(stat)) else {
            return Ok(None);
        };
        let mut extents = Extents::with_capacity(seen.pieces.len());
        for (offset, piece) in &seen.pieces {
            let extent = match piece {
                Piece::Inline(bytes) => Extent::Inline(bytes.clone()),
                Piece::Chunk(hash, len) => Extent::Chunk { num: writer.put_absent(hash)?, len: *len },
            };
            extents.push((*offset, extent));
        }
        Ok(Some(extents))
    }

    /// Replaces the file by what this plan had to read or look up. `start` is when its capture began.
    pub fn save(path: &Path, root: &HostStat, plan: &Plan<'_>, start: Time, writer: &Writer) -> Result<()> {
        let mut out = MAGIC.to_vec();
        let put = |out: &mut Vec<u8>, words: &[u64]| {
            words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        };
        put(&mut out, &[root.ino, nanos(root.btime) as u64]);
        let facts = plan.files.iter().filter_map(|file| file.facts.as_deref());
        for facts in facts.filter(|facts| facts.stat.kind == FileType::File && facts.stat.ctime < start) {
            if facts.attrs.metacopy {
                continue;
            }
            put(&mut out, &[facts.stat.ino]);
            put(&mut out, &state(&facts.stat));
            put(&mut out, &[facts.extents.len() as u64]);
            for (offset, extent) in &facts.extents {
                put(&mut out, &[*offset, extent.len()]);
                match extent {
                    Extent::Inline(bytes) => {
                        out.push(0);
                        out.extend_from_slice(bytes);
                    }
                    Extent::Chunk { num, .. } => {
                        out.push(1);
                        out.extend_from_slice(&writer.hash(*num)?.0);
                    }
                }
            }
        }
        let sum = xxh3_64(&out);
        put(&mut out, &[sum]);
        let new = path.with_extension("new");
        let written = fs::File::create(&new).and_then(|mut file| file.write_all(&out));
        written
            .and_then(|()| fs::rename(&new, path))
            .map_err(|error| Error::io("write what status has read", path, error))
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn seen(&mut self) -> Option<(u64, Seen)> {
        let ino = self.u64()?;
        let state = [self.u64()?, self.u64()?, self.u64()?];
        let count = self.u64()?;
        let mut pieces = Vec::new();
        for _ in 0..count {
            let (offset, len) = (self.u64()?, self.u64()?);
            let piece = match self.take(1)? {
                [0] => Piece::Inline(self.take(usize::try_from(len).ok()?)?.into()),
                _ => Piece::Chunk(Hash(self.take(32)?.try_into().ok()?), u32::try_from(len).ok()?),
            };
            pieces.push((offset, piece));
        }
        Some((ino, Seen { state, pieces }))
    }
}
