//! Brings the walk of an upper in use to a state that is true of one moment.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use atoll_store::tree::FileType;
use atoll_store::{Code, Error, Result};

use super::freeze::Freezer;
use super::index::InoMap;
use crate::scan::{HostStat, Scan, ScanOptions, coarse_now};

/// How often changed folders are read again before the processes are frozen, or the capture gives up.
const PASSES: u32 = 20;

/// Freezes at most once, and thaws in any case.
pub(super) struct Freeze<'a> {
    freezer: Option<&'a dyn Freezer>,
    /// Whether it was used.
    pub used: bool,
    frozen: bool,
}

impl<'a> Freeze<'a> {
    pub fn new(freezer: Option<&'a dyn Freezer>) -> Self {
        Freeze { freezer, used: false, frozen: false }
    }

    /// Whether the processes stand still from now on and did not before.
    fn freeze(&mut self) -> Result<bool> {
        match self.freezer {
            Some(freezer) if !self.used => {
                self.used = true;
                freezer.freeze()?;
                self.frozen = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Lets the processes go on.
    pub fn thaw(&mut self) -> Result<()> {
        if std::mem::take(&mut self.frozen) { self.freezer.map_or(Ok(()), Freezer::thaw) } else { Ok(()) }
    }
}

impl Drop for Freeze<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.thaw() {
            log::error!("The workspace's processes could not be let go on: {error}");
        }
    }
}

/// The state of one capture's patience.
pub(super) struct Patience<'a> {
    /// Walks so far.
    pub passes: u32,
    left: u32,
    /// See [`Freeze`].
    pub freeze: Freeze<'a>,
}

impl<'a> Patience<'a> {
    pub fn new(freezer: Option<&'a dyn Freezer>) -> Self {
        Patience { passes: 1, left: PASSES, freeze: Freeze::new(freezer) }
    }

    /// Counts another pass that something made necessary.
    ///
    /// # Errors
    /// `Changed` naming it, when there were too many and the processes cannot be frozen.
    pub fn again(&mut self, what: &str, path: &[u8]) -> Result<()> {
        if self.left == 0 {
            if !self.freeze.freeze()? {
                let name = if path.is_empty() { "/".into() } else { String::from_utf8_lossy(path) };
                return Err(Error::new(
                    Code::Changed,
                    format!(
                        "The {what} {name} of the workspace kept changing while it was captured; nothing was \
                         committed. Try again when it is quiet, or run its processes by 'atoll run' or 'atoll exec', \
                         which can hold them still."
                    ),
                ));
            }
            // Calls that were under way may end, and then nothing moves.
            self.left = 3;
        }
        self.left -= 1;
        self.passes += 1;
        Ok(())
    }
}

/// Reads changed folders again until every listing is true of one moment.
pub(super) fn settle(scan: &mut Scan, options: &ScanOptions<'_>, patience: &mut Patience<'_>) -> Result<()> {
    loop {
        let mut again = scan.unstable()?;
        if again.is_empty() && seen_too_often(scan) {
            again.extend(scan.dirs.keys().cloned());
        }
        let Some(first) = again.first() else { return Ok(()) };
        patience.again("folder", first)?;
        pass_tick(scan, &again);
        scan.read_again(again, options)?;
    }
}

/// Waits until the clock has passed these folders' ctimes: before that, a change could hide behind the same one.
fn pass_tick(scan: &Scan, paths: &BTreeSet<Box<[u8]>>) {
    let latest = paths.iter().filter_map(|path| scan.dirs.get(path)).map(|dir| dir.stat.ctime).max();
    // Two ticks of the slowest clock (100 Hz); a ctime from before a clock was set back is not waited for.
    for _ in 0..20 {
        if latest.is_none_or(|latest| latest < coarse_now()) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a folder was reached twice, or a file more often than it has names.
fn seen_too_often(scan: &Scan) -> bool {
    let names = scan.dirs.values().map(|dir| dir.entries.len()).sum();
    let mut seen: InoMap<u32> = InoMap::with_capacity_and_hasher(names, Default::default());
    scan.dirs.values().flat_map(|dir| &dir.entries).any(|entry| {
        let HostStat { kind, ino, nlink, rdev, .. } = entry.stat;
        // Whiteouts share one inode, whose link count is the kernel's affair.
        if kind == FileType::Char && rdev == 0 {
            return false;
        }
        let most = if kind == FileType::Dir { 1 } else { nlink };
        let count = seen.entry(ino).or_default();
        *count += 1;
        *count > most
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Counting {
        frozen: AtomicU32,
        thawed: AtomicU32,
    }

    impl Freezer for Counting {
        fn freeze(&self) -> Result<()> {
            self.frozen.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
        fn thaw(&self) -> Result<()> {
            self.thawed.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    fn until_it_ends(patience: &mut Patience<'_>) -> (u32, Error) {
        for passes in 0..1000 {
            if let Err(error) = patience.again("folder", b"busy/one") {
                return (passes, error);
            }
        }
        panic!("patience never ends");
    }

    #[test]
    fn patience_ends_with_the_folder_s_name() {
        let (passes, error) = until_it_ends(&mut Patience::new(None));
        assert_eq!((passes, error.code), (PASSES, Code::Changed));
        assert!(error.message.contains("busy/one"), "{error}");
    }

    #[test]
    fn processes_are_frozen_once_and_always_let_go_on() {
        let freezer = Counting::default();
        let mut patience = Patience::new(Some(&freezer));
        let (passes, error) = until_it_ends(&mut patience);
        assert!(passes > PASSES, "there are passes after the freeze");
        assert_eq!(error.code, Code::Changed);
        assert_eq!(freezer.thawed.load(Ordering::Relaxed), 0);
        drop(patience);
        assert_eq!((freezer.frozen.into_inner(), freezer.thawed.into_inner()), (1, 1));
    }
}
