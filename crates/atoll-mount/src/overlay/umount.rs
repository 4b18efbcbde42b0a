//! Unmounts a workspace; never lazily.

use std::io;
use std::path::Path;
use std::thread;
use std::time::Duration;

use atoll_store::{Code, Error, Result};
use rustix::io::Errno;

use super::holders::{holders, listed};
use super::table::find_mount;

/// A process that looks at every mount (`df`, `lsof`) holds one for a moment; a new mount namespace has a copy of every
/// mount until it lets go of them.
const TRIES: u32 = 25;

/// Unmounts the workspace at `target`. An overlay that is not volatile flushes the whole file system of its upper
/// first, other people's files too: this can take as long as their writing does.
///
/// # Errors
/// `Busy` naming each process (and its id) that stands in it or holds a file of it, also through a mount namespace
/// of its own, where the kernel would let the unmount pass and the process go on writing; `NotFound` when no
/// workspace is mounted there.
pub fn umount(target: &Path) -> Result<()> {
    let place = target.display();
    if find_mount(target)?.is_none_or(|mount| !mount.is_workspace()) {
        return Err(Error::new(Code::NotFound, format!("No workspace is mounted at {place}.")));
    }
    let mut users = Vec::new();
    for _ in 0..TRIES {
        // Asked before: through a namespace of its own a process could go on writing after the unmount.
        users = holders(target)?;
        if users.is_empty() {
            match atoll_fuse::mount::unmount(target, false) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
                Err(error) => return Err(Error::io("unmount the workspace at", target, error)),
            }
        }
        thread::sleep(Duration::from_millis(20));
    }
    let text = if users.is_empty() {
        format!(
            "The workspace at {place} is in use, by a process that is not visible here (another container or mount \
             namespace); end it and try again."
        )
    } else {
        format!("The workspace at {place} is in use by {}; end that and try again.", listed(&users))
    };
    Err(Error { code: Code::Busy, message: text, source: Some(Errno::BUSY.into()) })
}
