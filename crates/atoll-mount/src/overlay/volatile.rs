//! The marker that the kernel leaves in the work folder of an overlay whose `fsync` does nothing.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use atoll_store::{Error, Result};

/// Whether the overlay of this work folder was mounted volatile and not unmounted cleanly since.
pub fn is_volatile(work: &Path) -> bool {
    marker(work).exists()
}

fn marker(work: &Path) -> PathBuf {
    work.join("work/incompat/volatile")
}

/// After a clean unmount: syncs the upper's file system and removes the marker, so that it can be mounted again.
/// Does nothing where there is no marker.
///
/// # Errors
/// `Io` when the sync failed: then the marker stays, and the upper is not to be trusted.
pub fn clear_volatile(upper: &Path, work: &Path) -> Result<()> {
    let marker = marker(work);
    if !marker.exists() {
        return Ok(());
    }
    let synced = File::open(upper).and_then(|upper| rustix::fs::syncfs(&upper).map_err(Into::into));
    synced.map_err(|error| Error::io("sync the changes in", upper, error))?;
    // The kernel keeps one folder for each feature that an older kernel must not mount over.
    let failed = |error| Error::io("remove the volatile marker", &marker, error);
    fs::remove_dir_all(&marker).map_err(failed)?;
    fs::remove_dir(work.join("work/incompat")).or_else(|error| match error.kind() {
        std::io::ErrorKind::DirectoryNotEmpty => Ok(()),
        _ => Err(failed(error)),
    })
}

/// After a crash: renames `upper` and `work` to names with `.aside-N` and returns where the old upper is now, so
/// that its owner can look into it. Neither folder exists afterwards: mounting makes new ones.
///
/// # Errors
/// `Io` when a rename fails.
pub fn set_aside(upper: &Path, work: &Path) -> Result<PathBuf> {
    let name = |folder: &Path, number: u32| {
        let mut name = folder.file_name().unwrap_or_default().to_owned();
        name.push(format!(".aside-{number}"));
        folder.with_file_name(name)
    };
    let mut number = 1;
    while name(upper, number).exists() || name(work, number).exists() {
        number += 1;
    }
    let aside = name(upper, number);
    let rename =
        |from: &Path, to: &Path| fs::rename(from, to).map_err(|error| Error::io("rename", from, error));
    rename(upper, &aside)?;
    rename(work, &name(work, number))?;
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_is_removed_once_the_upper_is_synced() {
        let dir = tempfile::tempdir().unwrap();
        let (upper, work) = (dir.path().join("upper"), dir.path().join("work"));
        fs::create_dir_all(work.join("work/incompat/volatile/dirty")).unwrap();
        fs::create_dir(&upper).unwrap();
        assert!(is_volatile(&work));
        clear_volatile(&upper, &work).unwrap();
        assert!(!is_volatile(&work));
        clear_volatile(&upper, &work).unwrap();
    }

    #[test]
    fn what_a_crash_left_is_kept_under_a_free_name() {
        let dir = tempfile::tempdir().unwrap();
        let (upper, work) = (dir.path().join("upper"), dir.path().join("work"));
        for number in 1..=2 {
            fs::create_dir_all(&upper).unwrap();
            fs::create_dir_all(&work).unwrap();
            fs::write(upper.join("file"), [number]).unwrap();
            let aside = set_aside(&upper, &work).unwrap();
            assert_eq!(fs::read(aside.join("file")).unwrap(), [number]);
            assert!(!upper.exists() && !work.exists());
        }
        assert!(dir.path().join("upper.aside-2/file").exists());
    }
}
