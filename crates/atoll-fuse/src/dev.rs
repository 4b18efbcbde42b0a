//! The default transport: `/dev/fuse`, with a short spin before it blocks.
//!
//! One thread at a time, the leader, waits for requests and answers them itself, which is the fastest way
//! for the many small ones. A file system that is about to take long says so ([`Call::slow`]), and another
//! thread leads on meanwhile. Several threads that wait at once would only be woken for nothing.
//!
//! [`Call::slow`]: crate::Call::slow

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno as SysErrno;
use zerocopy::IntoBytes;

use crate::abi;
use crate::awake::Awake;
use crate::filesystem::{Entry, FileSystem, Reply};
use crate::reply::ReplyBuffer;
use crate::session::{Outcome, Parts, Session};

/// Serves the connection behind `device` until it is unmounted (returns `Ok`) or broken.
///
/// # Errors
/// The system's error on the device.
pub fn serve<F: FileSystem>(session: &Session<F>, device: BorrowedFd<'_>) -> io::Result<()> {
    let flags = fcntl_getfl(device)?;
    fcntl_setfl(device, flags | OFlags::NONBLOCK)?;
    if session.config.resumed {
        resend(device)?;
    }
    let lead = Lead::default();
    let awake = Awake::new(session.config.awake);
    std::thread::scope(|scope| {
        let (late, jobs) = mpsc::channel();
        scope.spawn(move || answer_late(session, device, &jobs));
        let workers: Vec<_> = (1..session.config.threads.max(1))
            .map(|_| (late.clone(), &lead, &awake))
            .map(|(late, lead, awake)| {
                scope.spawn(move || Worker::new(session, device, lead, awake, late).run())
            })
            .collect();
        let mut result = Worker::new(session, device, &lead, &awake, late).run();
        for worker in workers {
            result =
                result.and(worker.join().unwrap_or_else(|_| Err(io::Error::other("A thread panicked."))));
        }
        result
    })
}

/// A request's id and what gives its answer.
type Late = (u64, Box<dyn FnOnce() -> Reply<Entry> + Send>);

/// Answers what must not be answered by a thread that serves requests; ends with the last of those.
fn answer_late<F: FileSystem>(session: &Session<F>, device: BorrowedFd<'_>, jobs: &mpsc::Receiver<Late>) {
    let mut reply = ReplyBuffer::default();
    for (unique, job) in jobs {
        session.late(unique, job, &mut reply);
        if let Err(error) = send(device, &reply) {
            log::error!("A late reply could not be sent: {error}");
        }
    }
}

/// Asks the kernel to send again what was read and never answered.
fn resend(device: BorrowedFd<'_>) -> io::Result<()> {
    let header =
        abi::OutHeader { len: size_of::<abi::OutHeader>() as u32, error: abi::NOTIFY_RESEND, unique: 0 };
    match rustix::io::write(device, header.as_bytes()) {
        Ok(_) => Ok(()),
        // A kernel before 6.9 cannot: requests caught in the middle stay unanswered.
        Err(SysErrno::INVAL) => {
            log::warn!("This kernel cannot send requests again; what the last server left open may hang.");
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The device beside rings: one request at a time, without a spin.
pub(crate) struct Side<'a, F> {
    worker: Worker<'a, F>,
}

impl<'a, F: FileSystem> Side<'a, F> {
    pub(crate) fn new(session: &'a Session<F>, device: BorrowedFd<'a>) -> io::Result<Self> {
        let flags = fcntl_getfl(device)?;
        fcntl_setfl(device, flags | OFlags::NONBLOCK)?;
        // What would have to be answered late does not come this way.
        let (late, _) = mpsc::channel();
        let mut worker = Worker::new(session, device, &ALONE, &ASLEEP, late);
        worker.spin = Spin::new(Duration::ZERO);
        Ok(Side { worker })
    }

    /// Waits for a request and answers it; false when the file system was unmounted.
    pub(crate) fn answer_next(&mut self) -> io::Result<bool> {
        let Some(len) = self.worker.next()? else { return Ok(false) };
        self.worker.answer(len)?;
        Ok(true)
    }
}

/// Nobody waits for this lead.
static ALONE: Lead =
    Lead { state: Mutex::new(LeadState { taken: true, ended: false }), free: Condvar::new() };
/// Beside rings it is for them to keep processors awake.
static ASLEEP: Awake = Awake::never();

/// Who waits for requests.
#[derive(Default)]
struct Lead {
    state: Mutex<LeadState>,
    free: Condvar,
}

#[derive(Default)]
struct LeadState {
    taken: bool,
    ended: bool,
}

impl Lead {
    /// Waits for the lead; false when the connection ended.
    fn take(&self) -> bool {
        let mut state = self.state.lock();
        while state.taken && !state.ended {
            self.free.wait(&mut state);
        }
        state.taken = true;
        !state.ended
    }

    fn give(&self) {
        self.state.lock().taken = false;
        self.free.notify_one();
    }

    fn end(&self) {
        self.state.lock().ended = true;
        self.free.notify_all();
    }
}

/// Ends the others when a thread leaves, however it does: without it a panic would leave the connection with
/// nobody who reads it.
struct EndGuard<'a>(&'a Lead);

impl Drop for EndGuard<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

struct Worker<'a, F> {
    session: &'a Session<F>,
    device: BorrowedFd<'a>,
    lead: &'a Lead,
    awake: &'a Awake,
    late: mpsc::Sender<Late>,
    buffer: Vec<u8>,
    reply: ReplyBuffer,
    spin: Spin,
}

impl<'a, F: FileSystem> Worker<'a, F> {
    fn new(
        session: &'a Session<F>,
        device: BorrowedFd<'a>,
        lead: &'a Lead,
        awake: &'a Awake,
        late: mpsc::Sender<Late>,
    ) -> Self {
        let room = session.config.max_write.max(4096) as usize + 4096;
        Worker {
            session,
            device,
            lead,
            awake,
            late,
            buffer: vec![0; room.max(8192)],
            reply: ReplyBuffer::default(),
            spin: Spin::new(session.config.spin),
        }
    }

    fn run(mut self) -> io::Result<()> {
        let _end = EndGuard(self.lead);
        crate::priority::answer_soon();
        while self.lead.take() {
            loop {
                let Some(len) = self.next()? else { return Ok(()) };
                if self.answer(len)? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Waits for the next request; `None` when the file system was unmounted.
    fn next(&mut self) -> io::Result<Option<usize>> {
        self.spin.start();
        loop {
            match rustix::io::read(self.device, &mut self.buffer[..]) {
                Ok(len) => {
                    self.awake.request(self.spin.hit());
                    return Ok(Some(len));
                }
                Err(SysErrno::AGAIN) => {
                    if self.spin.over() {
                        self.sleep()?;
                    } else {
                        std::hint::spin_loop();
                    }
                }
                // ENOENT: the request was taken back while it was copied.
                Err(SysErrno::INTR | SysErrno::NOENT) => {}
                Err(SysErrno::NODEV | SysErrno::CONNABORTED) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sleeps until there may be a request, or a burst is found to be over.
    fn sleep(&mut self) -> io::Result<()> {
        let mut fds = [PollFd::new(&self.device, PollFlags::IN)];
        let patience = self.awake.patience();
        match (poll(&mut fds, patience.as_ref().map(|(time, _)| time)), patience) {
            (Ok(0), Some((_, burst))) => self.awake.pause(burst),
            (Ok(_) | Err(SysErrno::INTR), _) => {}
            (Err(error), _) => return Err(error.into()),
        }
        Ok(())
    }

    /// Answers the request in the buffer; true when the lead was given away meanwhile.
    fn answer(&mut self, len: usize) -> io::Result<bool> {
        let Some(request) = Parts::split(&self.buffer[..len]) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "The kernel sent a request that is too short.",
            ));
        };
        let handed = std::cell::Cell::new(false);
        let hand_off = || {
            handed.set(true);
            self.lead.give();
        };
        let hand_off: Option<&dyn Fn()> =
            if self.session.config.threads > 1 { Some(&hand_off) } else { None };
        match self.session.answer(&request, hand_off, &mut self.reply) {
            Outcome::Answered => send(self.device, &self.reply)?,
            Outcome::Silent => {}
            // Fails only when that thread is gone, and then so is the connection.
            Outcome::Late(job) => drop(self.late.send((request.header.unique, job))),
        }
        Ok(handed.get())
    }
}

fn send(device: BorrowedFd<'_>, reply: &ReplyBuffer) -> io::Result<()> {
    let sent = if reply.data.is_empty() {
        rustix::io::write(device, &reply.head)
    } else {
        let mut slices: Vec<IoSlice<'_>> = Vec::with_capacity(1 + reply.data.parts.len());
        reply.slices(&mut slices);
        rustix::io::writev(device, &slices)
    };
    match sent {
        Ok(_) => Ok(()),
        // The caller was killed meanwhile, or the file system unmounted: nobody waits for the reply.
        Err(SysErrno::NOENT | SysErrno::NODEV | SysErrno::CONNABORTED) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// How long to ask again and again before sleeping. Where spinning keeps failing (requests come seldom) it is
/// cut short until one is caught again.
struct Spin {
    full: Duration,
    now: Duration,
    misses: u32,
    since: Option<Instant>,
    asked: u32,
}

/// How many spins in vain it takes until they become short.
const PATIENCE: u32 = 4;

impl Spin {
    fn new(full: Duration) -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|count| count.get() == 1);
        let full = if alone { Duration::ZERO } else { full };
        Spin { full, now: full, misses: 0, since: None, asked: 0 }
    }

    fn start(&mut self) {
        self.since = None;
        self.asked = 0;
    }

    /// Whether the spin is over; the clock is read only when there was nothing to read.
    fn over(&mut self) -> bool {
        let Some(since) = self.since else {
            self.since = Some(Instant::now());
            return self.now.is_zero();
        };
        self.asked += 1;
        if since.elapsed() < self.now {
            return false;
        }
        self.misses = self.misses.saturating_add(1);
        if self.misses >= PATIENCE {
            self.now = self.full / 4;
        }
        true
    }

    /// A request came; how long there had been none.
    fn hit(&mut self) -> Duration {
        let Some(waited) = self.since.map(|since| since.elapsed()) else { return Duration::ZERO };
        if waited <= self.full {
            self.misses = 0;
            self.now = self.full;
        }
        waited
    }
}
