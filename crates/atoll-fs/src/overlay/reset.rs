//! What becomes of an upper after its last capture, in an order that a crash at any point leaves whole.
//!
//! An upper that equals a commit is first renamed to `upper.HEAD` (its folder synced), then the workspace's record
//! moves its base to that commit, then the renamed folders are deleted. After a crash the name tells what to do:
//! when the record's base is HEAD, the rest of the deletion; else the record had not moved, and the upper goes
//! back to its name: it equals HEAD either way.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use atoll_store::{Error, Hash, Result};

const UPPER: &str = "upper";
const WORK: &str = "work";

/// Whether the upper holds nothing at all: the workspace shows exactly its base.
///
/// # Errors
/// `NotFound` when there is no upper.
pub fn upper_is_empty(upper: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(upper).map_err(|error| Error::io("list", upper, error))?;
    Ok(entries.next().is_none())
}

/// What [`recover_upper`] found in a workspace's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpperState {
    /// An upper is there, for the record's base.
    Kept,
    /// There is none. The workspace shows the base; where something had been captured (a scratch in memory
    /// after a reboot), the caller first moves the base to the head.
    Missing,
}

/// Puts the folders `upper` and `work` of an unmounted workspace in order after a crash. Called before every mount,
/// with the base that the workspace's record names. `dir` is the folder that holds them.
///
/// # Errors
/// `Io` when a rename or a deletion fails.
pub fn recover_upper(dir: &Path, base: &Hash) -> Result<UpperState> {
    for name in names(dir)? {
        let Some((plain, head)) = let_go(&name) else { continue };
        if head != base.hex() && !dir.join(plain).exists() {
            rename(dir, &name, plain)?;
        }
    }
    sync(dir)?;
    purge(dir)?;
    if dir.join(UPPER).exists() {
        return Ok(UpperState::Kept);
    }
    // The kernel would refuse a work folder that belonged to another upper.
    let work = dir.join(WORK);
    if work.exists() {
        fs::remove_dir_all(&work).map_err(|error| Error::io("delete", &work, error))?;
    }
    Ok(UpperState::Missing)
}

/// Lets go of an unmounted upper whose state is the commit `head`: the caller captured it after the unmount, and
/// published it or found nothing changed. `dir` is the folder that holds `upper` and `work`; `moved` stores the
/// workspace's record with base and head = `head`, durably. Afterwards neither folder exists.
///
/// # Errors
/// `Io` when a rename fails or what `moved` fails with; then the upper is as it was. A deletion that fails leaves
/// folders that [`recover_upper`] deletes.
pub fn reset_upper(dir: &Path, head: &Hash, moved: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let aside = |name: &str| format!("{name}.{head}");
    // The work folder first: it is worth nothing without its upper, and the kernel makes another one.
    if dir.join(WORK).exists() {
        rename(dir, WORK, &aside(WORK))?;
    }
    rename(dir, UPPER, &aside(UPPER))?;
    sync(dir)?;
    if let Err(error) = moved() {
        rename(dir, &aside(UPPER), UPPER)?;
        if dir.join(aside(WORK)).exists() {
            rename(dir, &aside(WORK), WORK)?;
        }
        return Err(error);
    }
    purge(dir)
}

/// The name and the commit of a folder that was let go. What was set aside after the crash of a volatile mount
/// (`upper.aside-1`) is the user's and none of it.
fn let_go(name: &str) -> Option<(&'static str, &str)> {
    let (plain, head) = name.split_once('.')?;
    let plain = [UPPER, WORK].into_iter().find(|known| *known == plain)?;
    (head.len() == 64).then_some((plain, head))
}

/// Deletes what was let go.
fn purge(dir: &Path) -> Result<()> {
    for name in names(dir)?.iter().filter(|name| let_go(name).is_some()) {
        let path = dir.join(name);
        fs::remove_dir_all(&path).map_err(|error| Error::io("delete", &path, error))?;
    }
    Ok(())
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let failed = |error: io::Error| Error::io("list", dir, error);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        names.extend(std::str::from_utf8(name.as_bytes()).map(str::to_owned));
    }
    Ok(names)
}

fn rename(dir: &Path, from: &str, to: &str) -> Result<()> {
    let from = dir.join(from);
    fs::rename(&from, dir.join(to)).map_err(|error| Error::io("rename", &from, error))
}

fn sync(dir: &Path) -> Result<()> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| Error::io("sync", dir, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use atoll_store::Code;

    fn workspace() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("upper/a")).unwrap();
        fs::write(dir.path().join("upper/a/file"), "x").unwrap();
        fs::create_dir_all(dir.path().join("work/work")).unwrap();
        dir
    }

    #[test]
    fn a_reset_leaves_nothing_and_moves_the_record_before_it_deletes() {
        let dir = workspace();
        let head = Hash::of(b"head");
        let mut seen = false;
        reset_upper(dir.path(), &head, &mut || {
            seen = dir.path().join(format!("upper.{head}/a/file")).exists();
            Ok(())
        })
        .unwrap();
        assert!(seen);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert_eq!(recover_upper(dir.path(), &head).unwrap(), UpperState::Missing);
    }

    #[test]
    fn a_record_that_cannot_move_leaves_the_upper_in_place() {
        let dir = workspace();
        let failed =
            reset_upper(dir.path(), &Hash::of(b"head"), &mut || Err(Error::new(Code::NoSpace, "No space.")));
        assert_eq!(failed.unwrap_err().code, Code::NoSpace);
        assert!(dir.path().join("upper/a/file").exists());
        assert!(dir.path().join("work/work").exists());
    }

    #[test]
    fn a_crash_before_the_record_moved_gives_the_upper_back() {
        let (dir, base, head) = (workspace(), Hash::of(b"base"), Hash::of(b"head"));
        fs::rename(dir.path().join("work"), dir.path().join(format!("work.{head}"))).unwrap();
        fs::rename(dir.path().join("upper"), dir.path().join(format!("upper.{head}"))).unwrap();
        assert_eq!(recover_upper(dir.path(), &base).unwrap(), UpperState::Kept);
        assert!(dir.path().join("upper/a/file").exists());
        assert!(dir.path().join("work/work").exists());
    }

    #[test]
    fn a_crash_between_the_renames_gives_the_work_folder_back() {
        let (dir, base, head) = (workspace(), Hash::of(b"base"), Hash::of(b"head"));
        fs::rename(dir.path().join("work"), dir.path().join(format!("work.{head}"))).unwrap();
        assert_eq!(recover_upper(dir.path(), &base).unwrap(), UpperState::Kept);
        assert!(dir.path().join("work/work").exists());
    }

    #[test]
    fn a_crash_after_the_record_moved_deletes_the_rest() {
        let (dir, head) = (workspace(), Hash::of(b"head"));
        fs::rename(dir.path().join("upper"), dir.path().join(format!("upper.{head}"))).unwrap();
        fs::create_dir(dir.path().join("upper.aside-1")).unwrap();
        fs::create_dir(dir.path().join("upper")).unwrap();
        assert_eq!(recover_upper(dir.path(), &head).unwrap(), UpperState::Kept);
        assert!(upper_is_empty(&dir.path().join("upper")).unwrap());
        assert!(dir.path().join("upper.aside-1").exists());
        assert!(!dir.path().join(format!("upper.{head}")).exists());
    }
}
