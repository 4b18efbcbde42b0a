//! Reads one folder.

use std::io::Read;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;

use atoll_store::tree::FileType;
use atoll_store::{Error, Result};
use rustix::fs::RawDir;
use rustix::io::Errno;

use super::host::{self, HostStat};
use super::{ScanDir, ScanEntry, ScanOptions, coarse_now, join, unreadable};
use crate::ignore::{self, Ignores};
use crate::import::SkipReason;

/// A folder's names and their stat data; `None` when it is gone, or is left out as unreadable.
pub(super) fn read(
    root: BorrowedFd<'_>,
    path: &[u8],
    above: &Ignores,
    options: &ScanOptions<'_>,
    shown: &dyn Fn(&[u8]) -> PathBuf,
) -> Result<Option<ScanDir>> {
    let may_skip = options.may_skip() && !path.is_empty();
    let failed = |error: Errno| unreadable("read the folder", &shown(path), error, may_skip);
    let started = coarse_now();
    let opened = host::open_dir(root, path).and_then(|dir| HostStat::of(&dir).map(|stat| (dir, stat)));
    let (dir, stat) = match opened {
        Ok(opened) => opened,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE) if !path.is_empty() => {
            return Ok(None);
        }
        Err(Errno::ACCESS | Errno::PERM) if options.skip_unreadable && !path.is_empty() => {
            // There is no stat data of a folder that cannot be opened but its parent's: any will do.
            let stat = HostStat::of(root).map_err(failed)?;
            return Ok(Some(ScanDir::left_out(stat, SkipReason::Unreadable)));
        }
        Err(error) => return Err(failed(error)),
    };
    let mut names: Vec<Box<[u8]>> = Vec::new();
    let mut buffer = [const { MaybeUninit::uninit() }; 32 << 10];
    let mut listing = RawDir::new(&dir, &mut buffer);
    while let Some(entry) = listing.next() {
        match entry {
            Ok(entry) => match entry.file_name().to_bytes() {
                b"." | b".." => {}
                name => names.push(name.into()),
            },
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
    }
    names.sort_unstable();
    let mut ignores = above.clone();
    if options.ignores.is_some()
        && has(&names, ignore::FILE_NAME)
        && let Some(text) = patterns(&dir, options, shown, path)?
    {
        ignores = above.with_file(path, &text)?;
    }
    if options.skip_stores && is_store(&names) {
        return Ok(Some(ScanDir::left_out(stat, SkipReason::Store)));
    }
    let mut found = ScanDir {
        stat,
        entries: Vec::with_capacity(names.len()),
        // A ctime far in the future comes from a clock that was set back, not from this tick.
        racy: stat.ctime >= started && stat.ctime.sec <= started.sec + 1,
        ignores,
        skipped: Vec::new(),
        ignored: 0,
        verdict: None,
    };
    for name in names {
        let stat = match HostStat::at(&dir, &name[..]) {
            Ok(stat) => stat,
            // It was listed and is gone: the folder has changed and will be read again.
            Err(Errno::NOENT) => continue,
            // A folder that may be listed and not entered (mode r--).
            Err(Errno::ACCESS | Errno::PERM) if options.skip_unreadable => {
                found.skipped.push((name, SkipReason::Unreadable));
                continue;
            }
            Err(error @ (Errno::ACCESS | Errno::PERM)) => {
                return Err(unreadable("enter the folder", &shown(path), error, options.may_skip()));
            }
            Err(error) => {
                let place = shown(&join(path, &name));
                return Err(Error::io("read the stat data of", &place, error.into()));
            }
        };
        let is_dir = stat.kind == FileType::Dir;
        if !found.ignores.is_empty() && found.ignores.leaves_out(&join(path, &name), is_dir) {
            found.ignored += 1;
        } else if stat.mount_root || stat.dev != found.stat.dev {
            found.skipped.push((name, SkipReason::Mount));
        } else {
            found.entries.push(ScanEntry { name, stat });
        }
    }
    Ok(Some(found))
}

fn has(names: &[Box<[u8]>], name: &[u8]) -> bool {
    names.binary_search_by(|have| (**have).cmp(name)).is_ok()
}

/// A store is known by its own file and what stands beside it, not by its name.
fn is_store(names: &[Box<[u8]>]) -> bool {
    has(names, b"atoll.toml") && has(names, b"packs") && (has(names, b"meta.db") || has(names, b"oplog"))
}

/// The text of the folder's `.atollignore`, when it is a file. One that cannot be read is an error even where that may
/// be left out: what it keeps out of history is not known.
fn patterns(
    dir: &OwnedFd,
    options: &ScanOptions<'_>,
    shown: &dyn Fn(&[u8]) -> PathBuf,
    path: &[u8],
) -> Result<Option<Vec<u8>>> {
    let failed = |error| unreadable("read", &shown(&join(path, ignore::FILE_NAME)), error, false);
    match HostStat::at(dir, ignore::FILE_NAME) {
        Ok(stat) if stat.kind == FileType::File => {}
        Ok(_) | Err(Errno::NOENT) => return Ok(None),
        // The folder cannot be entered: nothing in it can be read.
        Err(Errno::ACCESS | Errno::PERM) if options.skip_unreadable => return Ok(None),
        Err(error @ (Errno::ACCESS | Errno::PERM)) => {
            return Err(unreadable("enter the folder", &shown(path), error, options.may_skip()));
        }
        Err(error) => return Err(failed(error)),
    }
    let mut text = Vec::new();
    let mut file = host::open_file(dir, ignore::FILE_NAME).map_err(failed)?;
    file.read_to_end(&mut text)
        .map_err(|error| Error::io("read", &shown(&join(path, ignore::FILE_NAME)), error))?;
    Ok(Some(text))
}
