//! What other processes do with the history server: have one started, keep it alive, ask how it is.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, BufReader, Read};
use std::net::Shutdown;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use atoll_store::{Code, Error, Result, Store};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::server_paths::HistoryPaths;
use crate::server_pins;
use crate::server_wire::{self as wire, Answer, Ask, Said};

/// How to start one of atoll's helper processes: a command whose further arguments reach [`crate::main`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Helper {
    /// Program and first arguments.
    pub command: Vec<String>,
}

/// A history server that answers; it does not end while this is held.
#[derive(Debug)]
pub struct HistoryServer {
    /// Where it shows the store.
    pub paths: HistoryPaths,
    /// How it is.
    pub info: ServerInfo,
    connection: UnixStream,
}

impl Drop for HistoryServer {
    /// Waits until the server knows, so that it can be stopped right afterwards.
    fn drop(&mut self) {
        let _ = self.connection.shutdown(Shutdown::Write);
        let _ = self.connection.set_read_timeout(Some(Duration::from_secs(1)));
        let _ = (&self.connection).read(&mut [0; 1]);
    }
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
pub fn ensure_server(store: &Store, helper: &Helper) -> Result<HistoryServer> {
    ensure_at(store.dir(), HistoryPaths::of(store.id()), helper)
}

fn ensure_at(store_dir: &Path, paths: HistoryPaths, helper: &Helper) -> Result<HistoryServer> {
    if let Some(server) = connect(&paths)? {
        return Ok(server);
    }
    private_dir(&paths.root)?;
    let lock = wire::lock_file(&paths.lock())?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(io::Error::from)?;
    if let Some(server) = connect(&paths)? {
        return Ok(server);
    }
    spawn(store_dir, &paths, helper)?;
    connect(&paths)?.ok_or_else(|| {
        Error::new(Code::Io, format!("The history server started and ended; see {}.", paths.log().display()))
    })
}

/// A connection to the server that serves there now; `None` when there is none.
fn connect(paths: &HistoryPaths) -> Result<Option<HistoryServer>> {
    let Ok(connection) = wire::connect(&paths.control()) else { return Ok(None) };
    match wire::ask(&connection, &Ask::Info) {
        Ok(Some(Answer::Info(info))) => {
            Ok(Some(HistoryServer { paths: paths.clone(), info: *info, connection }))
        }
        // It ended, or died, between the two: the caller looks again.
        _ => Ok(None),
    }
}

/// Starts a supervisor and waits until it serves.
fn spawn(store_dir: &Path, paths: &HistoryPaths, helper: &Helper) -> Result<()> {
    let store_dir = fs::canonicalize(store_dir).map_err(|error| Error::io("find", store_dir, error))?;
    let name = store_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let args = ["supervisor".as_ref(), store_dir.as_os_str(), paths.root.as_os_str(), name.as_ref()];
    start_supervisor(helper, &args, &paths.log(), "The history server")
}

/// Starts a supervisor and waits until it serves; `what` begins the sentence when it does not.
pub(crate) fn start_supervisor(helper: &Helper, args: &[&OsStr], log: &Path, what: &str) -> Result<()> {
    let (program, first) = helper
        .command
        .split_first()
        .ok_or_else(|| Error::new(Code::Usage, format!("{what} needs a helper command to be started.")))?;
    let mut child = Command::new(program)
        .args(first)
        .args(args)
        .env(wire::HELPER, serde_json::to_string(&helper.command).map_err(io::Error::from)?)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log_file(log)?)
        .spawn()
        .map_err(|error| Error::io("start the helper", Path::new(program), error))?;
    let stdout = child.stdout.take().expect("stdout is piped");
    let said = wire::hear::<Said>(&mut BufReader::new(stdout));
    // Reaped when it ends, for as long as this process lives.
    std::thread::spawn(move || child.wait());
    match said {
        Ok(Some(Said::Ready)) => Ok(()),
        Ok(Some(Said::Failed { code, message })) => Err(wire::error(&code, message)),
        _ => Err(Error::new(Code::Io, format!("{what} did not start; see {}.", log.display()))),
    }
}

/// The log goes on; a large one is kept once as `log.old`.
fn log_file(path: &Path) -> Result<File> {
    const LARGE: u64 = 1 << 20;
    if fs::metadata(path).is_ok_and(|meta| meta.len() > LARGE) {
        let _ = fs::rename(path, path.with_extension("old"));
    }
    let file = File::options().create(true).append(true).open(path);
    file.map_err(|error| Error::io("open", path, error))
}

/// Makes HISTORY with the folders above it, for this user alone.
fn private_dir(dir: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|error| Error::io("make the folder", dir, error))?;
    let meta = fs::symlink_metadata(dir).map_err(|error| Error::io("look at", dir, error))?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(Error::new(
            Code::Permission,
            format!(
                "{} is not a private folder of this user; remove it, or set XDG_RUNTIME_DIR to a folder that is.",
                dir.display()
            ),
        ));
    }
    Ok(())
}

/// The calling user's history servers that answer.
///
/// # Errors
/// `Io` when the run-time folder cannot be read.
pub fn servers() -> Result<Vec<ServerInfo>> {
    let parent = HistoryPaths::parent();
    let dir = match fs::read_dir(&parent) {
        Ok(dir) => dir,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("read", &parent, error)),
    };
    let mut found = Vec::new();
    for entry in dir {
        let root = entry.map_err(|error| Error::io("read", &parent, error))?.path();
        if let Some(server) = connect(&HistoryPaths::at(root))? {
            found.push(server.info.clone());
        }
    }
    found.sort_by(|a, b| a.store.cmp(&b.store));
    Ok(found)
}

/// Ends a store's history server and unmounts, if nothing uses it. True when there was one.
///
/// # Errors
/// `Busy` with a sentence that says what uses it.
pub fn stop_server(paths: &HistoryPaths) -> Result<bool> {
    let Ok(connection) = wire::connect(&paths.control()) else { return Ok(false) };
    match wire::ask(&connection, &Ask::Stop)? {
        Some(Answer::Busy { message }) => Err(Error::new(Code::Busy, message)),
        _ => Ok(true),
    }
}

impl HistoryServer {
    /// Says that a workspace is mounted at `mountpoint` (it has to be by now) with a lower folder in this
    /// history, until [`unpin`]: the server then stays, also when this is dropped.
    ///
    /// # Errors
    /// The system's, on the pin's file.
    pub fn pin(&self, workspace: &str, mountpoint: &Path) -> Result<()> {
        server_pins::add(&self.paths, workspace, mountpoint)
    }
}

/// Takes a [`HistoryServer::pin`] back, after the workspace was unmounted; one that is not there is fine.
///
/// # Errors
/// The system's, on the pin's file.
pub fn unpin(paths: &HistoryPaths, workspace: &str) -> Result<()> {
    server_pins::remove(paths, workspace)
}
