//! The copy driver's index: which stat data each file of the workspace had when it equalled the tree. A cache: a
//! missing, damaged or outdated one costs a full read, nothing else.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::{Path, PathBuf};

use atoll_store::tree::Time;
use atoll_store::{Error, Hash, Ino, Result};

use crate::ingest::base::{Known, Recorded};

const MAGIC: &[u8; 8] = b"atollci1";

/// What is known about a workspace's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    /// Files with a ctime at or after this are never clean.
    pub clean_before: Time,
    /// Every file that the host has.
    pub files: HashMap<Ino, Known>,
    /// Files that could not be made on the host.
    pub absent: HashSet<Ino>,
    /// Files that were mapped shared and writable.
    pub mapped: HashSet<Ino>,
}

impl Index {
    /// The file's bytes without the commit it belongs to.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.files.len() * 104);
        put_time(&mut out, self.clean_before);
        for set in [&self.absent, &self.mapped] {
            let mut keys: Vec<u64> = set.iter().map(|ino| ino.key()).collect();
            keys.sort_unstable();
            put(&mut out, keys.len() as u64);
            keys.into_iter().for_each(|key| put(&mut out, key));
        }
        let mut files: Vec<_> = self.files.iter().collect();
        files.sort_unstable_by_key(|(ino, _)| **ino);
        put(&mut out, files.len() as u64);
        for (ino, known) in files {
            let Recorded { ino: host, mode, uid, gid, size, rdev, mtime, ctime, btime } = known.recorded;
            for number in [ino.key(), host, u64::from(mode), u64::from(uid), u64::from(gid), size, rdev] {
                put(&mut out, number);
            }
            [mtime, ctime, btime].into_iter().for_each(|time| put_time(&mut out, time));
            put(&mut out, known.lost_xattrs.len() as u64);
            for name in &known.lost_xattrs {
                put(&mut out, name.len() as u64);
                out.extend_from_slice(name);
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Index> {
        let mut reader = Reader(bytes);
        let clean_before = reader.time()?;
        let mut sets = [HashSet::new(), HashSet::new()];
        for set in &mut sets {
            for _ in 0..reader.number()? {
                set.insert(Ino::from_key(reader.number()?)?);
            }
        }
        let mut files = HashMap::new();
        for _ in 0..reader.number()? {
            let ino = Ino::from_key(reader.number()?)?;
            let recorded = Recorded {
                ino: reader.number()?,
                mode: reader.number()? as u16,
                uid: reader.number()? as u32,
                gid: reader.number()? as u32,
                size: reader.number()?,
                rdev: reader.number()?,
                mtime: reader.time()?,
                ctime: reader.time()?,
                btime: reader.time()?,
            };
            let mut lost_xattrs = Vec::new();
            for _ in 0..reader.number()? {
                let length = reader.number()? as usize;
                lost_xattrs.push(reader.take(length)?.into());
            }
            files.insert(ino, Known { recorded, lost_xattrs });
        }
        let [absent, mapped] = sets;
        reader.0.is_empty().then_some(Index { clean_before, files, absent, mapped })
    }

    /// The commit that the index belongs to, and the index; `None` when there is no sound one.
    pub fn load(path: &Path) -> Option<(Hash, Index)> {
        let bytes = std::fs::read(path).ok()?;
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(32)?)?;
        if Hash::of(body).0 != sum {
            return None;
        }
        let rest = body.strip_prefix(MAGIC)?;
        let (commit, rest) = rest.split_at_checked(32)?;
        Some((Hash(commit.try_into().ok()?), Index::decode(rest)?))
    }
}

/// Replaces the index file. Synced: without it a capture after a power cut would not know what an ordinary user could
/// not materialise.
pub(crate) fn save(path: &Path, commit: &Hash, encoded: &[u8]) -> Result<()> {
    let mut bytes = Vec::with_capacity(encoded.len() + 72);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&commit.0);
    bytes.extend_from_slice(encoded);
    let sum = Hash::of(&bytes);
    bytes.extend_from_slice(&sum.0);
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let failed = |error| Error::io("write the index", path, error);
    let mut file = std::fs::File::create(&temporary).map_err(failed)?;
    file.write_all(&bytes).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&temporary, path).map_err(failed)
}

fn put(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put_time(out: &mut Vec<u8>, time: Time) {
    put(out, time.sec as u64);
    put(out, u64::from(time.nsec));
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn time(&mut self) -> Option<Time> {
        Some(Time { sec: self.number()? as i64, nsec: self.number()? as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let time = |sec| Time { sec, nsec: 5 };
        let recorded = Recorded {
            ino: 1 << 40,
            mode: 0o4755,
            uid: 1,
            gid: 2,
            size: 3,
            rdev: 4,
            mtime: time(-9),
            ctime: time(8),
            btime: time(7),
        };
        let known =
            Known { recorded, lost_xattrs: vec![b"trusted.x".as_slice().into(), b"".as_slice().into()] };
        let two = [(Ino::new(3, 9), known.clone()), (Ino::ROOT, known)];
        Index {
            clean_before: time(99),
            files: two.into_iter().collect(),
            absent: [Ino::new(7, 7)].into(),
            mapped: [Ino::new(8, 8), Ino::ROOT].into(),
        }
    }

    #[test]
    fn it_comes_back_and_every_damage_is_noticed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("index");
        let commit = Hash::of(b"commit");
        assert_eq!(Index::load(&path), None);
        save(&path, &commit, &index().encode()).unwrap();
        assert_eq!(Index::load(&path), Some((commit, index())));
        let sound = std::fs::read(&path).unwrap();
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(Index::load(&path), None, "byte {at}");
            std::fs::write(&path, &sound[..at]).unwrap();
            assert_eq!(Index::load(&path), None, "cut at {at}");
        }
    }
}
