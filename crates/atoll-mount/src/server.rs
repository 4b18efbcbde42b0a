//! The server: answers both mounts of one store, and the control socket. It holds nothing that cannot be
//! found again: killed at any moment, another goes on where it was.

use std::io::{BufReader, stdin};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use atoll_fuse::{Config, Session};
use atoll_store::{Result, Store};
use parking_lot::Mutex;

use crate::history::{HistoryFs, Side};
use crate::server_client::ServerInfo;
use crate::server_paths::HistoryPaths;
use crate::server_wire::{self as wire, Said, Start};

/// What the threads of the server share.
pub(crate) struct Running {
    pub sessions: [Session<HistoryFs>; 2],
    pub paths: HistoryPaths,
    pub store_dir: PathBuf,
    pub store_id: String,
    pub start: Start,
    pub since: Instant,
    /// 0 once the supervisor died.
    pub supervisor: AtomicU32,
    /// Open control connections.
    pub connections: AtomicUsize,
    /// Grows with each connection.
    pub connected: AtomicU64,
    /// The mounts are gone; what is left is to serve those who still hold them.
    pub stopped: AtomicBool,
    /// Held while it is decided to stop.
    pub stopping: Mutex<()>,
}

impl Running {
    /// Says something to the supervisor, if there still is one.
    pub fn tell(&self, what: &Said) {
        let _ = wire::say(std::fs::File::from(dup_stdin()), what);
    }

    /// Requests of both mounts.
    pub fn requests(&self) -> u64 {
        self.sessions.iter().map(|session| session.counters().total()).sum()
    }

    /// What `atoll servers` shows.
    pub fn info(&self) -> ServerInfo {
        let mut requests = std::collections::BTreeMap::new();
        for session in &self.sessions {
            for (kind, count) in session.counters().by_kind() {
                *requests.entry(kind).or_insert(0) += count;
            }
        }
        ServerInfo {
            pid: std::process::id(),
            supervisor_pid: self.supervisor.load(Ordering::Relaxed),
            store: self.store_dir.clone(),
            store_id: self.store_id.clone(),
            history: self.paths.root.clone(),
            transport: self.start.transport.clone(),
            rss_bytes: rss(),
            requests,
            uptime_s: self.since.elapsed().as_secs_f64(),
            restarts: self.start.restarts,
            pins: crate::server_pins::names(&self.paths),
        }
    }
}

/// Memory in use, from `/proc/self/statm`.
fn rss() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

/// The entry of the process: `server STORE HISTORY`, with the supervisor's socket as its standard input.
pub fn main(args: &[String]) -> i32 {
    let [store, history] = args else {
        eprintln!("atoll: server needs the store's folder and the history's.");
        return 2;
    };
    crate::server_log::init();
    match serve(Path::new(store), HistoryPaths::at(history.into())) {
        Ok(()) => 0,
        Err(error) => {
            log::error!("The history server could not go on: {error}");
            let _ = wire::say(std::fs::File::from(dup_stdin()), &wire::failed(&error));
            1
        }
    }
}

/// The supervisor's socket; writing to it reaches the supervisor.
fn dup_stdin() -> std::os::fd::OwnedFd {
    rustix::io::fcntl_dupfd_cloexec(stdin(), 3).expect("standard input is open")
}

fn serve(dir: &Path, paths: HistoryPaths) -> Result<()> {
    let store = Store::open(dir)?;
    let store_id = store.id().to_owned();
    let Some((start, descriptors)) = wire::receive_start(stdin().as_fd())? else { return Ok(()) };
    let resumed = start.restarts > 0;
    let sessions = HistoryFs::both(Arc::new(store), &paths.root).map(|fs| {
        let config = Config {
            resumed,
            uring: start.transport == "uring",
            acl: fs.side() == Side::Xattr,
            awake: std::env::var_os("ATOLL_KEEP_AWAKE").is_none_or(|value| value != "0"),
            ..Config::default()
        };
        Session::new(fs, config)
    });
    let running = Arc::new(Running {
        sessions,
        paths,
        store_dir: dir.to_owned(),
        store_id,
        supervisor: start.supervisor_pid.into(),
        start,
        since: Instant::now(),
        connections: 0.into(),
        connected: 0.into(),
        stopped: false.into(),
        stopping: Mutex::new(()),
    });
    if !running.start.stopped {
        running.tell(&Said::Ready);
    }
    crate::server_control::start(&running, descriptors.control.into(), descriptors.alive);
    watch_supervisor(&running);
    // The kernel may know node ids until the sessions have ended, also where the mounts are gone before.
    let _serving = descriptors.serving;
    let devices = [descriptors.plain, descriptors.xattr];
    std::thread::scope(|scope| {
        let threads: Vec<_> = running
            .sessions
            .iter()
            .zip(&devices)
            .map(|(session, device)| scope.spawn(|| atoll_fuse::serve(session, device.as_fd())))
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a session panicked"))
    })?;
    log::info!("Both mounts are gone; the history server ends.");
    Ok(())
}

/// Its socket ends when the supervisor dies. The server then goes on alone: the mounts live as long as it.
fn watch_supervisor(running: &Arc<Running>) {
    let running = running.clone();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(std::fs::File::from(dup_stdin()));
        while let Ok(Some(_)) = wire::hear::<serde_json::Value>(&mut lines) {}
        running.supervisor.store(0, Ordering::Relaxed);
        log::warn!("The supervisor is gone; the history is served without one.");
    });
}

/// How long the server stays when nothing uses it: `ATOLL_SERVER_IDLE` seconds, 30 by default.
pub(crate) fn idle_limit() -> Duration {
    std::env::var("ATOLL_SERVER_IDLE")
        .ok()
        .and_then(|text| text.parse().ok())
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .unwrap_or(Duration::from_secs(30))
}
