//! A little space kept back on the store's disk, so that letting go and cleaning up work when it is full.

use std::fs::File;
use std::path::Path;

use super::Store;

/// How much is kept back: a few times what dropping a branch needs.
const LEN: u64 = 512 << 10;
/// With less than this free, the reserve is used.
const LOW: u64 = 1 << 20;

fn free(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(u64::MAX, |fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

impl Store {
    /// Whether the disk is nearly full.
    pub(super) fn is_low_on_space(&self) -> bool {
        free(&self.inner.dir) < LOW
    }

    /// Gives the reserve back when the disk is nearly full; for what makes the store smaller in the end.
    pub(super) fn make_room(&self) {
        make_room(&self.inner.dir);
    }

    /// Keeps it back again when there is enough.
    pub(super) fn refill_reserve(&self) {
        refill(&self.inner.dir);
    }
}

/// Whether there is no room even for a small file.
pub(super) fn is_full(dir: &Path) -> bool {
    free(dir) < 64 << 10
}

/// See [`Store::make_room`].
pub(super) fn make_room(dir: &Path) {
    if free(dir) < LOW {
        let _ = std::fs::remove_file(dir.join("reserve"));
    }
}

/// See [`Store::refill_reserve`]. Best effort: without it only a full disk is harder to leave.
pub(super) fn refill(dir: &Path) {
    let path = dir.join("reserve");
    if path.exists() || free(dir) < 2 * LOW + LEN {
        return;
    }
    let made = File::create(&path)
        .and_then(|file| Ok(rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, LEN)?));
    if made.is_err() {
        let _ = std::fs::remove_file(&path);
    }
}
