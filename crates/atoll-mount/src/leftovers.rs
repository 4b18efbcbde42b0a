//! Folders below `STORE/workspaces` that no record names: what a process left that died while it took a workspace
//! away, or before the store knew of one that it made.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use atoll_store::{Error, Result, Store};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::overlay::mounts;

/// In a workspace's folder: nothing in it is needed any more. Written before the record goes.
const LET_GO: &str = "let-go";

/// Removes them, and says how many there were; `dry_run` only counts. One stays when a process holds a lock in it,
/// when something is mounted in it or over it, and when it holds what may be somebody's only copy: an upper that
/// was set aside, or one (or a journal) with something in it that was never let go (the store lost its record).
///
/// # Errors
/// The system's, naming the folder.
pub fn remove_leftovers(store: &Store, dry_run: bool) -> Result<u64> {
    let all = store.dir().join("workspaces");
    let mut count = 0;
    for name in names(&all).map_err(|error| Error::io("list", &all, error))? {
        let dir = all.join(&name);
        let is_id = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_id || !dir.is_dir() || is_known(store, &name)? {
            continue;
        }
        let failed = |error: io::Error| Error::io("remove the leftover", &dir, error);
        let Some(_lock) = lock(&dir.join("lock")).map_err(failed)? else { continue };
        // Whoever makes or mounts a workspace holds that lock before it is recorded.
        if is_known(store, &name)? || is_mounted(&dir)? || is_precious(&dir).map_err(failed)? {
            continue;
        }
        let held = held(&dir).map_err(failed)?;
        if held {
            continue;
        }
        count += 1;
        if !dry_run {
            fs::remove_dir_all(&dir).map_err(failed)?;
        }
    }
    Ok(count)
}

fn is_known(store: &Store, id: &str) -> Result<bool> {
    Ok(store.workspaces()?.iter().any(|workspace| workspace.id == id))
}

/// Takes the lock when nobody has it, and it is still the file of that name.
fn lock(path: &Path) -> io::Result<Option<File>> {
    use std::os::unix::fs::MetadataExt;
    let opened = File::options().create(true).truncate(false).write(true).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let same = fs::metadata(path).is_ok_and(|there| {
        file.metadata().is_ok_and(|ours| (ours.dev(), ours.ino()) == (there.dev(), there.ino()))
    });
    Ok(same.then_some(file))
}

/// Whether a process holds another lock in it: a command that runs, or is about to.
fn held(dir: &Path) -> io::Result<bool> {
    let runs = dir.join("runs");
    let files = names(&runs)?.into_iter().map(|name| runs.join(name)).chain([dir.join("inuse")]);
    for path in files.filter(|path| path.is_file()) {
        let file = File::open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn is_mounted(dir: &Path) -> Result<bool> {
    let inside = |path: PathBuf| path.starts_with(dir);
    Ok(mounts()?.into_iter().any(|mount| mount.upper().is_some_and(inside) || inside(mount.target)))
}

/// Whether it may hold what is nowhere else.
fn is_precious(dir: &Path) -> io::Result<bool> {
    let let_go = dir.join(LET_GO).exists();
    for place in [dir.to_path_buf(), dir.join("scratch")] {
        for name in names(&place)? {
            let work =
                matches!(&name[..], "upper" | "live") && !let_go && !names(&place.join(&name))?.is_empty();
            if work || name.starts_with("upper.aside-") {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The names in a folder; none when there is no such folder. Ours are text.
fn names(dir: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error),
    };
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
