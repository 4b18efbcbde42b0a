//! What other processes do with the history server: have one started, keep it alive, ask how it is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use atoll_store::Result;
use serde::{Deserialize, Serialize};

use crate::HistoryPaths;

/// How to start one of atoll's helper processes: a command whose further arguments reach [`crate::main`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// Program and first arguments.
    pub command: Vec<OsString>,
}

/// A history server that answers; it does not end while this is held.
#[derive(Debug)]
pub struct HistoryServer {
    /// Where it shows the store.
    pub paths: HistoryPaths,
    /// How it is.
    pub info: ServerInfo,
    _connection: UnixStream,
}

/// What a history server says about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerInfo {
    /// The server's process.
    pub pid: u32,
    /// Its supervisor's process; 0 when that died.
    pub supervisor_pid: u32,
    /// The store's folder.
    pub store: PathBuf,
    /// The store's id.
    pub store_id: String,
    /// The HISTORY folder.
    pub history: PathBuf,
    /// `dev` or `uring`.
    pub transport: String,
    /// Memory in use, in bytes.
    pub rss_bytes: u64,
    /// Requests by kind since the server was started, both mounts together.
    pub requests: BTreeMap<String, u64>,
    /// Seconds since it was started.
    pub uptime_s: f64,
    /// How many servers of this mount died and were replaced.
    pub restarts: u64,
    /// Workspaces that are mounted above it.
    pub pins: Vec<String>,
}

/// Makes sure that the store's history is mounted and served, for the calling user, and returns when it is.
/// Any number of processes may ask at the same time.
///
/// # Errors
/// `Permission` or `Unsupported` where FUSE cannot be mounted, with what would mend it.
pub fn ensure_server(store_dir: &Path, helper: &Helper) -> Result<HistoryServer> {
    let _ = (store_dir, helper);
    todo!()
}

/// The calling user's history servers that answer.
pub fn servers() -> Result<Vec<ServerInfo>> {
    todo!()
}

impl HistoryServer {
    /// Says that a workspace is mounted above this history, until [`unpin`]: the server then stays. The file
    /// is small and not durable: it is of this boot only.
    pub fn pin(&self, workspace: &str, mountpoint: &Path) -> Result<()> {
        let _ = (workspace, mountpoint);
        todo!()
    }
}

/// Takes a [`HistoryServer::pin`] back; one that is not there is fine.
pub fn unpin(paths: &HistoryPaths, workspace: &str) -> Result<()> {
    let _ = (paths, workspace);
    todo!()
}
