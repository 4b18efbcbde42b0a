//! How long work tells its caller what it has done, and hears that it should stop.

use atoll_store::{Code, Error, Result};

/// What is being done; the numbers beside it mean files of this phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Names and stat data are read.
    Scan,
    /// Contents are read and stored.
    Read,
    /// The tree is made.
    Tree,
    /// Files are written to a folder or an archive.
    Write,
    /// Two sides are compared.
    Compare,
}

impl Phase {
    /// The stable name: `scan`, `read`, …
    pub fn name(self) -> &'static str {
        match self {
            Phase::Scan => "scan",
            Phase::Read => "read",
            Phase::Tree => "tree",
            Phase::Write => "write",
            Phase::Compare => "compare",
        }
    }
}

/// Told what happens, from any thread; asked whether to go on.
pub trait Progress: Sync {
    /// `files` files and `bytes` bytes of the phase are done. Called often: it must be cheap.
    fn advance(&self, phase: Phase, files: u64, bytes: u64);

    /// True ends the work with `Interrupted`.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Nobody is told, nothing stops.
pub struct Silent;

impl Progress for Silent {
    fn advance(&self, _: Phase, _: u64, _: u64) {}
}

/// Ends the caller's work when it was asked to stop.
pub(crate) fn check(progress: &dyn Progress) -> Result<()> {
    if progress.interrupted() {
        return Err(Error::new(Code::Interrupted, "Interrupted; nothing was stored."));
    }
    Ok(())
}
