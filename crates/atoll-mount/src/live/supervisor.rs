//! A workspace's supervisor: mounts, holds the connection, and keeps a server running that has it too. When the
//! server dies the kernel's requests wait for the next one. The server's exit with 0 is the end.

use std::io::{self, BufReader};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use atoll_fuse::MountOptions;
use atoll_store::{Code, Error, Result};
use rustix::fs::{FlockOperation, Mode};

use super::client::Places;
use super::server::Start;
use crate::server_wire::{self as wire, Said};
use crate::supervisor::{release_stdout, spawn_server, transport};

/// A server that ended sooner than this after its start was no use.
const SHORT_LIFE: Duration = Duration::from_secs(2);
/// After so many in a row the mount is given up: an error is better than waiting for ever.
const SHORT_LIVES: u32 = 8;

/// The entry of the process: `live-supervisor STORE WORKSPACE FOLDER TARGET COMMIT disk|memory`. Says on stdout that
/// it serves, or why not.
pub fn main(args: &[String]) -> i32 {
    let [store, workspace, folder, target, commit, scratch] = args else {
        eprintln!(
            "atoll: live-supervisor needs a store, a workspace, its data, a mount point, a commit, a scratch."
        );
        return 2;
    };
    crate::server_log::init();
    // Away from the terminal and the job of whoever mounted. Fails only when it leads a job already.
    let _ = rustix::process::setsid();
    let start =
        Start { restarts: 0, commit: commit.clone(), durable: scratch != "memory", transport: transport() };
    match Supervisor::start(store, Path::new(workspace), folder.into(), target.into(), start) {
        // Its lock is free when the process is gone, and not before.
        Ok(supervisor) => Box::leak(Box::new(supervisor)).run(),
        Err(error) => {
            log::error!("The workspace's supervisor could not start: {error}");
            let _ = wire::say(io::stdout(), &wire::failed(&error));
            1
        }
    }
}

/// How a server ended.
enum End {
    /// The workspace is unmounted.
    Done,
    /// By a signal that somebody sent.
    Killed,
    /// By a fault of its own.
    Crashed,
}

struct Supervisor {
    store: String,
    folder: PathBuf,
    target: PathBuf,
    start: Start,
    device: OwnedFd,
    control: OwnedFd,
    alive: OwnedFd,
}

impl Supervisor {
    fn start(store: &str, workspace: &Path, folder: PathBuf, target: PathBuf, start: Start) -> Result<Self> {
        let places = Places::of(workspace);
        let alive = wire::lock_file(&places.alive)?;
        rustix::fs::flock(&alive, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Error::new(
                Code::Busy,
                format!(
                    "The workspace in {} is served already; `atoll workspaces` says where.",
                    workspace.display()
                ),
            )
        })?;
        let _ = std::fs::remove_file(&places.control);
        let control = wire::listen(&places.control)
            .map_err(|error| Error::io("make the socket", &places.control, error))?;
        // Whoever can write to it can tell the server what its base is.
        rustix::fs::chmod(&places.control, Mode::RUSR | Mode::WUSR)
            .map_err(|error| Error::io("close to others", &places.control, error.into()))?;
        let root = rustix::process::geteuid().is_root();
        let options = MountOptions {
            name: "atoll".to_owned(),
            subtype: "atoll-live".to_owned(),
            allow_other: root,
            read_only: false,
            trusted: root,
        };
        let device = atoll_fuse::mount::mount(&target, &options).map_err(|source| {
            let code = match source.kind() {
                io::ErrorKind::PermissionDenied => Code::Permission,
                io::ErrorKind::NotFound => Code::Unsupported,
                _ => Code::Io,
            };
            let message = format!("The workspace could not be mounted on {}: {source}", target.display());
            Error { code, message, source: Some(source) }
        })?;
        let (control, alive) = (control.into(), alive.into());
        Ok(Supervisor { store: store.to_owned(), folder, target, start, device, control, alive })
    }

    fn run(&mut self) -> i32 {
        let mut told = false;
        let mut failures: u32 = 0;
        let mut failed = None;
        loop {
            let began = Instant::now();
            match self.serve_once(&mut told, &mut failed) {
                Ok(End::Done) => return 0,
                // A ring cannot be taken over.
                Ok(_) if self.start.transport == "uring" => failures = SHORT_LIVES,
                // By somebody: the next one may well go on.
                Ok(End::Killed) => failures = 0,
                Ok(End::Crashed) => failures = if began.elapsed() < SHORT_LIFE { failures + 1 } else { 1 },
                Err(error) => {
                    log::error!("A workspace's server could not be started: {error}");
                    failures += 1;
                }
            }
            if !told || failures >= SHORT_LIVES {
                log::error!("The workspace's mount is given up: its server does not last.");
                detach(&self.target);
                // Last: whoever hears it finds nothing mounted.
                if let Some(failed) = failed {
                    let _ = wire::say(io::stdout(), &failed);
                }
                return 1;
            }
            self.start.restarts += 1;
            // The first replacement comes at once; only a series is slowed down.
            std::thread::sleep(Duration::from_millis(100) * failures.saturating_sub(2));
        }
    }

    /// Runs one server to its end. Once, `told`, it says that it serves; `failed` is why it could not.
    fn serve_once(&mut self, told: &mut bool, failed: &mut Option<Said>) -> io::Result<End> {
        let folder = self.folder.to_string_lossy();
        let (mut child, socket) = spawn_server(&["live-server", &self.store, &folder])?;
        let fds = [self.device.as_fd(), self.control.as_fd(), self.alive.as_fd()];
        // It may have died before it could take them; how is seen below.
        let sent = wire::send_with(&socket, &self.start, &fds);
        let mut lines = BufReader::new(socket);
        // The socket's end is the server's: it has no children that could hold it open.
        while let Some(said) = wire::hear::<Said>(&mut lines).unwrap_or(None) {
            match said {
                Said::Failed { .. } => *failed = Some(said.clone()),
                Said::Ready if !*told => {
                    *told = true;
                    let _ = wire::say(io::stdout(), &said);
                    let _ = release_stdout();
                }
                _ => {}
            }
        }
        let status = child.wait()?;
        if status.success() && sent.is_ok() {
            return Ok(End::Done);
        }
        log::warn!("The workspace's server {} ended ({status}).", child.id());
        Ok(if matches!(status.signal(), Some(9 | 15)) { End::Killed } else { End::Crashed })
    }
}

fn detach(target: &Path) {
    if let Err(error) = atoll_fuse::mount::unmount(target, true) {
        log::warn!("{} could not be unmounted: {error}", target.display());
    }
}
