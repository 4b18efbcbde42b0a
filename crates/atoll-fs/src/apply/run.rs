//! The steps of a decided apply. Each can be done twice, so a run that was cut off is done again from the first.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use atoll_store::tree::FileType;
use atoll_store::{Error, Result};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::ApplyReport;
use super::journal::{self, Decided, Step};
use super::stage::slot_name;
use super::target::Target;
use crate::export::meta::Lost;
use crate::ingest::xattrs::{self, Xattrs};
use crate::scan::host::open_beneath;
use crate::scan::{HostStat, parent};

/// Where things go that were in the way.
const ASIDE: &str = "aside-";

/// Does the steps, then removes what was set aside and the journal.
pub(super) fn finish(journal: &Path, decided: &Decided) -> Result<ApplyReport> {
    let mut report = ApplyReport { lost: decided.lost.clone(), ..ApplyReport::default() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let staging = match rustix::fs::open(&decided.staging, flags, Mode::empty()) {
        Ok(staging) => staging,
        // All was done but the last line.
        Err(Errno::NOENT) => {
            journal::remove(journal)?;
            return Ok(report);
        }
        Err(error) => return Err(Error::io("open", &decided.staging, error.into())),
    };
    let run = Run { target: Target::open(&decided.target)?, staging };
    let done = decided
        .steps
        .iter()
        .try_for_each(|step| run.step(step, &mut report))
        .and_then(|()| run.sync(decided));
    if let Err(mut error) = done {
        error.message.push_str(" The apply is half done; mend this and run it again to finish it.");
        return Err(error);
    }
    report.lost.sort();
    report.lost.dedup();
    report.kept_folders.sort();
    let aside = clear_slots(&decided.staging, decided.force)?;
    report.kept_aside = aside.then(|| decided.staging.clone());
    journal::remove(journal)?;
    Ok(report)
}

/// Removes a staging folder whole.
pub(super) fn clear(staging: &Path) -> Result<()> {
    match staging.symlink_metadata() {
        Ok(_) => remove_all(staging),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::io("look at", staging, error)),
    }
}

/// Removes what was taken away. True when something that was in the way at the last moment is kept in it.
fn clear_slots(staging: &Path, force: bool) -> Result<bool> {
    let failed = |error| Error::io("clear", staging, error);
    let mut aside = false;
    for entry in fs::read_dir(staging).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if !force && entry.file_name().to_string_lossy().starts_with(ASIDE) {
            aside = true;
        } else {
            remove_all(&entry.path())?;
        }
    }
    if !aside {
        fs::remove_dir(staging).map_err(failed)?;
    }
    Ok(aside)
}

/// Removes a file or a whole folder, also one that forbids it.
fn remove_all(path: &Path) -> Result<()> {
    super::fault::hit();
    let failed = |error| Error::io("remove", path, error);
    if !path.symlink_metadata().map_err(failed)?.is_dir() {
        return fs::remove_file(path).map_err(failed);
    }
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            unlock(path).map_err(failed)?;
            fs::remove_dir_all(path).map_err(failed)
        }
        other => other.map_err(failed),
    }
}

fn unlock(dir: &Path) -> std::io::Result<()> {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            unlock(&entry.path())?;
        }
    }
    Ok(())
}

struct Run {
    target: Target,
    staging: OwnedFd,
}

impl Run {
    fn step(&self, step: &Step, report: &mut ApplyReport) -> Result<()> {
        super::fault::hit();
        match step {
            Step::Take { path, ino, slot } => {
                if let Some((dir, name)) = self.find(path, *ino)? {
                    rustix::fs::renameat(&*dir, name, &self.staging, &slot_name(*slot)[..])
                        .map_err(|error| self.target.failed("move away", path, error))?;
                    self.target.forget();
                }
            }
            Step::RemoveDir { path, ino } => {
                if let Some((dir, name)) = self.find(path, *ino)? {
                    match rustix::fs::unlinkat(&*dir, name, AtFlags::REMOVEDIR) {
                        Ok(()) => self.target.forget(),
                        Err(Errno::NOTEMPTY | Errno::EXIST) => report.kept_folders.push(path.clone()),
                        Err(error) => return Err(self.target.failed("remove", path, error)),
                    }
                }
            }
            Step::Put { path, slot, is_dir } => self.put(path, *slot, *is_dir)?,
            Step::Meta { path, mode, uid, gid, xattrs, is_link } => {
                let lost = self.meta(path, (*uid, *gid), (!is_link).then_some(*mode), xattrs)?;
                report.lost.extend(lost.into_iter().map(|lost| (path.clone(), lost.to_string())));
            }
        }
        Ok(())
    }

    /// The folder and name of a path, if the host's file there is the one that is meant: otherwise the step has been
    /// done, and something else may be there by now.
    fn find<'a>(&self, path: &'a [u8], ino: u64) -> Result<Option<(std::rc::Rc<OwnedFd>, &'a [u8])>> {
        let found = self.target.folder_of(path).and_then(|(dir, name)| {
            let stat = HostStat::at(&*dir, name)?;
            Ok((stat.ino == ino).then_some((dir, name)))
        });
        match found {
            Ok(found) => Ok(found),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            Err(error) => Err(self.target.failed("look at", path, error)),
        }
    }

    fn put(&self, path: &[u8], slot: u32, is_dir: bool) -> Result<()> {
        let slot = slot_name(slot);
        let failed = |error| self.target.failed("write", path, error);
        match HostStat::at(&self.staging, &slot[..]) {
            Ok(_) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(failed(error)),
        }
        let (dir, name) = self.target.folder_of(path).map_err(failed)?;
        let put = || rustix::fs::renameat(&self.staging, &slot[..], &*dir, name);
        match put() {
            // Two names of one file: rename does nothing and leaves both.
            Ok(()) => match rustix::fs::unlinkat(&self.staging, &slot[..], AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                Err(error) => return Err(failed(error)),
            },
            Err(Errno::NOTEMPTY | Errno::EXIST) if is_dir && self.drop_empty(&slot) => {}
            // Something is in the way since the plan was made, or files of the folder's own are.
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::ISDIR | Errno::NOTDIR) => {
                let mut number = 0;
                let aside = loop {
                    let aside = format!("{ASIDE}{number}").into_bytes();
                    if HostStat::at(&self.staging, &aside[..]) == Err(Errno::NOENT) {
                        break aside;
                    }
                    number += 1;
                };
                rustix::fs::renameat(&*dir, name, &self.staging, &aside[..]).map_err(failed)?;
                super::fault::hit();
                put().map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        self.target.forget();
        Ok(())
    }

    /// A new folder finds one that is there already: it is not needed.
    fn drop_empty(&self, slot: &[u8]) -> bool {
        rustix::fs::unlinkat(&self.staging, slot, AtFlags::REMOVEDIR).is_ok()
    }

    fn meta(
        &self,
        path: &[u8],
        (uid, gid): (u32, u32),
        mode: Option<u16>,
        wanted: &Xattrs,
    ) -> Result<Vec<Lost>> {
        let failed = |error| self.target.failed("set the attributes of", path, error);
        let mut lost = Vec::new();
        let (dir, name) = match self.target.folder_of(path) {
            Ok(found) => found,
            Err(Errno::NOENT) => return Ok(lost),
            Err(error) => return Err(failed(error)),
        };
        let now = match HostStat::at(&*dir, name) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(lost),
            Err(error) => return Err(failed(error)),
        };
        if (now.uid, now.gid) != (uid, gid) {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            match rustix::fs::chownat(&*dir, name, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), flags)
            {
                Err(Errno::PERM | Errno::INVAL) => lost.push(Lost::Owner),
                other => other.map_err(failed)?,
            }
        }
        let present = xattrs::read_at(&*dir, name).unwrap_or_default();
        for (attribute, value) in wanted.iter().filter(|attribute| !present.contains(attribute)) {
            if xattrs::set_at(&*dir, name, attribute, value).is_err() {
                lost.push(Lost::Xattr(attribute.clone()));
            }
        }
        for (attribute, _) in
            present.iter().filter(|(name, _)| !wanted.iter().any(|(other, _)| other == name))
        {
            if xattrs::remove_at(&*dir, name, attribute).is_err() {
                lost.push(Lost::Xattr(attribute.clone()));
            }
        }
        if let Some(mode) = mode
            && now.kind != FileType::Symlink
        {
            // By descriptor: chmod on a name would follow a link.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(&*dir, name, flags, Mode::empty()).map_err(failed)?;
            if HostStat::of(&file).map_err(failed)?.kind != FileType::Symlink {
                let place = format!("/proc/self/fd/{}", file.as_raw_fd());
                rustix::fs::chmod(&place, Mode::from_raw_mode(mode.into())).map_err(failed)?;
            }
        }
        Ok(lost)
    }

    /// The folders that names came to and went from; all of the file system when they are many.
    fn sync(&self, decided: &Decided) -> Result<()> {
        let failed = |error: Errno| Error::io("sync", &decided.target, error.into());
        let mut folders: BTreeSet<&[u8]> = BTreeSet::new();
        for step in &decided.steps {
            let (Step::Take { path, .. }
            | Step::RemoveDir { path, .. }
            | Step::Put { path, .. }
            | Step::Meta { path, .. }) = step;
            folders.insert(parent(path));
        }
        let few = folders.len() <= 64 && !decided.steps.iter().any(|step| matches!(step, Step::Meta { .. }));
        let root =
            rustix::fs::openat(self.target.root(), c".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let root = root.map_err(failed)?;
        if !few {
            return rustix::fs::syncfs(&root).map_err(failed);
        }
        for folder in folders {
            match open_beneath(std::os::fd::AsFd::as_fd(&root), folder, OFlags::RDONLY | OFlags::DIRECTORY) {
                Ok(dir) => rustix::fs::fsync(dir).map_err(failed)?,
                // It went away with the steps.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}
