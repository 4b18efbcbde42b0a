//! The bytes of a pack: header, frames, table, trailer. `docs/FORMAT.md` has the whole picture.
//!
//! ```text
//! header   16  "ATOLPACK", version u32, zero u32
//! frames       each as its frame record says
//! table        runs, objects, frame records (below); its length is a function of the trailer's counts
//! trailer  64  table offset u64, objects u64, runs u32, frames u32, table's xxh3 u64, pack's length u64,
//!              version u32, zero u32, xxh3 of the 48 bytes before u64, "ATOLPEND"
//! ```
//! All numbers are little-endian. An operation-log record embeds the very same bytes.

use crate::{Error, Hash, Num, Result};

pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_MAGIC: &[u8; 8] = b"ATOLPACK";
pub(crate) const TRAILER_MAGIC: &[u8; 8] = b"ATOLPEND";
pub(crate) const HEADER_LEN: usize = 16;
pub(crate) const TRAILER_LEN: usize = 64;
/// No frame is longer than this before compression.
pub(crate) const MAX_RAW: u32 = 64 << 20;
const RUN_LEN: usize = 12;
const OBJECT_LEN: usize = 44;
const FRAME_LEN: usize = 40;

/// What a frame's objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(crate) enum Kind {
    Node = 1,
    Chunk = 2,
}

/// How a frame's bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Coding {
    /// As they are.
    Raw = 0,
    /// One zstd frame.
    Zstd = 1,
    /// One zstd frame with the raw bytes of object `base` as its prefix; holds one object.
    Delta = 2,
}

/// One run of bytes in a pack: one object or a group of them, stored and checked together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) offset: u64,
    pub(crate) stored: u32,
    pub(crate) raw: u32,
    /// xxh3 of the stored bytes.
    pub(crate) checksum: u64,
    /// The object that a delta stands on, else 0.
    pub(crate) base: Num,
    pub(crate) kind: Kind,
    pub(crate) coding: Coding,
    /// How many deltas stand below: 0 for a whole frame.
    pub(crate) depth: u8,
}

/// An object's place within its pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) hash: Hash,
    pub(crate) frame: u32,
    pub(crate) offset: u32,
    pub(crate) len: u32,
}

/// Consecutive numbers in a pack: `count` from `first`; their entries stand from `at` in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) first: u64,
    pub(crate) count: u32,
    pub(crate) at: u32,
}

/// A pack's own table: numbers to hashes and places. Kept in its stored form: 44 bytes an object.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    runs: Vec<Run>,
    objects: Vec<u8>,
    frames: Vec<Frame>,
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn bad(why: &str) -> Error {
    Error::damaged(why.to_owned())
}

impl Table {
    /// From entries sorted by number.
    pub(crate) fn new(entries: &[(Num, Entry)], frames: Vec<Frame>) -> Table {
        let mut runs: Vec<Run> = Vec::new();
        let mut objects = Vec::with_capacity(entries.len() * OBJECT_LEN);
        for (at, (num, entry)) in entries.iter().enumerate() {
            match runs.last_mut() {
                Some(run) if run.first + u64::from(run.count) == num.0 => run.count += 1,
                _ => runs.push(Run { first: num.0, count: 1, at: at as u32 }),
            }
            objects.extend_from_slice(&entry.hash.0);
            objects.extend_from_slice(&entry.frame.to_le_bytes());
            objects.extend_from_slice(&entry.offset.to_le_bytes());
            objects.extend_from_slice(&entry.len.to_le_bytes());
        }
        Table { runs, objects, frames }
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len() / OBJECT_LEN
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    pub(crate) fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The memory it takes.
    pub(crate) fn weight(&self) -> usize {
        self.objects.len() + self.runs.len() * 16 + self.frames.len() * 48 + 256
    }

    fn entry(&self, index: usize) -> Entry {
        let bytes = &self.objects[index * OBJECT_LEN..][..OBJECT_LEN];
        Entry {
            hash: Hash(bytes[..32].try_into().expect("32 bytes")),
            frame: u32_at(bytes, 32),
            offset: u32_at(bytes, 36),
            len: u32_at(bytes, 40),
        }
    }

    /// Where the object with this number is.
    pub(crate) fn get(&self, num: Num) -> Option<Entry> {
        let run = self.runs[..self.runs.partition_point(|run| run.first <= num.0)].last()?;
        let index = num.0 - run.first;
        (index < u64::from(run.count)).then(|| self.entry(run.at as usize + index as usize))
    }

    /// All objects by number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Num, Entry)> + '_ {
        self.runs.iter().flat_map(move |run| {
            (0..run.count)
                .map(move |index| (Num(run.first + u64::from(index)), self.entry((run.at + index) as usize)))
        })
    }

    /// The table and trailer, as they follow the frames, which end at `offset`.
    pub(crate) fn encode(&self, offset: u64) -> Vec<u8> {
        let len = self.runs.len() * RUN_LEN + self.objects.len() + self.frames.len() * FRAME_LEN;
        let mut out = Vec::with_capacity(len + TRAILER_LEN);
        for run in &self.runs {
            out.extend_from_slice(&run.first.to_le_bytes());
            out.extend_from_slice(&run.count.to_le_bytes());
        }
        out.extend_from_slice(&self.objects);
        for frame in &self.frames {
            out.extend_from_slice(&frame.offset.to_le_bytes());
            out.extend_from_slice(&frame.stored.to_le_bytes());
            out.extend_from_slice(&frame.raw.to_le_bytes());
            out.extend_from_slice(&frame.checksum.to_le_bytes());
            out.extend_from_slice(&frame.base.0.to_le_bytes());
            out.extend_from_slice(&[frame.kind as u8, frame.coding as u8, frame.depth, 0, 0, 0, 0, 0]);
        }
        let checksum = xxhash_rust::xxh3::xxh3_64(&out);
        let trailer = out.len();
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&(self.len() as u64).to_le_bytes());
        out.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.frames.len() as u32).to_le_bytes());
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(&(offset + trailer as u64 + TRAILER_LEN as u64).to_le_bytes());
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&0u32.to_le_bytes());
        let checksum = xxhash_rust::xxh3::xxh3_64(&out[trailer..]);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.extend_from_slice(TRAILER_MAGIC);
        out
    }

    /// Where the table of a pack of `len` bytes with this trailer begins.
    pub(crate) fn offset(trailer: &[u8; TRAILER_LEN], len: u64) -> Result<u64> {
        if &trailer[56..] != TRAILER_MAGIC {
            return Err(bad("it has no end mark"));
        }
        if u64_at(trailer, 48) != xxhash_rust::xxh3::xxh3_64(&trailer[..48]) {
            return Err(bad("its trailer does not match its checksum"));
        }
        let version = u32_at(trailer, 40);
        if version > VERSION {
            return Err(Error::new(
                crate::Code::NewerFormat,
                format!("it has format {version}, this program knows {VERSION}; update atoll to read it"),
            ));
        }
        let offset = u64_at(trailer, 0);
        let table = len.checked_sub(TRAILER_LEN as u64).and_then(|end| end.checked_sub(offset));
        let expected = u64_at(trailer, 8)
            .checked_mul(OBJECT_LEN as u64)
            .and_then(|sum| sum.checked_add(u64::from(u32_at(trailer, 16)) * RUN_LEN as u64))
            .and_then(|sum| sum.checked_add(u64::from(u32_at(trailer, 20)) * FRAME_LEN as u64));
        if u64_at(trailer, 32) != len || table.is_none() || table != expected {
            return Err(bad("its length is not the one it was written with"));
        }
        Ok(offset)
    }

    /// From the table's bytes and the trailer.
    pub(crate) fn decode(table: &[u8], trailer: &[u8; TRAILER_LEN]) -> Result<Table> {
        if xxhash_rust::xxh3::xxh3_64(table) != u64_at(trailer, 24) {
            return Err(bad("its table does not match its checksum"));
        }
        let end = u64_at(trailer, 0);
        let objects = u64_at(trailer, 8) as usize;
        let (run_bytes, rest) = table.split_at(u32_at(trailer, 16) as usize * RUN_LEN);
        let (object_bytes, frame_bytes) = rest.split_at(objects * OBJECT_LEN);
        let mut runs = Vec::with_capacity(run_bytes.len() / RUN_LEN);
        let (mut at, mut next) = (0u32, 0u64);
        for bytes in run_bytes.chunks_exact(RUN_LEN) {
            let run = Run { first: u64_at(bytes, 0), count: u32_at(bytes, 8), at };
            if run.first < next {
                return Err(bad("its table is not in order"));
            }
            next =
                run.first.checked_add(run.count.into()).ok_or_else(|| bad("its table has a run too long"))?;
            at = at.checked_add(run.count).ok_or_else(|| bad("its table has a run too long"))?;
            runs.push(run);
        }
        if at as usize != objects {
            return Err(bad("its runs and its objects differ in number"));
        }
        let frames = frame_bytes.chunks_exact(FRAME_LEN).map(|bytes| decode_frame(bytes, end));
        let table = Table { runs, objects: object_bytes.to_vec(), frames: frames.collect::<Result<_>>()? };
        for index in 0..objects {
            let entry = table.entry(index);
            let frame =
                table.frames.get(entry.frame as usize).ok_or_else(|| bad("an object names no frame"))?;
            if u64::from(entry.offset) + u64::from(entry.len) > u64::from(frame.raw) {
                return Err(bad("an object ends after its frame"));
            }
        }
        Ok(table)
    }
}

fn decode_frame(bytes: &[u8], end: u64) -> Result<Frame> {
    let frame = Frame {
        offset: u64_at(bytes, 0),
        stored: u32_at(bytes, 8),
        raw: u32_at(bytes, 12),
        checksum: u64_at(bytes, 16),
        base: Num(u64_at(bytes, 24)),
        kind: match bytes[32] {
            1 => Kind::Node,
            2 => Kind::Chunk,
            _ => return Err(bad("a frame is of an unknown kind")),
        },
        coding: match bytes[33] {
            0 => Coding::Raw,
            1 => Coding::Zstd,
            2 => Coding::Delta,
            _ => return Err(bad("a frame has an unknown coding")),
        },
        depth: bytes[34],
    };
    if frame.offset.checked_add(frame.stored.into()).is_none_or(|frame_end| frame_end > end) {
        return Err(bad("a frame ends after the frames do"));
    }
    if frame.raw > MAX_RAW || frame.stored > 2 * MAX_RAW {
        return Err(bad("a frame is longer than any can be"));
    }
    if frame.coding == Coding::Raw && frame.raw != frame.stored {
        return Err(bad("an uncompressed frame has two lengths"));
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(numbers: &[u64]) -> Table {
        let frames = vec![Frame {
            offset: 16,
            stored: 50,
            raw: 100,
            checksum: 7,
            base: Num(0),
            kind: Kind::Chunk,
            coding: Coding::Zstd,
            depth: 0,
        }];
        let entries: Vec<_> = numbers
            .iter()
            .map(|&num| {
                (
                    Num(num),
                    Entry { hash: Hash::of(&num.to_le_bytes()), frame: 0, offset: num as u32 % 90, len: 10 },
                )
            })
            .collect();
        Table::new(&entries, frames)
    }

    proptest! {
        #[test]
        fn a_table_is_read_as_it_was_written(numbers in prop::collection::btree_set(1u64..500, 0..100), flip in any::<prop::sample::Index>()) {
            let numbers: Vec<u64> = numbers.into_iter().collect();
            let written = table(&numbers);
            let mut bytes = written.encode(66);
            let len = 66 + bytes.len() as u64;
            let at = bytes.len() - TRAILER_LEN;
            let read = |bytes: &[u8]| {
                let trailer: [u8; TRAILER_LEN] = bytes[at..].try_into().expect("a trailer");
                Table::offset(&trailer, len).and_then(|_| Table::decode(&bytes[..at], &trailer))
            };
            let back = read(&bytes).unwrap();
            for num in 0..501 {
                prop_assert_eq!(back.get(Num(num)).is_some(), numbers.contains(&num));
                prop_assert_eq!(back.get(Num(num)), written.get(Num(num)));
            }
            prop_assert_eq!(back.iter().map(|(num, _)| num.0).collect::<Vec<_>>(), numbers);
            let flip = flip.index(bytes.len());
            bytes[flip] ^= 1;
            prop_assert!(read(&bytes).is_err(), "byte {} was flipped", flip);
        }
    }
}
