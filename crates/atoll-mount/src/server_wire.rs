//! What the supervisor, its server and their clients say to each other: JSON lines over Unix sockets, and
//! descriptors beside the first of them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use atoll_store::{Code, Error, Result};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::server_client::ServerInfo;

/// The environment variable that has the command for starting helper processes, as a JSON list.
pub(crate) const HELPER: &str = "ATOLL_HELPER";

/// From the supervisor to a server, with the descriptors of [`Descriptors`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The process that holds the descriptors.
    pub supervisor_pid: u32,
    /// How many servers came before this one.
    pub restarts: u64,
    /// The one before unmounted, or was about to.
    pub stopped: bool,
    /// Which transport; `uring` only where the kernel has it.
    pub transport: String,
}

/// What outlives a server.
#[derive(Debug)]
pub(crate) struct Descriptors {
    /// The connection of the mount `plain`.
    pub plain: OwnedFd,
    /// The connection of the mount `xattr`.
    pub xattr: OwnedFd,
    /// Where clients connect; they wait there while a server is replaced.
    pub control: OwnedFd,
    /// The locked file that says that somebody serves.
    pub alive: OwnedFd,
    /// The right to give out the store's node ids; held until the process ends.
    pub serving: OwnedFd,
}

/// From a server to its supervisor, and from the supervisor to whoever started it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub(crate) enum Said {
    /// It serves.
    Ready,
    /// Nothing uses the mounts; it unmounts them. `Ready` takes it back.
    Stopping,
    /// It cannot: an error's code and sentence.
    Failed { code: String, message: String },
}

/// From a client to a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub(crate) enum Ask {
    /// How are you?
    Info,
    /// End, if nothing uses you.
    Stop,
}

/// A server's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(crate) enum Answer {
    /// To `info`.
    Info(Box<ServerInfo>),
    /// To `stop`: nothing is mounted any more.
    Stopped,
    /// Something uses it: what, in a sentence.
    Busy { message: String },
}

/// Writes one line.
pub(crate) fn say<T: Serialize>(mut to: impl Write, what: &T) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    to.write_all(&line)
}

/// Reads one line; `None` at the end.
pub(crate) fn hear<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

/// The most descriptors that go with a line.
const DESCRIPTORS: usize = 5;

/// Sends a line with descriptors.
pub(crate) fn send_with<T: Serialize>(
    socket: &UnixStream,
    what: &T,
    fds: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("There is no room for the descriptors."));
    }
    let sent = sendmsg(socket, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL)?;
    if sent != line.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "The start message was cut short."));
    }
    Ok(())
}

/// Receives what [`send_with`] sent, with exactly so many descriptors; `None` when the sender is gone.
pub(crate) fn receive_with<T: DeserializeOwned, const N: usize>(
    socket: BorrowedFd<'_>,
) -> io::Result<Option<(T, [OwnedFd; N])>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut line = [0; 4096];
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut line)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes == 0 {
        return Ok(None);
    }
    let fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let fds = fds.collect::<Vec<_>>().try_into();
    let fds = fds.map_err(|_| io::Error::other("A descriptor is missing."))?;
    Ok(Some((serde_json::from_slice(&line[..got.bytes])?, fds)))
}

/// Sends a history server what it needs.
pub(crate) fn send_start(socket: &UnixStream, start: &Start, descriptors: &Descriptors) -> io::Result<()> {
    let Descriptors { plain, xattr, control, alive, serving } = descriptors;
    send_with(socket, start, &[plain.as_fd(), xattr.as_fd(), control.as_fd(), alive.as_fd(), serving.as_fd()])
}

/// Receives what [`send_start`] sent; `None` when the supervisor is gone.
pub(crate) fn receive_start(socket: BorrowedFd<'_>) -> io::Result<Option<(Start, Descriptors)>> {
    let Some((start, fds)) = receive_with(socket)? else { return Ok(None) };
    let [plain, xattr, control, alive, serving] = fds;
    Ok(Some((start, Descriptors { plain, xattr, control, alive, serving })))
}

/// A socket's path may have 107 bytes only; through the folder's descriptor any place is short enough.
fn through<T>(path: &Path, use_it: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "A socket needs a path in a folder."));
    };
    let dir =
        rustix::fs::openat(CWD, dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    use_it(&Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name))
}

/// Connects to a server's control socket.
pub(crate) fn connect(path: &Path) -> io::Result<UnixStream> {
    through(path, |path| UnixStream::connect(path))
}

/// Makes the control socket.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    through(path, |path| UnixListener::bind(path))
}

/// Asks one question on a connection.
pub(crate) fn ask<A: DeserializeOwned>(
    connection: &UnixStream,
    question: &impl Serialize,
) -> io::Result<Option<A>> {
    say(connection, question)?;
    hear(&mut BufReader::new(connection))
}

/// An error in a form that crosses processes.
pub(crate) fn failed(error: &Error) -> Said {
    Said::Failed { code: error.code.name().to_owned(), message: error.message.clone() }
}

/// And back.
pub(crate) fn error(code: &str, message: String) -> Error {
    const CODES: [Code; 8] = [
        Code::NoStore,
        Code::NewerFormat,
        Code::Busy,
        Code::Damaged,
        Code::NoSpace,
        Code::Permission,
        Code::Unsupported,
        Code::Io,
    ];
    let code = CODES.into_iter().find(|known| known.name() == code).unwrap_or(Code::Io);
    Error::new(code, message)
}

/// Opens (or makes) a file to lock.
pub(crate) fn lock_file(path: &Path) -> Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(path);
    file.map_err(|error| Error::io("open the lock", path, error))
}
