//! What other processes do with a workspace's server: have it started, freeze the workspace, end it.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_fs::live::{Frozen, Live};
use atoll_store::{Code, Error, Hash, Result, Store};
use rustix::fs::FlockOperation;

use super::server::{self, Answer, Ask};
use crate::server_client::{Helper, start_supervisor};
use crate::server_wire as wire;

/// What stands in a workspace's folder (`STORE/workspaces/ID`) beside the folder of its journal and data, which may
/// be in memory and goes first.
pub(crate) struct Places {
    /// Held by the supervisor and its server for as long as one of them lives.
    pub alive: PathBuf,
    /// The server's control socket.
    pub control: PathBuf,
    /// What the two have to say.
    pub log: PathBuf,
}

impl Places {
    pub(crate) fn of(folder: &Path) -> Self {
        let at = |name| folder.join(name);
        Places { alive: at("alive"), control: at("control"), log: at("log") }
    }
}

/// Mounts a workspace whose journal and data are in `folder`, which has to be there; a new one begins at `commit`.
/// Returns when it is served. `durable`: its data are on a disk.
///
/// # Errors
/// `Busy` when it is served already, `Permission` or `Unsupported` where FUSE cannot be mounted, those of
/// [`Live::open`].
pub fn mount(
    store: &Store,
    helper: &Helper,
    workspace: &Path,
    folder: &Path,
    target: &Path,
    commit: &Hash,
    durable: bool,
) -> Result<()> {
    let dir = std::fs::canonicalize(store.dir()).map_err(|error| Error::io("find", store.dir(), error))?;
    let commit = commit.hex();
    let scratch = if durable { "disk" } else { "memory" };
    let places = [dir.as_os_str(), workspace.as_os_str(), folder.as_os_str(), target.as_os_str()];
    let mut args = vec!["live-supervisor".as_ref()];
    args.extend(places);
    args.extend([std::ffi::OsStr::new(&commit), std::ffi::OsStr::new(scratch)]);
    start_supervisor(helper, &args, &Places::of(workspace).log, "The workspace's server")
}

/// Takes a mount away that nobody serves any more.
///
/// # Errors
/// The system's.
pub fn detach(target: &Path) -> Result<()> {
    atoll_fuse::mount::unmount(target, true).map_err(|error| Error::io("unmount", target, error))
}

/// The process that serves a workspace; `None` when there is none.
///
/// # Errors
/// The system's, on its socket.
pub fn server(workspace: &Path) -> Result<Option<u32>> {
    let Ok(socket) = wire::connect(&Places::of(workspace).control) else { return Ok(None) };
    Ok(match ask(&socket, &Ask::Info)? {
        Answer::Info { pid, .. } => Some(pid),
        _ => None,
    })
}

/// Waits until nobody serves the workspace any more; after an unmount that is when all of it is in its folder.
///
/// # Errors
/// The system's, on the lock.
pub fn wait_until_ended(workspace: &Path) -> Result<()> {
    let lock = wire::lock_file(&Places::of(workspace).alive)?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(std::io::Error::from)?;
    Ok(())
}

/// A workspace as it is at one moment. While this is held, what it needs stays.
pub struct View {
    frozen: Frozen,
    /// To the server, where one serves.
    connection: Option<UnixStream>,
    workspace: PathBuf,
    folder: PathBuf,
}

impl View {
    /// Takes the state of a workspace with its data in `folder`. `target`: it is mounted there, and what programs wrote
    /// through shared maps is asked for first.
    ///
    /// # Errors
    /// `NotFound` when there is no workspace, `Busy` when its server does not answer.
    pub fn take(store: &Arc<Store>, workspace: &Path, folder: &Path, target: Option<&Path>) -> Result<View> {
        let mut changes = None;
        let mut connection = None;
        if let Some(target) = target {
            let root = std::fs::File::open(target).map_err(|error| Error::io("open", target, error))?;
            // The first one also tells of what failed earlier and nobody has been told: maybe a file that is gone. Who
            // stores through a map is told by msync, and what was not synced may be missing from a commit.
            if rustix::fs::syncfs(&root).is_err() {
                rustix::fs::syncfs(&root).map_err(|error| Error::io("write back", target, error.into()))?;
            }
            let socket = wire::connect(&Places::of(workspace).control).map_err(|_| silent(target))?;
            match ask(&socket, &Ask::Freeze)? {
                Answer::Frozen { changes: count } => changes = Some(count),
                _ => return Err(silent(target)),
            }
            connection = Some(socket);
        }
        let boot = server::options(true, false).boot;
        let frozen =
            Frozen::read(folder, changes, &boot, |id| server::base(store, id))?.ok_or_else(|| {
                Error::new(Code::NotFound, format!("There is no workspace in {}.", folder.display()))
            })?;
        Ok(View { frozen, connection, workspace: workspace.to_owned(), folder: folder.to_owned() })
    }

    /// The state.
    pub fn frozen(&self) -> &Frozen {
        &self.frozen
    }

    /// A commit of exactly this state is the workspace's base from now on.
    ///
    /// # Errors
    /// Those of [`Live::rebase`]; the workspace keeps its old base then, and its content.
    pub fn rebase(self, store: &Arc<Store>, commit: &Hash) -> Result<()> {
        if self.frozen.base == *commit {
            return Ok(());
        }
        if let Some(connection) = self.connection {
            ask(&connection, &Ask::Rebase { commit: commit.hex() })?;
            return Ok(());
        }
        let lock = wire::lock_file(&Places::of(&self.workspace).alive)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(std::io::Error::from)?;
        let options = server::options(true, false);
        let (live, _) = Live::open(&self.folder, &self.frozen.base, |id| server::base(store, id), options)?;
        let frozen = live.freeze();
        live.rebase(frozen, server::base(store, commit)?, commit.0)
    }
}

fn ask(connection: &UnixStream, question: &Ask) -> Result<Answer> {
    match wire::ask(connection, question)? {
        Some(Answer::Failed { code, message }) => Err(wire::error(&code, message)),
        Some(answer) => Ok(answer),
        None => Err(Error::new(Code::Io, "The workspace's server ended while it was asked; try again.")),
    }
}

fn silent(target: &Path) -> Error {
    Error::new(
        Code::Busy,
        format!("The server of the workspace at {} does not answer; look at its log.", target.display()),
    )
}
