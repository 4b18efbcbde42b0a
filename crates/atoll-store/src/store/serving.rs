//! Who serves a store's history: what has a slot stays while somebody does, since a node id of its tree may be in
//! the kernel, and what that names must not go.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::io::Errno;

use crate::{Error, Result};

/// The right to give out node ids of a store. It is a lock of the open file: whoever got a duplicate of the
/// descriptor has it too, until the last one is closed.
#[derive(Debug)]
pub struct Serving(OwnedFd);

impl Serving {
    /// Takes it for the store in `dir`; any number may have it. Waits for a `gc` that is about to remove something.
    ///
    /// # Errors
    /// The system's, on the lock's file.
    pub fn begin(dir: &Path) -> Result<Serving> {
        let file = open(dir)?;
        lock(&file, dir, FlockOperation::LockShared)?;
        Ok(Serving(file))
    }
}

impl From<Serving> for OwnedFd {
    fn from(serving: Serving) -> OwnedFd {
        serving.0
    }
}

/// When nobody serves: nobody begins to until the result is dropped.
pub(super) fn unserved(dir: &Path) -> Result<Option<File>> {
    let file = open(dir)?;
    let free = lock(&file, dir, FlockOperation::NonBlockingLockExclusive)?;
    Ok(free.then(|| file.into()))
}

/// For reading: users of a store that belongs to somebody else may lock it too.
fn open(dir: &Path) -> Result<OwnedFd> {
    let path = dir.join("serving");
    let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC;
    openat(CWD, &path, flags, Mode::from_raw_mode(0o644))
        .map_err(|error| Error::io("open the lock", &path, error.into()))
}

fn lock(file: &OwnedFd, dir: &Path, how: FlockOperation) -> Result<bool> {
    loop {
        match flock(file, how) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(error) => return Err(Error::io("lock", &dir.join("serving"), error.into())),
        }
    }
}
