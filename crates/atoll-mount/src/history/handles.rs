//! Gives the kernel a path to what it asks for by a handle, so that it does not make a nameless entry of it
//! (see [`atoll_fuse::FileSystem::lookup_handle`] for what is wrong with those).

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use atoll_store::Ino;
use atoll_store::tree::TreeView;
use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::source::Source;
use super::trees::Tree;

/// So many entries are held until the kernel has taken them up; it needs them for microseconds.
const HELD: usize = 64;

pub(super) struct Handles {
    mount: PathBuf,
    held: Mutex<VecDeque<OwnedFd>>,
}

impl Handles {
    /// `mount`: where the file system is mounted.
    pub fn new(mount: PathBuf) -> Self {
        Handles { mount, held: Mutex::default() }
    }

    /// Looks at the file by its path. The requests that this causes are answered by other threads. When it
    /// fails (the mount is gone, this user may not go there) the kernel has to do without.
    pub fn connect(&self, source: &dyn Source, tree: &Tree, ino: Ino) {
        let view = TreeView::new(source.objects(), tree.root);
        let Ok(Some(path)) = view.path(ino) else { return };
        match self.open(tree, &path) {
            Ok(entry) => {
                let mut held = self.held.lock();
                if held.len() >= HELD {
                    held.pop_front();
                }
                held.push_back(entry);
            }
            Err(error) => log::debug!("A file handle got no path: {error}"),
        }
    }

    /// Closes what is held: it keeps the mount busy.
    pub fn let_go(&self) {
        self.held.lock().clear();
    }

    /// Name by name: a path may be longer than the kernel takes at once.
    fn open(&self, tree: &Tree, path: &[u8]) -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let top = self.mount.join("commits").join(tree.commit.hex());
        let mut entry = openat(CWD, &top, flags, Mode::empty())?;
        for name in path.split(|byte| *byte == b'/') {
            entry = openat(&entry, name, flags, Mode::empty())?;
        }
        Ok(entry)
    }
}
