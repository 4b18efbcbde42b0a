//! FUSE over io_uring (kernel 6.14 and later, turned on for the machine by root): one queue and one thread for
//! each CPU, which answers on the CPU that asks. Faster than `/dev/fuse` where no processor is idle
//! (docs/notes/history-mount.md), but when the process is killed what it was answering fails, and the connection
//! is lost.
//!
//! The connection begins on `/dev/fuse`; once every queue has registered, requests come through the rings.
//! FORGET and INTERRUPT still come through the device.
#![allow(unsafe_code)] // Submissions name memory that the kernel reads and writes; each use says why it may.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::thread::CpuSet;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{self, InHeader, UringCmd, UringEnt};
use crate::awake::Awake;
use crate::dev;
use crate::filesystem::{Entry, FileSystem, Reply};
use crate::reply::ReplyBuffer;
use crate::session::{Outcome, Parts, Session};

/// The two commands of the protocol.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Where the three parts of an entry's header are, and how long it is.
const OP_IN: usize = 128;
const ENT: usize = 256;
const HEADER: usize = 4096;
/// Requests that one queue can have in work.
const DEPTH: usize = 4;
/// The user data of the submission that waits for late answers.
const MAIL: u64 = u64::MAX;

/// Whether the kernel offers FUSE over io_uring.
///
/// # Errors
/// A sentence that says why not.
pub fn available() -> io::Result<()> {
    let path = "/sys/module/fuse/parameters/enable_uring";
    let why_not = match std::fs::read_to_string(path) {
        Ok(value) if matches!(value.trim(), "Y" | "1") => return Ok(()),
        Ok(_) => format!("It is turned off; root turns it on for the machine with `echo 1 > {path}`."),
        Err(_) => "The kernel has no FUSE over io_uring; that came with 6.14.".to_owned(),
    };
    Err(io::Error::new(io::ErrorKind::Unsupported, why_not))
}

/// Serves the connection behind `device`, from its INIT on, until it is unmounted. Falls back to `/dev/fuse`
/// when the kernel does not agree to rings.
///
/// # Errors
/// The system's error on the device or a ring.
pub fn serve<F: FileSystem>(session: &Session<F>, device: BorrowedFd<'_>) -> io::Result<()> {
    let mut side = dev::Side::new(session, device)?;
    while session.minor() == 0 {
        if !side.answer_next()? {
            return Ok(());
        }
    }
    if !session.agreed_uring() {
        return dev::serve(session, device);
    }
    let queues = possible_cpus();
    let payload =
        8192.max(session.config.max_write.max(4096)).max(u32::from(session.config.max_pages) * 4096);
    let awake = Awake::new(session.config.awake);
    std::thread::scope(|scope| {
        let (late, jobs) = mpsc::channel::<Late>();
        scope.spawn(move || answer_late(session, &jobs));
        let threads: Vec<_> = (0..queues)
            .map(|qid| {
                let (late, awake) = (late.clone(), &awake);
                scope.spawn(move || {
                    let result = Queue::new(session, device, qid, payload as usize, late)
                        .and_then(|queue| queue.run(awake));
                    if let Err(error) = &result {
                        log::error!("The ring of CPU {qid} failed: {error}");
                    }
                    result
                })
            })
            .collect();
        drop(late);
        let mut result = Ok(());
        while result.is_ok() {
            match side.answer_next() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => result = Err(error),
            }
        }
        for thread in threads {
            let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("A thread panicked.")));
            result = result.and(ended);
        }
        result
    })
}

/// How many CPUs the machine could have: the kernel waits for a queue of each.
fn possible_cpus() -> u16 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    let count: u16 = text
        .trim()
        .split(',')
        .filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            Some(last.parse::<u16>().ok()? - first.parse::<u16>().ok()? + 1)
        })
        .sum();
    count.max(1)
}

/// Late answers on their way back to the thread that has the ring.
struct Mail {
    ready: OwnedFd,
    replies: Mutex<Vec<(usize, ReplyBuffer)>>,
}

struct Late {
    unique: u64,
    index: usize,
    job: Box<dyn FnOnce() -> Reply<Entry> + Send>,
    mail: Arc<Mail>,
}

fn answer_late<F: FileSystem>(session: &Session<F>, jobs: &mpsc::Receiver<Late>) {
    for Late { unique, index, job, mail } in jobs {
        let mut reply = ReplyBuffer::default();
        session.late(unique, job, &mut reply);
        mail.replies.lock().push((index, reply));
        if let Err(error) = rustix::io::write(&mail.ready, &1u64.to_ne_bytes()) {
            log::error!("A late reply could not be announced: {error}");
        }
    }
}

/// Memory that one request and its reply share with the kernel.
struct Slot {
    header: Vec<u8>,
    payload: Vec<u8>,
    /// What the registration points to.
    areas: Box<[libc::iovec; 2]>,
}

impl Slot {
    fn new(payload: usize) -> Self {
        let mut slot = Slot {
            header: vec![0; HEADER],
            // Zeroed by the kernel page by page as it is used, so room for the largest costs nothing.
            payload: vec![0; payload],
            areas: Box::new([libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; 2]),
        };
        for (area, memory) in slot.areas.iter_mut().zip([&mut slot.header, &mut slot.payload]) {
            *area = libc::iovec { iov_base: memory.as_mut_ptr().cast(), iov_len: memory.len() };
        }
        slot
    }

    fn ent(&self) -> UringEnt {
        UringEnt::read_from_prefix(&self.header[ENT..]).map(|(ent, _)| ent).unwrap_or_default()
    }

    /// Puts a complete reply where the kernel takes it from.
    fn put(&mut self, reply: &ReplyBuffer) -> io::Result<()> {
        let (head, data) = reply.body();
        let len = head.len() + data.len();
        let too_long = || io::Error::other("A reply is longer than its ring entry.");
        let payload = self.payload.get_mut(..len).ok_or_else(too_long)?;
        payload[..head.len()].copy_from_slice(head);
        let mut at = head.len();
        for part in &data.parts {
            payload[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let header = reply.header();
        self.header[..header.len()].copy_from_slice(header);
        let ent = UringEnt { payload_size: len as u32, ..self.ent() };
        self.header[ENT..ENT + size_of::<UringEnt>()].copy_from_slice(ent.as_bytes());
        Ok(())
    }
}

/// One CPU's queue, in its thread.
struct Queue<'a, F> {
    session: &'a Session<F>,
    device: BorrowedFd<'a>,
    qid: u16,
    // Before the slots: the ring is gone before the memory that it names.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    slots: Vec<Slot>,
    late: mpsc::Sender<Late>,
    mail: Arc<Mail>,
    woken: Box<[u8; 8]>,
    reply: ReplyBuffer,
}

impl<'a, F: FileSystem> Queue<'a, F> {
    fn new(
        session: &'a Session<F>,
        device: BorrowedFd<'a>,
        qid: u16,
        payload: usize,
        late: mpsc::Sender<Late>,
    ) -> io::Result<Self> {
        let mut cpu = CpuSet::new();
        if usize::from(qid) < CpuSet::MAX_CPU {
            cpu.set(usize::from(qid));
            // A CPU that is offline or not ours: the thread then runs where it may.
            let _ = rustix::thread::sched_setaffinity(None, &cpu);
        }
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .build((DEPTH as u32 + 1).next_power_of_two())?;
        let ready = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Queue {
            session,
            device,
            qid,
            ring,
            slots: (0..DEPTH).map(|_| Slot::new(payload)).collect(),
            late,
            mail: Arc::new(Mail { ready, replies: Mutex::default() }),
            woken: Box::new([0; 8]),
            reply: ReplyBuffer::default(),
        })
    }

    fn run(mut self, awake: &Awake) -> io::Result<()> {
        crate::priority::answer_soon();
        for index in 0..self.slots.len() {
            self.register(index)?;
        }
        self.wait_for_mail()?;
        let mut live = self.slots.len();
        while live > 0 {
            let since = Instant::now();
            if let Err(error) = self.wait(awake) {
                match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    _ => return Err(error),
                }
            }
            awake.request(since.elapsed());
            while let Some(done) = { self.ring.completion().next() } {
                if done.user_data() == MAIL {
                    self.take_mail()?;
                } else if done.result() >= 0 {
                    self.answer(done.user_data() as usize)?;
                } else {
                    live -= 1;
                    match -done.result() {
                        libc::ENOTCONN | libc::ECONNABORTED | libc::ECANCELED | libc::ENODEV => {}
                        errno => return Err(io::Error::from_raw_os_error(errno)),
                    }
                }
            }
        }
        Ok(())
    }

    /// Hands in what was answered and waits for what comes next.
    fn wait(&mut self, awake: &Awake) -> io::Result<()> {
        while let Some((time, burst)) = awake.patience() {
            let time = types::Timespec::new().nsec(time.tv_nsec as u32);
            match self.ring.submitter().submit_with_args(1, &types::SubmitArgs::new().timespec(&time)) {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => awake.pause(burst),
                done => return done.map(drop),
            }
        }
        self.ring.submit_and_wait(1).map(drop)
    }

    fn answer(&mut self, index: usize) -> io::Result<()> {
        let slot = &self.slots[index];
        let short = || io::Error::new(io::ErrorKind::InvalidData, "A ring entry has no whole request.");
        let (header, _) = InHeader::read_from_prefix(&slot.header).map_err(|_| short())?;
        let args = &slot.header[OP_IN..OP_IN + abi::args_size(header.opcode)];
        let payload = slot.payload.get(..slot.ent().payload_size as usize).ok_or_else(short)?;
        match self.session.answer(&Parts { header, args, payload }, None, &mut self.reply) {
            Outcome::Answered => self.slots[index].put(&self.reply)?,
            // Not through a ring, but it must not be lost if it were.
            Outcome::Silent => {}
            Outcome::Late(job) => {
                let late = Late { unique: header.unique, index, job, mail: self.mail.clone() };
                return self
                    .late
                    .send(late)
                    .map_err(|_| io::Error::other("The thread for late answers is gone."));
            }
        }
        self.commit(index)
    }

    fn take_mail(&mut self) -> io::Result<()> {
        let replies = std::mem::take(&mut *self.mail.replies.lock());
        for (index, reply) in replies {
            self.slots[index].put(&reply)?;
            self.commit(index)?;
        }
        self.wait_for_mail()
    }

    fn register(&mut self, index: usize) -> io::Result<()> {
        let areas = self.slots[index].areas.as_ptr();
        let mut entry = self.command(REGISTER, 0, Some(areas as u64)).user_data(index as u64);
        // The builder has no way to set `len`, the number of areas.
        // SAFETY: an `Entry128` is the kernel's 128-byte submission, whose `len` is the u32 at byte 24.
        unsafe { (&raw mut entry).cast::<u8>().add(24).cast::<u32>().write_unaligned(2) };
        self.push(entry)
    }

    fn commit(&mut self, index: usize) -> io::Result<()> {
        let commit_id = self.slots[index].ent().commit_id;
        let entry = self.command(COMMIT_AND_FETCH, commit_id, None).user_data(index as u64);
        self.push(entry)
    }

    fn command(&self, operation: u32, commit_id: u64, areas: Option<u64>) -> squeue::Entry128 {
        let mut command = [0; 80];
        let request = UringCmd { flags: 0, commit_id, qid: self.qid, padding: [0; 6] };
        command[..size_of::<UringCmd>()].copy_from_slice(request.as_bytes());
        opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), operation)
            .cmd(command)
            .addr(areas)
            .build()
    }

    fn wait_for_mail(&mut self) -> io::Result<()> {
        let fd = types::Fd(self.mail.ready.as_raw_fd());
        let read = opcode::Read::new(fd, self.woken.as_mut_ptr(), 8).build().user_data(MAIL);
        self.push(read.into())
    }

    fn push(&mut self, entry: squeue::Entry128) -> io::Result<()> {
        // SAFETY: what the entries name (slots, `woken`, the descriptors) lives as long as the ring in this
        // struct, which is dropped first, and is not touched between a submission and its completion.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() {
            self.ring.submit()?;
            // SAFETY: as above.
            unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        }
        Ok(())
    }
}
