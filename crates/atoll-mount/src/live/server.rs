//! The process that serves one workspace. Everything that it holds stands in the journal: killed at any moment,
//! another goes on where it was.

use std::io::{BufReader, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use atoll_fs::live::{Base, Frozen, Live, Options};
use atoll_fuse::{Config, Session};
use atoll_store::tree::Time;
use atoll_store::{Error, Hash, Result, Store};
use serde::{Deserialize, Serialize};

use super::LiveFs;
use crate::server_wire::{self as wire, Said};

/// How long what nobody synced may be lost by a power cut.
const TEND: Duration = Duration::from_secs(5);
/// The largest write of the kernel.
const MAX_WRITE: u32 = 1 << 20;
/// A connection's thread reads a line and writes one, or writes a journal.
const STACK: usize = 1 << 20;

/// From the supervisor to a server, with the connection's descriptor, the control socket and the lock that says that
/// somebody serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    /// How many servers came before this one: then the kernel knows files already.
    pub restarts: u64,
    /// The commit that a workspace without a journal begins at.
    pub commit: String,
    /// Whether a sync is to reach a disk.
    pub durable: bool,
    /// `dev` or `uring`.
    pub transport: String,
}

/// From a client to a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Ask {
    /// Keep the present state, for as long as the connection lasts.
    Freeze,
    /// The kept state is this commit.
    Rebase { commit: String },
    /// Make everything durable.
    Sync,
    /// How are you?
    Info,
}

/// A server's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To `freeze`: how many changes there are.
    Frozen { changes: u64 },
    /// To `info`.
    Info { pid: u32, restarts: u64 },
    /// It is done.
    Done,
    /// It could not be done: an error's code and sentence.
    Failed { code: String, message: String },
}

/// What the threads share.
struct Running {
    session: Session<LiveFs>,
    store: Arc<Store>,
    start: Start,
}

/// The entry of the process: `live-server STORE FOLDER`, with the supervisor's socket as its standard input.
pub fn main(args: &[String]) -> i32 {
    let [store, folder] = args else {
        eprintln!("atoll: live-server needs the store's folder and the workspace's.");
        return 2;
    };
    crate::server_log::init();
    match serve(Path::new(store), folder.into()) {
        Ok(()) => 0,
        Err(error) => {
            log::error!("The workspace's server could not go on: {error}");
            let _ = say(&wire::failed(&error));
            1
        }
    }
}

/// Says something to the supervisor, if there still is one.
fn say(what: &Said) -> std::io::Result<()> {
    wire::say(std::fs::File::from(rustix::io::fcntl_dupfd_cloexec(stdin(), 3)?), what)
}

fn serve(store: &Path, folder: PathBuf) -> Result<()> {
    let store = Arc::new(Store::open(store)?);
    let Some((start, fds)) = wire::receive_with::<Start, 3>(stdin().as_fd())? else { return Ok(()) };
    let [device, control, alive]: [OwnedFd; 3] = fds;
    let taken_over = start.restarts > 0;
    let options = options(start.durable, taken_over);
    let (live, lost) = Live::open(&folder, &Hash::from_hex(&start.commit)?, |id| base(&store, id), options)?;
    if let Some(lost) = lost {
        log::warn!("{} changes that were never synced are gone; {:?}", lost.changes, lost.aside);
    }
    let place = std::fs::File::open(&folder).map_err(|error| Error::io("open", &folder, error))?;
    let config = Config {
        resumed: taken_over,
        uring: start.transport == "uring",
        max_write: MAX_WRITE,
        ..Config::default()
    };
    let session = Session::new(LiveFs::new(live, place), config);
    let running = Arc::new(Running { session, store, start });
    let _ = say(&Said::Ready);
    let (one, two) = (running.clone(), running.clone());
    std::thread::spawn(move || accept(&one, &UnixListener::from(control)));
    std::thread::spawn(move || tend(&two));
    let served = atoll_fuse::serve(&running.session, device.as_fd());
    // Unmounted: what was written is there for whoever looks next, and only then is the lock free.
    running.live().sync().map_err(std::io::Error::from)?;
    drop(alive);
    served.map_err(Into::into)
}

/// What a workspace on this machine needs from outside.
pub(crate) fn options(durable: bool, taken_over: bool) -> Options {
    Options {
        clock: Box::new(now),
        random: Box::new(random),
        boot: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        durable,
        taken_over,
    }
}

/// A commit's tree.
pub(crate) fn base(store: &Arc<Store>, commit: &Hash) -> Result<Base> {
    Ok(Base { root: store.commit(commit)?.record.root, objects: store.clone() })
}

fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { sec: now.as_secs() as i64, nsec: now.subsec_nanos() }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => u64::from_le_bytes(bytes),
        // Never, for so few bytes; the clock still tells two files apart.
        _ => u64::from(now().nsec) << 32 | u64::from(std::process::id()),
    }
}

fn tend(running: &Running) {
    loop {
        std::thread::sleep(TEND);
        if let Err(error) = running.live().tend() {
            log::error!("{error}");
        }
    }
}

fn accept(running: &Arc<Running>, listener: &UnixListener) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let running = running.clone();
                let thread = std::thread::Builder::new().stack_size(STACK);
                let spawned = thread.spawn(move || drop(converse(&running, &stream)));
                if let Err(error) = spawned {
                    log::error!("A control connection got no thread: {error}");
                }
            }
            Err(error) => {
                log::error!("The control socket failed: {error}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

fn converse(running: &Running, stream: &UnixStream) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream);
    let mut frozen: Option<Frozen> = None;
    while let Some(question) = wire::hear::<Ask>(&mut lines)? {
        let answer = match question {
            Ask::Freeze => {
                running.make_room();
                let kept = frozen.insert(running.live().freeze());
                Ok(Answer::Frozen { changes: kept.changes })
            }
            Ask::Rebase { commit } => running.rebase(frozen.take(), &commit).map(|()| Answer::Done),
            Ask::Sync => {
                running.live().sync().map(|()| Answer::Done).map_err(|e| std::io::Error::from(e).into())
            }
            Ask::Info => Ok(Answer::Info { pid: std::process::id(), restarts: running.start.restarts }),
        };
        let answer = answer.unwrap_or_else(|error| Answer::Failed {
            code: error.code.name().to_owned(),
            message: error.message,
        });
        wire::say(stream, &answer)?;
    }
    Ok(())
}

impl Running {
    fn live(&self) -> &Live {
        self.session.fs().live()
    }

    /// What deleted files had is free only when their going is durable. A commit needs room on the same disk, so where
    /// there is little it is not waited for.
    fn make_room(&self) {
        const LITTLE: u64 = 256 << 20;
        let left = self.session.fs().room();
        if left < LITTLE
            && let Err(error) = self.live().sync()
        {
            log::warn!("{error}");
        }
    }

    fn rebase(&self, frozen: Option<Frozen>, commit: &str) -> Result<()> {
        let Some(frozen) = frozen else {
            return Err(Error::new(atoll_store::Code::Usage, "Nothing is frozen on this connection."));
        };
        let commit = Hash::from_hex(commit)?;
        self.live().rebase(frozen, base(&self.store, &commit)?, commit.0)
    }
}
