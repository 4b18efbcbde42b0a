//! The stat data of an upper as it was when it was captured last: a cache, bound to the commit that the capture
//! became, and to the upper by its root folder. Whatever does not fit makes it worthless, never wrong.
//!
//! The file, little-endian: magic, the base's and the head's hash, the upper root's inode number and birth time,
//! the random bits of new inode numbers, the number of records, the records sorted by inode number, and the
//! XXH3 hash (64 bits) of all that.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::Write;
use std::path::Path;

use atoll_store::tree::Time;
use atoll_store::{Error, Hash, Ino, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::scan::HostStat;

const MAGIC: &[u8; 8] = b"atollix1";
const HEADER: usize = 8 + 32 + 32 + 8 + 8 + 4 + 8;
const RECORD: usize = 40;

/// What is known of one inode of the upper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    /// Its number in the upper.
    pub ino: u64,
    /// In ns.
    pub ctime: i64,
    /// In ns.
    pub btime: i64,
    /// A file's size; a folder's merged lower folder, or 0.
    pub extra: u64,
    /// The tree's number; `None` for a whiteout by attribute.
    pub key: Option<Ino>,
    /// It was captured after its last change: equal stat data mean equal contents.
    pub clean: bool,
    /// Its number in the tree is the base's.
    pub inherited: bool,
    /// It was gone at the last capture; kept so that its number in the tree is not used again.
    pub retired: bool,
    /// A folder in which files can be whiteouts by an attribute.
    pub whiteouts: bool,
}

const CLEAN: u64 = 1 << 50;
const INHERITED: u64 = 1 << 51;
const RETIRED: u64 = 1 << 52;
const WHITEOUTS: u64 = 1 << 53;

/// A time as the index has it. The kernel's clock does not reach the ends.
pub(super) fn nanos(time: Time) -> i64 {
    time.sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.nsec))
}

impl Record {
    /// Whether this is the record of the file with this stat data (in whatever state).
    pub fn is_file(&self, stat: &HostStat) -> bool {
        self.ino == stat.ino && self.btime == nanos(stat.btime)
    }

    fn put(&self, out: &mut Vec<u8>) {
        let flags = [
            (self.clean, CLEAN),
            (self.inherited, INHERITED),
            (self.retired, RETIRED),
            (self.whiteouts, WHITEOUTS),
        ];
        let flags = flags.iter().filter(|(set, _)| *set).map(|(_, flag)| flag).sum::<u64>();
        let key = self.key.map_or(0, Ino::key) | flags;
        for word in [self.ino, self.ctime as u64, self.btime as u64, self.extra, key] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }

    fn get(bytes: &[u8]) -> Record {
        let word = |at: usize| u64_at(bytes, at * 8);
        Record {
            ino: word(0),
            ctime: word(1) as i64,
            btime: word(2) as i64,
            extra: word(3),
            key: Ino::from_key(word(4) & ((1 << Ino::BITS) - 1)),
            clean: word(4) & CLEAN != 0,
            inherited: word(4) & INHERITED != 0,
            retired: word(4) & RETIRED != 0,
            whiteouts: word(4) & WHITEOUTS != 0,
        }
    }
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// A loaded index; empty when there was none that fits.
#[derive(Default)]
pub(super) struct Index {
    bytes: Vec<u8>,
    count: usize,
    /// Whether it fits the upper, the base and the head.
    pub valid: bool,
    /// The random bits in use; `None` when it does not fit.
    pub random: Option<u32>,
}

impl Index {
    /// Reads the index file; anything wrong with it gives an empty index.
    pub fn load(path: &Path, base: &Hash, head: &Hash, root: &HostStat) -> Index {
        let Ok(bytes) = fs::read(path) else { return Index::default() };
        let whole = bytes.len() >= HEADER + 8
            && &bytes[..8] == MAGIC
            && xxh3_64(&bytes[..bytes.len() - 8]) == u64_at(&bytes, bytes.len() - 8);
        if !whole {
            return Index::default();
        }
        let count = (bytes.len() - 8 - HEADER) / RECORD;
        let fits = bytes[8..40] == base.0
            && bytes[40..72] == head.0
            && u64_at(&bytes, 72) == root.ino
            && u64_at(&bytes, 80) as i64 == nanos(root.btime)
            && u64_at(&bytes, 92) as usize == count;
        if !fits {
            return Index::default();
        }
        let random = u64_at(&bytes, 88) as u32;
        Index { bytes, count, valid: true, random: Some(random) }
    }

    fn record(&self, at: usize) -> Record {
        Record::get(&self.bytes[HEADER + at * RECORD..HEADER + (at + 1) * RECORD])
    }

    /// The record of an inode of the upper.
    pub fn get(&self, ino: u64) -> Option<Record> {
        self.search(ino, 0, self.count).ok().map(|at| self.record(at))
    }

    /// For many look-ups, most of them near the one before.
    pub fn near(&self) -> Near<'_> {
        Near { index: self, at: 0 }
    }

    fn ino(&self, at: usize) -> u64 {
        u64_at(&self.bytes, HEADER + at * RECORD)
    }

    /// Where the record stands, or would stand.
    fn search(&self, ino: u64, mut low: usize, mut high: usize) -> Result<usize, usize> {
        while low < high {
            let middle = low.midpoint(high);
            match self.ino(middle).cmp(&ino) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// All records.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        (0..self.count).map(|at| self.record(at))
    }
}

/// Looks up records near each other: files that were made together have neighbouring numbers.
pub(super) struct Near<'a> {
    index: &'a Index,
    at: usize,
}

impl Near<'_> {
    /// The record of an inode of the upper.
    pub fn get(&mut self, ino: u64) -> Option<Record> {
        let index = self.index;
        let mut step = 1;
        let (low, high) = if self.at < index.count && index.ino(self.at) <= ino {
            while self.at + step < index.count && index.ino(self.at + step) <= ino {
                step *= 2;
            }
            (self.at + step / 2, index.count.min(self.at + step))
        } else {
            while step <= self.at && index.ino(self.at - step) > ino {
                step *= 2;
            }
            (self.at.saturating_sub(step), index.count.min(self.at + 1))
        };
        match index.search(ino, low, high) {
            Ok(at) => {
                self.at = at;
                Some(index.record(at))
            }
            Err(_) => None,
        }
    }
}

/// A fast hash of inode numbers: they come from the kernel, nobody chooses them to collide.
#[derive(Default)]
pub(super) struct InoHasher(u64);

impl Hasher for InoHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, ino: u64) {
        self.0 = (self.0 ^ ino).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(20);
    }
}

/// A map by inode number.
pub(super) type InoMap<V> = HashMap<u64, V, BuildHasherDefault<InoHasher>>;

/// The bytes of an index but for the head's hash and the checksum, which come with [`write`].
///
/// Of files that `old` knows and that are gone, the numbers are kept.
pub(super) fn encode(
    base: &Hash,
    root: &HostStat,
    random: u32,
    mut records: Vec<Record>,
    old: &Index,
) -> Vec<u8> {
    records.sort_unstable_by_key(|record| record.ino);
    records.dedup_by_key(|record| record.ino);
    let mut have = records.iter().map(|record| record.ino).peekable();
    let mut gone = Vec::new();
    for record in old.records().filter(|record| record.key.is_some()) {
        while have.next_if(|ino| *ino < record.ino).is_some() {}
        if have.peek() != Some(&record.ino) {
            gone.push(Record { clean: false, retired: true, ..record });
        }
    }
    if !gone.is_empty() {
        records.extend(gone);
        records.sort_unstable_by_key(|record| record.ino);
    }
    let mut out = Vec::with_capacity(HEADER + records.len() * RECORD + 8);
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&base.0);
    out.extend_from_slice(&[0; 32]);
    out.extend_from_slice(&root.ino.to_le_bytes());
    out.extend_from_slice(&nanos(root.btime).to_le_bytes());
    out.extend_from_slice(&random.to_le_bytes());
    out.extend_from_slice(&(records.len() as u64).to_le_bytes());
    for record in &records {
        record.put(&mut out);
    }
    out
}

/// Binds an encoded index to its head and replaces the file.
pub(super) fn write(path: &Path, mut bytes: Vec<u8>, head: &Hash) -> Result<()> {
    bytes[40..72].copy_from_slice(&head.0);
    let sum = xxh3_64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    let new = path.with_extension("new");
    let written = fs::File::create(&new).and_then(|mut file| file.write_all(&bytes));
    written
        .and_then(|()| fs::rename(&new, path))
        .map_err(|error| Error::io("write the capture index", path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::tree::FileType;

    fn root() -> HostStat {
        let time = Time { sec: 5, nsec: 6 };
        HostStat {
            ino: 99,
            dev: 1,
            kind: FileType::Dir,
            mode: 0o755,
            uid: 0,
            gid: 0,
            size: 0,
            allocated: 0,
            nlink: 2,
            rdev: 0,
            mtime: time,
            ctime: time,
            btime: time,
            mount_root: false,
        }
    }

    fn record(ino: u64) -> Record {
        Record {
            ino,
            ctime: ino as i64 * 7,
            btime: -1,
            extra: ino + 1,
            key: Ino::from_key(ino * 3 + 1),
            clean: ino.is_multiple_of(2),
            inherited: ino.is_multiple_of(3),
            retired: false,
            whiteouts: ino.is_multiple_of(5),
        }
    }

    #[test]
    fn an_index_is_read_back_for_its_commits_and_its_upper_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("index");
        let (base, head, root) = (Hash::of(b"base"), Hash::of(b"head"), root());
        let inos: Vec<u64> = (0..1000u64).map(|at| at * at % 7919 + at * 8000).collect();
        let records: Vec<Record> = inos.iter().map(|ino| record(*ino)).collect();
        write(&path, encode(&base, &root, 77, records, &Index::default()), &head).unwrap();
        let index = Index::load(&path, &base, &head, &root);
        assert!(index.valid);
        assert_eq!(index.random, Some(77));
        let mut near = index.near();
        for ino in inos.iter().chain(inos.iter().rev()).chain(inos.iter().step_by(37)) {
            assert_eq!(index.get(*ino), Some(record(*ino)));
            assert_eq!(near.get(*ino), Some(record(*ino)));
            for missing in [ino + 1, ino.wrapping_sub(1)].iter().filter(|ino| !inos.contains(ino)) {
                assert_eq!((index.get(*missing), near.get(*missing)), (None, None));
            }
        }
        assert_eq!(near.get(u64::MAX), None);
        assert!(!Index::load(&path, &head, &head, &root).valid);
        assert!(!Index::load(&path, &base, &base, &root).valid);
        assert!(!Index::load(&path, &base, &head, &HostStat { ino: 98, ..root }).valid);

        // What is gone keeps its number.
        let next = encode(&base, &root, 77, vec![record(inos[3])], &index);
        write(&path, next, &head).unwrap();
        let index = Index::load(&path, &base, &head, &root);
        assert_eq!(index.get(inos[3]), Some(record(inos[3])));
        assert_eq!(index.get(inos[4]), Some(Record { clean: false, retired: true, ..record(inos[4]) }));
        assert_eq!(index.records().count(), 1000);

        // Any flipped bit makes it worthless.
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(997) {
            let mut bytes = whole.clone();
            bytes[at] ^= 4;
            fs::write(&path, bytes).unwrap();
            assert!(!Index::load(&path, &base, &head, &root).valid, "byte {at}");
        }
        fs::write(&path, &whole[..40]).unwrap();
        assert!(!Index::load(&path, &base, &head, &root).valid);
    }
}
