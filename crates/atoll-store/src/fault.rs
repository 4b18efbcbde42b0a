//! Places where tests make the store fail: every write, sync and rename passes one. Built only with debug
//! assertions; a release build has none of it.
//!
//! `ATOLL_FAULT=abort:N` kills the process at the N-th place it passes, `ATOLL_FAULT=enospc:N` lets the N-th and
//! all later ones fail as a full disk does.

use std::io;

/// A place. The names are for reading a trace (`ATOLL_FAULT=trace:0` prints them).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    Create,
    PackCreate,
    PackWrite,
    PackSync,
    PackRename,
    DirSync,
    LogWrite,
    LogSync,
    LogWritten,
    LogReplace,
    LogReplaced,
    DatabaseCommit,
    DatabaseCommitted,
    PackRemove,
    WorkspaceFile,
}

#[cfg(debug_assertions)]
mod on {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) enum Mode {
        Off,
        Trace,
        Abort(u64),
        NoSpace(u64),
    }

    static MODE: LazyLock<Mode> = LazyLock::new(|| {
        let Ok(text) = std::env::var("ATOLL_FAULT") else { return Mode::Off };
        match text.split_once(':') {
            Some(("abort", at)) => at.parse().map_or(Mode::Off, Mode::Abort),
            Some(("enospc", at)) => at.parse().map_or(Mode::Off, Mode::NoSpace),
            Some(("trace", _)) => Mode::Trace,
            _ => Mode::Off,
        }
    });
    static PASSED: AtomicU64 = AtomicU64::new(0);

    pub(super) fn mode() -> (&'static Mode, u64) {
        let mode = &*MODE;
        (mode, if matches!(mode, Mode::Off) { 0 } else { PASSED.fetch_add(1, Ordering::SeqCst) + 1 })
    }
}

/// Passes a place.
///
/// # Errors
/// A full disk, when a test asked for it.
#[cfg(debug_assertions)]
pub(crate) fn hit(point: Point) -> io::Result<()> {
    match on::mode() {
        (on::Mode::Off, _) => {}
        (on::Mode::Trace, passed) => eprintln!("atoll: fault point {passed}: {point:?}"),
        (on::Mode::Abort(at), passed) if passed == *at => std::process::abort(),
        (on::Mode::NoSpace(at), passed) if passed >= *at => return Err(io::ErrorKind::StorageFull.into()),
        _ => {}
    }
    Ok(())
}

/// Passes a place: nothing in a release build.
#[cfg(not(debug_assertions))]
pub(crate) fn hit(_point: Point) -> io::Result<()> {
    Ok(())
}
