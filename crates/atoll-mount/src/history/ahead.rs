//! Reads ahead: who reads a tree in order finds the next groups of chunks decompressed already, by a thread of
//! their own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use atoll_store::Num;
use parking_lot::Mutex;

use super::source::Source;

/// So many groups (of up to 256 KiB) are made ready.
const GROUPS: u32 = 3;
/// A reader goes forward when it skips at most so many groups: an import's threads take turns in a pack.
const STRIDE: u32 = 4;
/// So many readers are told apart.
const READERS: usize = 8;

/// Where readers are, and the thread that runs ahead of them.
pub(super) struct Ahead {
    readers: Mutex<VecDeque<(u64, u32)>>,
    wanted: SyncSender<Num>,
}

impl Ahead {
    pub fn new(source: Arc<dyn Source>) -> Self {
        // One wish at a time: an older one is of no use any more.
        let (wanted, wishes) = sync_channel::<Num>(1);
        std::thread::spawn(move || {
            for chunk in wishes {
                if let Err(error) = source.read_ahead(chunk, GROUPS) {
                    log::debug!("Not read ahead: {error}");
                }
            }
        });
        Ahead { readers: Mutex::default(), wanted }
    }

    /// A chunk at `place` is being read.
    pub fn reads(&self, chunk: Num, place: (u64, u32)) {
        if self.goes_on(place) {
            let _ = self.wanted.try_send(chunk);
        }
    }

    /// Whether a reader that was a little before has come to `place`.
    fn goes_on(&self, place: (u64, u32)) -> bool {
        let mut readers = self.readers.lock();
        if readers.contains(&place) {
            return false;
        }
        let follows = |from: &(u64, u32)| from.0 == place.0 && from.1 < place.1 && place.1 - from.1 <= STRIDE;
        let found = readers.iter().position(follows);
        if let Some(at) = found {
            readers.remove(at);
        } else if readers.len() >= READERS {
            readers.pop_front();
        }
        readers.push_back(place);
        found.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_goes_forward_is_read_ahead_for() {
        let (wanted, _wishes) = sync_channel(1);
        let ahead = Ahead { readers: Mutex::default(), wanted };
        assert!(!ahead.goes_on((1, 10)), "the first is no direction");
        assert!(!ahead.goes_on((1, 10)), "the same group again");
        assert!(ahead.goes_on((1, 11)));
        assert!(ahead.goes_on((1, 13)));
        assert!(!ahead.goes_on((1, 12)), "backwards");
        assert!(!ahead.goes_on((2, 14)), "another pack");
        assert!(!ahead.goes_on((1, 100)), "far away");
        assert!(ahead.goes_on((1, 101)) && ahead.goes_on((1, 14)), "two readers");
    }
}
