//! One connection: what was agreed with the kernel, and the way from a request to its reply. Transports bring
//! requests in and carry replies out.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use zerocopy::FromBytes;

use crate::abi::{self, init, op};
use crate::filesystem::{Call, DirSink, Errno, FileSystem, Found, Reply};
use crate::reply::ReplyBuffer;
use crate::{Counters, abi::InHeader, changes};

/// How a session behaves. What the kernel does not offer is left out silently.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long a waiting thread asks again and again before it sleeps. It starts anew with each request, so
    /// an idle session uses no CPU.
    pub spin: Duration,
    /// In a burst of requests, keep idle processors from halting (root only; the whole machine's are meant).
    pub awake: bool,
    /// Threads that may answer at the same time; one of them waits for requests.
    pub threads: usize,
    /// The largest WRITE; a read-only file system needs none.
    pub max_write: u32,
    /// The largest READ and READDIR, in pages of 4 KiB.
    pub max_pages: u16,
    /// The kernel checks POSIX ACLs, which it then asks for.
    pub acl: bool,
    /// Offer FUSE over io_uring. When it was offered and no ring is registered, everything blocks.
    pub uring: bool,
    /// The connection was started by another process, which died: ask for its unanswered requests.
    pub resumed: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            spin: Duration::from_micros(80),
            awake: true,
            threads: std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8),
            max_write: 64 * 1024,
            max_pages: 256,
            acl: false,
            uring: false,
            resumed: false,
        }
    }
}

/// A request taken apart: its fixed arguments, and the names (or data) after them.
pub(crate) struct Parts<'a> {
    pub header: InHeader,
    pub args: &'a [u8],
    pub payload: &'a [u8],
}

impl<'a> Parts<'a> {
    /// From the bytes that `/dev/fuse` gives.
    pub(crate) fn split(message: &'a [u8]) -> Option<Self> {
        let (header, body) = InHeader::read_from_prefix(message).ok()?;
        let size = abi::args_size(header.opcode);
        (body.len() >= size).then(|| Parts { header, args: &body[..size], payload: &body[size..] })
    }

    pub(crate) fn args<T: FromBytes>(&self) -> Reply<T> {
        T::read_from_prefix(self.args).map(|(args, _)| args).map_err(|_| Errno::EINVAL)
    }

    pub(crate) fn name(&self) -> Reply<&'a [u8]> {
        let end = self.payload.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
        Ok(&self.payload[..end])
    }
}

/// What became of a request.
pub(crate) enum Outcome {
    /// The reply is in the buffer.
    Answered,
    /// It is of a kind that has no reply.
    Silent,
    /// The entry comes from this, to be run in a thread that serves no requests; see [`Session::late`].
    Late(Box<dyn FnOnce() -> Reply<crate::Entry> + Send>),
}

/// One connection's state, shared by its threads.
pub struct Session<F> {
    fs: F,
    pub(crate) config: Config,
    counters: Counters,
    minor: AtomicU32,
    uring: AtomicBool,
}

impl<F: FileSystem> Session<F> {
    /// A session that answers with `fs`.
    pub fn new(fs: F, config: Config) -> Self {
        Session {
            fs,
            config,
            counters: Counters::default(),
            minor: AtomicU32::new(0),
            uring: AtomicBool::new(false),
        }
    }

    /// The file system.
    pub fn fs(&self) -> &F {
        &self.fs
    }

    /// How many requests of each kind came.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The protocol's minor version agreed on; 0 before INIT, and in a session that was resumed.
    pub fn minor(&self) -> u32 {
        self.minor.load(Ordering::Relaxed)
    }

    /// Whether the kernel waits for rings.
    pub(crate) fn agreed_uring(&self) -> bool {
        self.uring.load(Ordering::Acquire)
    }

    /// Answers one request.
    pub(crate) fn answer(
        &self,
        request: &Parts<'_>,
        hand_off: Option<&dyn Fn()>,
        reply: &mut ReplyBuffer,
    ) -> Outcome {
        let header = &request.header;
        self.counters.count(header.opcode);
        let call = Call {
            uid: header.uid,
            gid: header.gid,
            pid: header.pid,
            request: header.unique & !abi::UNIQUE_RESEND,
            resent: header.unique & abi::UNIQUE_RESEND != 0,
            hand_off,
            handed: false.into(),
        };
        reply.clear();
        let result = match header.opcode {
            op::FORGET | op::BATCH_FORGET => {
                let _ = self.forget(request);
                return Outcome::Silent;
            }
            op::LOOKUP if request.payload == b".\0" => match self.fs.lookup_handle(&call, header.nodeid) {
                Found::Later(job) => return Outcome::Late(job),
                Found::Now(found) => found.map(|entry| reply.put(&entry.wire())),
            },
            // Nothing takes long enough to be worth interrupting; the reply to the request itself ends it.
            op::INTERRUPT => return Outcome::Silent,
            op::INIT => self.init(request, reply),
            op::DESTROY => Ok(()),
            _ => {
                // A panic is one failed request, not a dead server that its successor would follow.
                let answer = std::panic::AssertUnwindSafe(|| self.dispatch(request, &call, reply));
                std::panic::catch_unwind(answer).unwrap_or_else(|_| {
                    log::error!("Answering a request (kind {}) panicked.", header.opcode);
                    Err(Errno::EIO)
                })
            }
        };
        log::trace!(
            "{} node {:#x} {:?} by {}: {result:?}",
            abi::op_name(header.opcode).unwrap_or("?"),
            header.nodeid,
            String::from_utf8_lossy(request.payload),
            header.pid
        );
        if let Err(errno) = result {
            reply.error(errno);
        }
        reply.seal(header.unique);
        Outcome::Answered
    }

    /// Runs what [`Outcome::Late`] gave, for the request with this id.
    pub(crate) fn late(
        &self,
        unique: u64,
        job: Box<dyn FnOnce() -> Reply<crate::Entry> + Send>,
        reply: &mut ReplyBuffer,
    ) {
        reply.clear();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
        match found.unwrap_or(Err(Errno::EIO)) {
            Ok(entry) => reply.put(&entry.wire()),
            Err(errno) => reply.error(errno),
        }
        reply.seal(unique);
    }

    pub(crate) fn dispatch(
        &self,
        request: &Parts<'_>,
        call: &Call<'_>,
        reply: &mut ReplyBuffer,
    ) -> Reply<()> {
        let node = request.header.nodeid;
        if let Some(fs) = self.fs.writable()
            && let Some(done) = changes::dispatch(fs, call, request, reply)
        {
            return done;
        }
        match request.header.opcode {
            op::LOOKUP => reply.put(&self.fs.lookup(call, node, request.name()?)?.wire()),
            op::GETATTR => {
                let (attr, valid) = self.fs.getattr(call, node)?;
                reply.put(&abi::AttrOut {
                    attr_valid: valid.as_secs(),
                    attr_valid_nsec: valid.subsec_nanos(),
                    dummy: 0,
                    attr,
                });
            }
            op::READDIR | op::READDIRPLUS => {
                let args: abi::ReadIn = request.args()?;
                let end = reply.head.len() + self.at_most(args.size) as usize;
                let plus = request.header.opcode == op::READDIRPLUS;
                let mut sink = DirSink { out: &mut reply.head, end, plus };
                self.fs.readdir(call, node, args.offset, &mut sink)?;
            }
            op::READ => {
                let args: abi::ReadIn = request.args()?;
                self.fs.read(call, node, args.fh, args.offset, self.at_most(args.size), &mut reply.data)?;
                debug_assert!(reply.data.len() <= args.size as usize, "a READ was answered with too much");
            }
            op::READLINK => {
                let target = self.fs.readlink(call, node)?;
                reply.data.push(target);
            }
            op::OPEN => {
                let args: abi::OpenIn = request.args()?;
                opened(reply, self.fs.open(call, node, args.flags)?);
            }
            op::OPENDIR => opened(reply, self.fs.opendir(call, node)?),
            op::RELEASE | op::RELEASEDIR => {}
            op::GETXATTR => {
                let args: abi::GetxattrIn = request.args()?;
                sized(reply, args.size, self.fs.getxattr(call, node, request.name()?)?)?;
            }
            op::LISTXATTR => {
                let args: abi::GetxattrIn = request.args()?;
                sized(reply, args.size, self.fs.listxattr(call, node)?)?;
            }
            op::LSEEK => {
                let args: abi::LseekIn = request.args()?;
                let offset = self.fs.lseek(call, node, args.offset, args.whence)?;
                reply.put(&abi::LseekOut { offset });
            }
            op::STATFS => reply.put(&self.fs.statfs(call)?),
            op::SETATTR
            | op::SYMLINK
            | op::MKNOD
            | op::MKDIR
            | op::UNLINK
            | op::RMDIR
            | op::RENAME
            | op::RENAME2
            | op::LINK
            | op::WRITE
            | op::CREATE
            | op::TMPFILE
            | op::FALLOCATE
            | op::SETXATTR
            | op::REMOVEXATTR => return Err(Errno::EROFS),
            _ => return Err(Errno::ENOSYS),
        }
        Ok(())
    }

    /// No request may make an answer larger than was agreed, whatever it says.
    fn at_most(&self, size: u32) -> u32 {
        size.min(u32::from(self.config.max_pages) * 4096)
    }

    pub(crate) fn forget(&self, request: &Parts<'_>) -> Reply<()> {
        if request.header.opcode == op::FORGET {
            let args: abi::ForgetIn = request.args()?;
            self.fs.forget(request.header.nodeid, args.nlookup);
        } else {
            let args: abi::BatchForgetIn = request.args()?;
            let one = size_of::<abi::ForgetOne>();
            for bytes in request.payload.chunks_exact(one).take(args.count as usize) {
                let item = abi::ForgetOne::read_from_bytes(bytes).map_err(|_| Errno::EINVAL)?;
                self.fs.forget(item.nodeid, item.nlookup);
            }
        }
        Ok(())
    }

    fn init(&self, request: &Parts<'_>, reply: &mut ReplyBuffer) -> Reply<()> {
        // Older kernels send a shorter INIT: what is missing is zero.
        let mut bytes = [0; size_of::<abi::InitIn>()];
        let given = request.payload.len().min(bytes.len());
        bytes[..given].copy_from_slice(&request.payload[..given]);
        let args = abi::InitIn::read_from_bytes(&bytes).map_err(|_| Errno::EINVAL)?;
        if args.major != abi::MAJOR || args.minor < abi::MIN_MINOR {
            log::error!(
                "The kernel speaks FUSE {}.{}; 7.{} is needed.",
                args.major,
                args.minor,
                abi::MIN_MINOR
            );
            return Err(Errno(libc::EPROTO));
        }
        let mut offered = u64::from(args.flags);
        if offered & init::INIT_EXT != 0 {
            offered |= u64::from(args.flags2) << 32;
        }
        let agreed = offered & self.wanted();
        self.uring.store(agreed & init::OVER_IO_URING != 0, Ordering::Release);
        self.minor.store(args.minor.min(abi::MINOR), Ordering::Relaxed);
        reply.put(&abi::InitOut {
            major: abi::MAJOR,
            minor: abi::MINOR,
            max_readahead: args.max_readahead,
            flags: agreed as u32,
            max_background: 64,
            congestion_threshold: 48,
            max_write: self.config.max_write.max(4096),
            time_gran: 1,
            max_pages: self.config.max_pages,
            flags2: (agreed >> 32) as u32,
            ..Default::default()
        });
        Ok(())
    }

    /// READDIRPLUS always (without AUTO): a stat walk then sends no LOOKUP. AUTO_INVAL_DATA so that a cached
    /// listing of a folder that does move is dropped when its mtime moves; where attributes hold for ever it
    /// costs nothing. Where the kernel's own writes move the mtime it would drop what they left in its cache. No
    /// writeback cache. Handles (EXPORT_SUPPORT) only where a node means the same for ever.
    fn wanted(&self) -> u64 {
        let mut wanted = init::ASYNC_READ
            | init::BIG_WRITES
            | init::DO_READDIRPLUS
            | init::ASYNC_DIO
            | init::NO_OPEN_SUPPORT
            | init::PARALLEL_DIROPS
            | init::MAX_PAGES
            | init::CACHE_SYMLINKS
            | init::NO_OPENDIR_SUPPORT
            | init::INIT_EXT
            | init::HAS_EXPIRE_ONLY
            | init::HAS_RESEND;
        wanted |= match self.fs.writable() {
            Some(_) => init::HANDLE_KILLPRIV_V2,
            None => init::EXPORT_SUPPORT | init::AUTO_INVAL_DATA,
        };
        if self.config.acl {
            wanted |= init::POSIX_ACL;
        }
        if self.config.uring {
            wanted |= init::OVER_IO_URING;
        }
        wanted
    }
}

fn opened(reply: &mut ReplyBuffer, opened: crate::Opened) {
    reply.put(&abi::OpenOut { fh: opened.handle, open_flags: opened.flags, backing_id: 0 });
}

/// The answer to a request that asks for a size first: a size of 0 asks how much there is.
fn sized(reply: &mut ReplyBuffer, size: u32, bytes: bytes::Bytes) -> Reply<()> {
    if size == 0 {
        reply.put(&abi::GetxattrOut { size: bytes.len() as u32, padding: 0 });
    } else if bytes.len() > size as usize {
        return Err(Errno::ERANGE);
    } else {
        reply.data.push(bytes);
    }
    Ok(())
}

/// Serves the connection behind `device` until it is unmounted: over io_uring when that was offered and
/// agreed, else over `/dev/fuse`.
///
/// # Errors
/// The system's error on the device.
pub fn serve<F: FileSystem>(
    session: &Session<F>,
    device: std::os::fd::BorrowedFd<'_>,
) -> std::io::Result<()> {
    if session.config.uring {
        crate::uring::serve(session, device)
    } else {
        crate::dev::serve(session, device)
    }
}
