//! The data area: one sparse file for the bytes of large writes. Nothing in it is written twice before it was
//! given back, so what a state or a reader sees stays.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// The area's number among the workspace's files; segments of the journal count up from 1.
pub const AREA: u32 = 0;
/// A free run of at least so many bytes is given back to the file system. Smaller ones are only used again.
const PUNCH: u64 = 64 << 10;
const PAGE: u64 = 4096;

/// The file and what is free in it.
pub struct Area {
    file: Arc<File>,
    /// Nothing is in use from here on.
    end: u64,
    by_offset: BTreeMap<u64, u64>,
    by_len: BTreeSet<(u64, u64)>,
    /// Something was written since the last sync began.
    pub dirty: bool,
}

impl Area {
    /// Over a file that was written to before. All of it counts as in use, and what is not one of the `used` runs
    /// (offset and length, in any order) is returned: it is to be freed when the state that does not use it is
    /// durable. Whether the bytes are on the disk is not known.
    ///
    /// # Errors
    /// The file system's.
    pub fn new(file: File, mut used: Vec<(u64, u64)>) -> io::Result<(Self, Vec<(u64, u64)>)> {
        used.sort_unstable();
        let end = file.metadata()?.len();
        let mut gaps = Vec::new();
        let mut at = 0;
        for (offset, len) in used.into_iter().chain([(end, 0)]) {
            if offset > at {
                gaps.push((at, offset - at));
            }
            at = at.max(offset + len);
        }
        let area = Area {
            file: Arc::new(file),
            end: at,
            by_offset: BTreeMap::new(),
            by_len: BTreeSet::new(),
            dirty: true,
        };
        Ok((area, gaps))
    }

    /// The file, for reading.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Writes bytes somewhere free and says where.
    ///
    /// # Errors
    /// The file system's; nothing is in use then that was not before.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let len = bytes.len() as u64;
        let fit = self.by_len.range((len, 0)..).next().copied();
        let offset = fit.map_or(self.end, |(_, offset)| offset);
        self.file.write_all_at(bytes, offset)?;
        self.dirty = true;
        match fit {
            Some((whole, offset)) => {
                self.take(offset);
                if whole > len {
                    self.put(offset + len, whole - len);
                }
            }
            None => self.end += len,
        }
        Ok(offset)
    }

    /// A run is free again: nobody may read it any more, now or after a crash.
    pub fn free(&mut self, offset: u64, len: u64) {
        let (mut start, mut end) = (offset, offset + len);
        if let Some((&before, &before_len)) = self.by_offset.range(..start).next_back()
            && before + before_len == start
        {
            self.take(before);
            start = before;
        }
        if let Some(after_len) = self.by_offset.get(&end).copied() {
            self.take(end);
            end += after_len;
        }
        // What is next to it may have been too small to be given back until now.
        let (from, to) = (start.next_multiple_of(PAGE), end / PAGE * PAGE);
        if to.saturating_sub(from) >= PUNCH {
            give_back(&self.file, from, to - from);
        }
        if end == self.end {
            self.end = start;
        } else {
            self.put(start, end - start);
        }
    }

    fn put(&mut self, offset: u64, len: u64) {
        self.by_offset.insert(offset, len);
        self.by_len.insert((len, offset));
    }

    fn take(&mut self, offset: u64) {
        if let Some(len) = self.by_offset.remove(&offset) {
            self.by_len.remove(&(len, offset));
        }
    }
}

/// Gives back all but these runs (offset and length, in any order) of a file that is only read any more.
pub(super) fn keep_only(file: &File, mut runs: Vec<(u64, u64)>) {
    runs.sort_unstable();
    let end = file.metadata().map_or(0, |metadata| metadata.len());
    let mut at = 0;
    for (offset, len) in runs.into_iter().chain([(end, 0)]) {
        let (from, to) = (u64::next_multiple_of(at, PAGE), offset / PAGE * PAGE);
        if to.saturating_sub(from) >= PUNCH {
            give_back(file, from, to - from);
        }
        at = at.max(offset + len);
    }
}

/// A file system that cannot do it keeps the space until it is used again.
fn give_back(file: &File, offset: u64, len: u64) {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, offset, len) {
        Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS) => {}
        Err(error) => log::warn!("Space of deleted files could not be given back: {error}."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// What is in use keeps its bytes, whatever else is written and freed.
        #[test]
        fn runs_in_use_are_not_written_over(steps in proptest::collection::vec((1usize..200_000, any::<bool>(), any::<u8>()), 1..40)) {
            let file = tempfile::tempfile().unwrap();
            let (mut area, gaps) = Area::new(file.try_clone().unwrap(), Vec::new()).unwrap();
            prop_assert!(gaps.is_empty());
            let mut used: Vec<(u64, Vec<u8>)> = Vec::new();
            for (len, free, byte) in steps {
                if free && !used.is_empty() {
                    let (offset, bytes) = used.swap_remove(len % used.len());
                    area.free(offset, bytes.len() as u64);
                } else {
                    let bytes = vec![byte; len];
                    used.push((area.write(&bytes).unwrap(), bytes));
                }
                for (offset, bytes) in &used {
                    let mut seen = vec![0; bytes.len()];
                    file.read_exact_at(&mut seen, *offset).unwrap();
                    prop_assert!(&seen == bytes);
                }
                let runs = used.iter().map(|(offset, bytes)| (*offset, bytes.len() as u64)).collect();
                let (mut again, gaps) = Area::new(file.try_clone().unwrap(), runs).unwrap();
                gaps.into_iter().for_each(|(offset, len)| again.free(offset, len));
                prop_assert_eq!(again.end, area.end);
                prop_assert_eq!(&again.by_offset, &area.by_offset);
            }
        }
    }
}
