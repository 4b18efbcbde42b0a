//! What the host says about a file, and how files are reached without following a link out of the folder.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use atoll_store::tree::{FileType, Time};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;

/// Stat data of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostStat {
    /// The host's inode number, all of it.
    pub ino: u64,
    /// The device it is on.
    pub dev: u64,
    /// What it is.
    pub kind: FileType,
    /// 12 permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes (a link: of its target; a folder: what the host says).
    pub size: u64,
    /// Bytes on disk.
    pub allocated: u64,
    /// Names.
    pub nlink: u32,
    /// A device's number, as `makedev` makes it; else 0.
    pub rdev: u64,
    /// Last change of the contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation; zero where the host does not know.
    pub btime: Time,
    /// Something is mounted on it (also a bind mount of the same file system).
    pub mount_root: bool,
}

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

impl HostStat {
    /// Of a name in a folder; links are not followed.
    pub fn at(dir: impl AsFd, name: impl Arg) -> rustix::io::Result<HostStat> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        rustix::fs::statx(dir, name, flags, WANTED).and_then(|stat| HostStat::new(&stat))
    }

    /// Of an open file.
    pub fn of(file: impl AsFd) -> rustix::io::Result<HostStat> {
        rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, WANTED).and_then(|stat| HostStat::new(&stat))
    }

    fn new(stat: &Statx) -> rustix::io::Result<HostStat> {
        let kind = match rustix::fs::FileType::from_raw_mode(u32::from(stat.stx_mode)) {
            rustix::fs::FileType::RegularFile => FileType::File,
            rustix::fs::FileType::Directory => FileType::Dir,
            rustix::fs::FileType::Symlink => FileType::Symlink,
            rustix::fs::FileType::Fifo => FileType::Fifo,
            rustix::fs::FileType::Socket => FileType::Socket,
            rustix::fs::FileType::CharacterDevice => FileType::Char,
            rustix::fs::FileType::BlockDevice => FileType::Block,
            _ => return Err(Errno::NOTSUP),
        };
        let time = |stamp: rustix::fs::StatxTimestamp| Time { sec: stamp.tv_sec, nsec: stamp.tv_nsec };
        let device = matches!(kind, FileType::Char | FileType::Block);
        let known = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        Ok(HostStat {
            ino: stat.stx_ino,
            dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            kind,
            mode: stat.stx_mode & 0o7777,
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            size: stat.stx_size,
            allocated: stat.stx_blocks * 512,
            nlink: stat.stx_nlink,
            rdev: if device { rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor) } else { 0 },
            mtime: time(stat.stx_mtime),
            ctime: time(stat.stx_ctime),
            btime: if known { time(stat.stx_btime) } else { Time::default() },
            mount_root: stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        })
    }

    /// Whether it is still the same file in the same state (what a read is checked with).
    pub fn same_state(&self, other: &HostStat) -> bool {
        (self.ino, self.dev, self.size, self.mtime, self.ctime, self.kind)
            == (other.ino, other.dev, other.size, other.mtime, other.ctime, other.kind)
    }
}

/// Paths are walked in pieces that the kernel takes (`PATH_MAX` is 4096 with the final zero).
const PIECE: usize = 4000;

/// Opens what is at `path` (relative, no leading slash; empty for the folder itself) below `root` without
/// following any symbolic link and without a limit on the path's length.
pub fn open_beneath(root: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    if path.is_empty() {
        return rustix::fs::openat(root, c".", flags, Mode::empty());
    }
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    loop {
        let dir = at.as_ref().map_or(root, |dir| dir.as_fd());
        let (piece, left) = split(rest);
        let last = left.is_empty();
        let how =
            if last { flags } else { OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW };
        let next = open_piece(dir, piece, how)?;
        if last {
            return Ok(next);
        }
        at = Some(next);
        rest = left;
    }
}

/// The longest run of whole components that fits a system call, and what follows it.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    if path.len() <= PIECE {
        return (path, b"");
    }
    let cut = path[..PIECE].iter().rposition(|&byte| byte == b'/').unwrap_or(path.len());
    (&path[..cut], path.get(cut + 1..).unwrap_or(b""))
}

fn open_piece(dir: BorrowedFd<'_>, piece: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
    use std::sync::atomic::{AtomicBool, Ordering};
    // Older sandboxes refuse openat2 with ENOSYS or EPERM: then every component is opened by itself.
    static NO_OPENAT2: AtomicBool = AtomicBool::new(false);
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match rustix::fs::openat2(dir, piece, flags, Mode::empty(), resolve) {
            Err(Errno::NOSYS) => NO_OPENAT2.store(true, Ordering::Relaxed),
            Err(Errno::PERM) if !flags.contains(OFlags::NOATIME) => NO_OPENAT2.store(true, Ordering::Relaxed),
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    let mut at: Option<OwnedFd> = None;
    let mut names = piece.split(|&byte| byte == b'/').peekable();
    while let Some(name) = names.next() {
        let dir = at.as_ref().map_or(dir, |dir| dir.as_fd());
        let last = names.peek().is_none();
        let how =
            if last { flags } else { OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW };
        at = Some(rustix::fs::openat(dir, name, how, Mode::empty())?);
    }
    at.ok_or(Errno::NOENT)
}

/// Opens a folder below `root` for listing.
pub fn open_dir(root: BorrowedFd<'_>, path: &[u8]) -> rustix::io::Result<OwnedFd> {
    open_beneath(root, path, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Opens a regular file in a folder for reading. It never blocks (a FIFO may have taken the name) and leaves
/// the access time alone where that is allowed.
pub fn open_file(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    match rustix::fs::openat(&dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(&dir, name, flags, Mode::empty()).map(File::from),
        other => other.map(File::from),
    }
}
