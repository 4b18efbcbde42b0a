//! Where the history mount of a store is, and what stands beside it.

use std::path::{Path, PathBuf};

use atoll_store::Commit;

use crate::history::Side;

/// The places of one store's history mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryPaths {
    /// HISTORY itself: a private folder in the user's run-time folder.
    pub root: PathBuf,
    /// The mount with the trees that have no extended attributes.
    pub plain: PathBuf,
    /// The mount with the trees that have.
    pub xattr: PathBuf,
}

impl HistoryPaths {
    /// The places for the store with this id, for the calling user:
    /// `$XDG_RUNTIME_DIR/atoll/STOREID8`; where that is not set `/run/atoll/UID/STOREID8` as root, and
    /// `/tmp/atoll-UID/STOREID8` as another user.
    pub fn of(store_id: &str) -> Self {
        Self::at(Self::parent().join(&store_id[..store_id.len().min(8)]))
    }

    /// The folder that the HISTORY folders of all the user's stores are in.
    pub fn parent() -> PathBuf {
        match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(dir) if Path::new(&dir).is_absolute() => Path::new(&dir).join("atoll"),
            _ if rustix::process::geteuid().is_root() => PathBuf::from("/run/atoll/0"),
            _ => PathBuf::from(format!("/tmp/atoll-{}", rustix::process::getuid().as_raw())),
        }
    }

    pub(crate) fn at(root: PathBuf) -> Self {
        HistoryPaths { plain: root.join("plain"), xattr: root.join("xattr"), root }
    }

    /// The mount of a side.
    pub fn side(&self, side: Side) -> &Path {
        match side {
            Side::Plain => &self.plain,
            Side::Xattr => &self.xattr,
        }
    }

    /// A commit's folder: the lower of an overlay.
    pub fn commit(&self, commit: &Commit) -> PathBuf {
        self.side(Side::of(commit)).join("commits").join(commit.id.hex())
    }

    /// Held while a server is started or stopped.
    pub(crate) fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Held by the supervisor and its server for as long as one of them lives.
    pub(crate) fn alive(&self) -> PathBuf {
        self.root.join("alive")
    }

    /// The server's control socket.
    pub(crate) fn control(&self) -> PathBuf {
        self.root.join("control")
    }

    /// What the server and its supervisor have to say.
    pub fn log(&self) -> PathBuf {
        self.root.join("log")
    }

    /// One file for each workspace that is mounted above this history.
    pub(crate) fn pins(&self) -> PathBuf {
        self.root.join("pins")
    }
}
