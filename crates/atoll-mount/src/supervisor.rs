//! The supervisor: mounts, holds the descriptors, and keeps a server running that has them too. When the
//! server dies the kernel's requests wait for the next one; nobody above notices more than a pause.
//!
//! It decides nothing else. The server unmounts when nothing uses it, and its exit with 0 is the end.

use std::io::{self, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use atoll_fuse::MountOptions;
use atoll_store::store::Serving;
use atoll_store::{Code, Error, Result};
use rustix::fs::FlockOperation;

use crate::history::Side;
use crate::server_paths::HistoryPaths;
use crate::server_wire::{self as wire, Descriptors, Said, Start};

/// A server that crashes sooner than this after its start was no use.
const SHORT_LIFE: Duration = Duration::from_secs(2);
/// After so many in a row the mounts are given up: an error is better than waiting for ever.
const SHORT_LIVES: u32 = 8;

/// How a server ended that was not to end.
enum Death {
    /// Somebody killed it: the next one may well go on.
    Killed,
    /// It failed by itself, so soon after its start.
    Crashed(Duration),
}

/// The entry of the process: `supervisor STORE HISTORY NAME`. Says on stdout that it serves, or why not.
pub fn main(args: &[String]) -> i32 {
    let [store, history, name] = args else {
        eprintln!("atoll: supervisor needs the store's folder, the history's and a name.");
        return 2;
    };
    crate::server_log::init();
    // Away from the terminal and the job of whoever needed it first. Fails only when it leads a job already.
    let _ = rustix::process::setsid();
    let paths = HistoryPaths::at(history.into());
    match Supervisor::start(Path::new(store), paths, name) {
        Ok(supervisor) => supervisor.run(),
        Err(error) => {
            log::error!("The supervisor could not start: {error}");
            let _ = wire::say(io::stdout(), &wire::failed(&error));
            1
        }
    }
}

struct Supervisor {
    store: String,
    paths: HistoryPaths,
    descriptors: Descriptors,
    transport: String,
    restarts: u64,
    stopped: bool,
}

/// A server process and the socket to it.
struct Server {
    child: Child,
    socket: UnixStream,
    started: Instant,
}

impl Supervisor {
    /// Mounts both sides, after what a dead supervisor left was taken away.
    fn start(store: &Path, paths: HistoryPaths, name: &str) -> Result<Self> {
        let alive = wire::lock_file(&paths.alive())?;
        rustix::fs::flock(&alive, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Error::new(
                Code::Busy,
                format!(
                    "A history server for {} lives but does not answer; look at {} and end it.",
                    store.display(),
                    paths.log().display()
                ),
            )
        })?;
        let serving = Serving::begin(store)?;
        let _ = std::fs::remove_file(paths.control());
        let control = wire::listen(&paths.control())
            .map_err(|error| Error::io("make the socket", &paths.control(), error))?;
        let plain = mount(&paths, Side::Plain, name)?;
        let xattr = mount(&paths, Side::Xattr, name).inspect_err(|_| detach(&paths.plain))?;
        links(&paths)?;
        Ok(Supervisor {
            store: store.to_string_lossy().into_owned(),
            paths,
            descriptors: Descriptors {
                plain,
                xattr,
                control: control.into(),
                alive: alive.into(),
                serving: serving.into(),
            },
            transport: transport(),
            restarts: 0,
            stopped: false,
        })
    }

    fn run(mut self) -> i32 {
        let mut told = false;
        let mut crashes: u32 = 0;
        let mut failed = None;
        loop {
            match self.serve_once(&mut told, &mut failed) {
                Ok(None) => return 0,
                // What it was answering hangs until the connection is given up, and a ring cannot be taken
                // over.
                Ok(Some(_)) if self.transport == "uring" => crashes = SHORT_LIVES,
                Ok(Some(Death::Killed)) => crashes = 0,
                Ok(Some(Death::Crashed(lived))) => crashes = if lived < SHORT_LIFE { crashes + 1 } else { 1 },
                Err(error) => {
                    log::error!("A history server could not be started: {error}");
                    crashes += 1;
                }
            }
            if !told || crashes >= SHORT_LIVES {
                log::error!("The history mount is given up: its server does not last.");
                detach(&self.paths.plain);
                detach(&self.paths.xattr);
                let _ = std::fs::remove_file(self.paths.control());
                // Last: whoever hears it finds nothing mounted.
                if let Some(failed) = failed {
                    let _ = wire::say(io::stdout(), &failed);
                }
                return 1;
            }
            self.restarts += 1;
            // The first replacement comes at once; only a series of crashes is slowed down.
            std::thread::sleep(Duration::from_millis(100) * crashes.saturating_sub(1));
        }
    }

    /// Runs one server to its end; `None`: it ended as it should. Once, `told`, it says that it serves;
    /// `failed` is why it could not.
    fn serve_once(&mut self, told: &mut bool, failed: &mut Option<Said>) -> io::Result<Option<Death>> {
        let mut server = self.spawn()?;
        let start = Start {
            supervisor_pid: std::process::id(),
            restarts: self.restarts,
            stopped: self.stopped,
            transport: self.transport.clone(),
        };
        // It may have died before it could take them; how is seen below.
        let sent = wire::send_start(&server.socket, &start, &self.descriptors);
        let mut lines = BufReader::new(server.socket.try_clone()?);
        // The socket's end is the server's: it has no children that could hold it open.
        while let Some(said) = wire::hear::<Said>(&mut lines).unwrap_or(None) {
            match said {
                Said::Stopping => self.stopped = true,
                Said::Ready => self.stopped = false,
                Said::Failed { .. } => *failed = Some(said.clone()),
            }
            if !*told && matches!(said, Said::Ready) {
                *told = true;
                let _ = wire::say(io::stdout(), &said);
                let _ = release_stdout();
            }
        }
        let status = server.child.wait()?;
        if status.success() && sent.is_ok() {
            return Ok(None);
        }
        log::warn!("The history server {} ended ({status}).", server.child.id());
        let killed = matches!(status.signal(), Some(9 | 15));
        Ok(Some(if killed { Death::Killed } else { Death::Crashed(server.started.elapsed()) }))
    }

    fn spawn(&self) -> io::Result<Server> {
        let history = self.paths.root.to_string_lossy();
        let (child, socket) = spawn_server(&["server", &self.store, &history])?;
        Ok(Server { child, socket, started: Instant::now() })
    }
}

/// Starts a helper process with a socket to this one as its standard input.
pub(crate) fn spawn_server(args: &[&str]) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let helper = std::env::var(wire::HELPER).map_err(io::Error::other)?;
    let helper: Vec<String> = serde_json::from_str(&helper)?;
    let (program, first) = helper.split_first().ok_or_else(|| io::Error::other("ATOLL_HELPER is empty."))?;
    let child = Command::new(program)
        .args(first)
        .args(args)
        .stdin(OwnedFd::from(theirs))
        .stdout(Stdio::null())
        .spawn()?;
    Ok((child, ours))
}

/// Whoever waits at the other end has what it needs.
pub(crate) fn release_stdout() -> io::Result<()> {
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// `ATOLL_TRANSPORT=uring` asks for io_uring; anything else is the default.
pub(crate) fn transport() -> String {
    match std::env::var("ATOLL_TRANSPORT") {
        Ok(wanted) if wanted == "uring" => match atoll_fuse::uring::available() {
            Ok(()) => wanted,
            Err(why) => {
                log::warn!("FUSE over io_uring is not to be had, so /dev/fuse serves: {why}");
                "dev".to_owned()
            }
        },
        _ => "dev".to_owned(),
    }
}

fn mount(paths: &HistoryPaths, side: Side, name: &str) -> Result<OwnedFd> {
    let dir = paths.side(side);
    if crate::overlay::find_mount(dir)?.is_some() {
        // Its server is dead (the lock was free): everything there answers ENOTCONN.
        log::warn!("A dead history mount on {} is taken away.", dir.display());
        detach(dir);
    }
    std::fs::create_dir_all(dir).map_err(|error| Error::io("make the folder", dir, error))?;
    let options = MountOptions {
        name: name.to_owned(),
        subtype: "atoll".to_owned(),
        // HISTORY is private to its user, so others get in only where root bound it for them.
        allow_other: rustix::process::geteuid().is_root(),
        read_only: true,
        trusted: false,
    };
    atoll_fuse::mount::mount(dir, &options).map_err(|source| {
        let code = match source.kind() {
            io::ErrorKind::PermissionDenied => Code::Permission,
            io::ErrorKind::NotFound => Code::Unsupported,
            _ => Code::Io,
        };
        let message = format!("The history could not be mounted on {}: {source}", dir.display());
        Error { code, message, source: Some(source) }
    })
}

fn detach(dir: &Path) {
    if let Err(error) = atoll_fuse::mount::unmount(dir, true) {
        log::warn!("{} could not be unmounted: {error}", dir.display());
    }
}

/// The short ways for people.
fn links(paths: &HistoryPaths) -> Result<()> {
    for name in ["branches", "commits", "tags"] {
        let link = paths.root.join(name);
        match std::os::unix::fs::symlink(Path::new("plain").join(name), &link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("make the link", &link, error));
            }
            _ => {}
        }
    }
    Ok(())
}
