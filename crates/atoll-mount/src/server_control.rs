//! The server's control socket, and its end: when nothing uses the mounts for a while it unmounts them.

use std::fs;
use std::io::BufReader;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use atoll_store::{Error, Result};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::server::{Running, idle_limit};
use crate::server_pins;
use crate::server_wire::{self as wire, Answer, Ask, Said};

/// Small: a connection's thread reads a line and writes one.
const STACK: usize = 256 * 1024;

/// Starts the threads that answer the socket and watch for idleness.
pub(crate) fn start(running: &Arc<Running>, listener: UnixListener, alive: OwnedFd) {
    if running.start.stopped
        && let Err(error) = finish_stop(running, &alive)
    {
        log::error!("The history could not be unmounted: {error}");
    }
    let alive = Arc::new(alive);
    let (one, two) = (running.clone(), running.clone());
    let for_idle = alive.clone();
    std::thread::spawn(move || accept(&one, &listener, &alive));
    std::thread::spawn(move || watch_idle(&two, &for_idle));
}

fn accept(running: &Arc<Running>, listener: &UnixListener, alive: &Arc<OwnedFd>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                running.connections.fetch_add(1, Ordering::SeqCst);
                running.connected.fetch_add(1, Ordering::SeqCst);
                let counted = Counted(running.clone());
                let alive = alive.clone();
                let thread = std::thread::Builder::new().stack_size(STACK);
                let spawned = thread.spawn(move || {
                    // Ends with the connection; a client that holds one keeps the server.
                    let _ = converse(&counted.0, &stream, &alive);
                    // In this order: whoever sees the end of the connection is not counted any more.
                    drop(counted);
                    drop(stream);
                });
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

/// A connection that counts until it is dropped.
struct Counted(Arc<Running>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::SeqCst);
    }
}

fn converse(running: &Running, stream: &UnixStream, alive: &OwnedFd) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream);
    while let Some(question) = wire::hear::<Ask>(&mut lines)? {
        match question {
            Ask::Info => {
                let _not_now = running.stopping.lock();
                if running.stopped.load(Ordering::SeqCst) {
                    return Ok(());
                }
                wire::say(stream, &Answer::Info(Box::new(running.info())))?;
            }
            Ask::Stop => {
                // The connection that asks is one of those open.
                let answer = match stop(running, alive, 1) {
                    Ok(()) => Answer::Stopped,
                    Err(error) => Answer::Busy { message: error.message },
                };
                wire::say(stream, &answer)?;
            }
        }
    }
    Ok(())
}

fn watch_idle(running: &Running, alive: &OwnedFd) {
    let limit = idle_limit();
    let tick = (limit / 8).clamp(Duration::from_millis(50), Duration::from_secs(5));
    let mut last = (running.requests(), running.connected.load(Ordering::SeqCst));
    let mut since = Instant::now();
    while !running.stopped.load(Ordering::SeqCst) {
        std::thread::sleep(tick);
        let now = (running.requests(), running.connected.load(Ordering::SeqCst));
        if now != last || running.connections.load(Ordering::SeqCst) > 0 {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= limit
            && let Err(error) = stop(running, alive, 0)
        {
            log::debug!("Not idle: {error}");
            since = Instant::now();
        }
    }
}

/// Unmounts both mounts if nothing uses them; `own` connections do not count. When it succeeds, the kernel ends
/// both sessions and the process ends with them.
fn stop(running: &Running, alive: &OwnedFd, own: usize) -> Result<()> {
    let paths = &running.paths;
    let busy = |message: String| Err(Error::new(atoll_store::Code::Busy, message));
    // No question is answered meanwhile: who connected before counts, who asks afterwards hears nothing and
    // has another server started.
    let _one = running.stopping.lock();
    if running.stopped.load(Ordering::SeqCst) {
        return Ok(());
    }
    // Nobody starts a server meanwhile. Whoever has the lock is about to use this one.
    let lock = wire::lock_file(&paths.lock())?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return busy("A workspace is being mounted right now.".into());
    }
    if running.connections.load(Ordering::SeqCst) > own {
        return busy("A program that needs the history is connected.".into());
    }
    if let Some(user) = server_pins::user(paths) {
        return busy(user);
    }
    running.sessions.iter().for_each(|session| session.fs().let_go());
    // Marking as expired tells whether a mount is busy and changes nothing. Only root may.
    for dir in [&paths.plain, &paths.xattr] {
        if rustix::mount::unmount(dir, UnmountFlags::EXPIRE) == Err(Errno::BUSY) {
            return busy(format!("A process has a folder below {} open.", dir.display()));
        }
    }
    running.tell(&Said::Stopping);
    if let Err(error) = atoll_fuse::mount::unmount(&paths.plain, false) {
        running.tell(&Said::Ready);
        return Err(error.into());
    }
    // The other one too, whatever happens: whoever came in between is served until he leaves.
    if atoll_fuse::mount::unmount(&paths.xattr, false).is_err() {
        let _ = atoll_fuse::mount::unmount(&paths.xattr, true);
    }
    end(running, alive);
    Ok(())
}

/// The last step: another server may start, even while somebody still holds the old mounts.
fn end(running: &Running, alive: &OwnedFd) {
    let _ = fs::remove_file(running.paths.control());
    running.stopped.store(true, Ordering::SeqCst);
    let _ = rustix::fs::flock(alive, FlockOperation::Unlock);
    log::info!("Nothing uses the history any more; it was unmounted.");
}

/// After a server died while it stopped: does what is left of it.
fn finish_stop(running: &Running, alive: &OwnedFd) -> Result<()> {
    let paths = &running.paths;
    let _one = running.stopping.lock();
    let lock = wire::lock_file(&paths.lock())?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(std::io::Error::from)?;
    // Locked by others: it had got as far as the end, and a new pair is there already.
    if rustix::fs::flock(alive, FlockOperation::NonBlockingLockExclusive).is_ok() {
        for dir in [&paths.plain, &paths.xattr] {
            let _ = atoll_fuse::mount::unmount(dir, true);
        }
        end(running, alive);
    }
    running.stopped.store(true, Ordering::SeqCst);
    Ok(())
}
