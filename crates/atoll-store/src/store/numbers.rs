//! Hands out numbers for objects, in ranges that the database remembers: none is used twice.

use super::{Store, db};
use crate::Result;

/// The least that is taken from the database at once.
const RANGE: u64 = 128;

impl Store {
    /// `count` numbers that nobody else has or will have.
    pub(super) fn take_numbers(&self, count: u64) -> Result<std::ops::Range<u64>> {
        self.check_process()?;
        let mut free = self.inner.numbers.lock();
        if free.end - free.start < count {
            let wanted = count.max(RANGE);
            let first = self.write(|tx| {
                let first = db::meta(&tx.db, "next_num")?;
                db::set_meta(&tx.db, "next_num", first + wanted)?;
                Ok(first)
            })?;
            // What was left is used up first when the new range follows it.
            if free.end != first {
                free.start = first;
            }
            free.end = first + wanted;
        }
        let taken = free.start..free.start + count;
        free.start += count;
        Ok(taken)
    }

    /// Takes back the end of what was handed out, if nothing was handed out since.
    pub(super) fn give_back_numbers(&self, unused: std::ops::Range<u64>) {
        let mut free = self.inner.numbers.lock();
        if free.start == unused.end && !unused.is_empty() {
            free.start = unused.start;
        }
    }
}
