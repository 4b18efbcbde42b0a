//! The folder that is changed: reached by descriptors only, so that no link leads out of it.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use atoll_store::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::scan::host::{open_beneath, open_file};
use crate::scan::{HostStat, parent};

pub(super) struct Target {
    pub path: PathBuf,
    root: OwnedFd,
    /// The folder that was asked for last: neighbours come one after the other.
    last: std::cell::RefCell<Option<(Vec<u8>, Rc<OwnedFd>)>>,
}

/// What is at a path.
#[derive(Debug, Clone, Copy)]
pub(super) enum Here {
    /// Nothing.
    Nothing,
    /// A file or folder.
    Is(HostStat),
    /// A folder above is a symbolic link.
    BehindLink,
}

impl Target {
    pub fn open(path: &Path) -> Result<Target> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|e| Error::io("open the folder", path, e.into()))?;
        Ok(Target { path: path.to_path_buf(), root, last: Default::default() })
    }

    pub fn root(&self) -> &OwnedFd {
        &self.root
    }

    /// The folder that holds `path`, and the name in it.
    pub fn folder_of<'a>(&self, path: &'a [u8]) -> rustix::io::Result<(Rc<OwnedFd>, &'a [u8])> {
        let above = parent(path);
        let name = &path[if above.is_empty() { 0 } else { above.len() + 1 }..];
        if let Some((last, dir)) = &*self.last.borrow()
            && last == above
        {
            return Ok((dir.clone(), name));
        }
        let dir = Rc::new(open_beneath(self.root.as_fd(), above, OFlags::PATH | OFlags::DIRECTORY)?);
        *self.last.borrow_mut() = Some((above.to_vec(), dir.clone()));
        Ok((dir, name))
    }

    /// Folders moved: paths may lead elsewhere now.
    pub fn forget(&self) {
        self.last.borrow_mut().take();
    }

    pub fn here(&self, path: &[u8]) -> Result<Here> {
        let stat = if path.is_empty() {
            HostStat::of(&self.root)
        } else {
            self.folder_of(path).and_then(|(dir, name)| HostStat::at(&*dir, name))
        };
        match stat {
            Ok(stat) => Ok(Here::Is(stat)),
            Err(Errno::NOENT) => Ok(Here::Nothing),
            // With openat2 a link gives ELOOP, without it ENOTDIR, as a file does.
            Err(Errno::LOOP) => Ok(Here::BehindLink),
            Err(Errno::NOTDIR) => {
                Ok(if self.is_behind_link(path)? { Here::BehindLink } else { Here::Nothing })
            }
            Err(error) => Err(self.failed("look at", path, error)),
        }
    }

    fn is_behind_link(&self, path: &[u8]) -> Result<bool> {
        use atoll_store::tree::FileType;
        let mut above = parent(path);
        while !above.is_empty() {
            if let Ok((dir, name)) = self.folder_of(above)
                && let Ok(stat) = HostStat::at(&*dir, name)
            {
                return Ok(stat.kind == FileType::Symlink);
            }
            above = parent(above);
        }
        Ok(false)
    }

    pub fn open_file(&self, path: &[u8]) -> Result<File> {
        let opened = self.folder_of(path).and_then(|(dir, name)| open_file(&*dir, name));
        opened.map_err(|error| self.failed("read", path, error))
    }

    pub fn failed(&self, doing: &str, path: &[u8], error: Errno) -> Error {
        Error::io(doing, &self.path.join(OsStr::from_bytes(path)), error.into())
    }
}
