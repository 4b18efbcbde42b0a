//! The kernel's structures, protocol 7.45 (`include/uapi/linux/fuse.h`), as far as they are used here. What a
//! kernel of a lower minor version does not know it does not ask for; the oldest one spoken to is 7.31.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version.
pub const MAJOR: u32 = 7;
/// The newest minor version known here.
pub const MINOR: u32 = 45;
/// The oldest minor version that is served (kernel 5.2).
pub const MIN_MINOR: u32 = 31;
/// The root's node id.
pub const ROOT_ID: u64 = 1;
/// Set in the id of a request that is sent again after `NOTIFY_RESEND`.
pub const UNIQUE_RESEND: u64 = 1 << 63;
/// Notification: send again what was not answered.
pub const NOTIFY_RESEND: i32 = 7;

macro_rules! opcodes {
    ($($name:ident = $number:literal),* $(,)?) => {
        /// Kinds of requests, and their names as counters show them.
        #[allow(missing_docs)]
        pub mod op {
            $(pub const $name: u32 = $number;)*
        }
        /// The name of a kind of request.
        pub(crate) fn op_name(opcode: u32) -> Option<&'static str> {
            match opcode {
                $($number => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

opcodes! {
    LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8, MKDIR = 9,
    UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16, STATFS = 17,
    RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23, REMOVEXATTR = 24, FLUSH = 25,
    INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29, FSYNCDIR = 30, GETLK = 31, SETLK = 32,
    SETLKW = 33, ACCESS = 34, CREATE = 35, INTERRUPT = 36, BMAP = 37, DESTROY = 38, IOCTL = 39, POLL = 40,
    NOTIFY_REPLY = 41, BATCH_FORGET = 42, FALLOCATE = 43, READDIRPLUS = 44, RENAME2 = 45, LSEEK = 46,
    COPY_FILE_RANGE = 47, SETUPMAPPING = 48, REMOVEMAPPING = 49, SYNCFS = 50, TMPFILE = 51, STATX = 52,
    COPY_FILE_RANGE_64 = 53,
}

/// How many bytes of fixed arguments a kind of request has before its names.
pub(crate) fn args_size(opcode: u32) -> usize {
    match opcode {
        op::GETATTR => size_of::<GetattrIn>(),
        op::SETATTR => size_of::<SetattrIn>(),
        op::MKNOD => size_of::<MknodIn>(),
        op::MKDIR => size_of::<MkdirIn>(),
        op::CREATE | op::TMPFILE => size_of::<CreateIn>(),
        op::RENAME => size_of::<RenameIn>(),
        op::RENAME2 => size_of::<Rename2In>(),
        op::LINK => size_of::<LinkIn>(),
        op::WRITE => size_of::<WriteIn>(),
        op::RELEASE | op::RELEASEDIR => size_of::<ReleaseIn>(),
        op::FSYNC | op::FSYNCDIR => size_of::<FsyncIn>(),
        op::SETXATTR => size_of::<SetxattrIn>(),
        op::FALLOCATE => size_of::<FallocateIn>(),
        op::STATX => size_of::<StatxIn>(),
        op::OPEN | op::OPENDIR => size_of::<OpenIn>(),
        op::READ | op::READDIR | op::READDIRPLUS => size_of::<ReadIn>(),
        op::GETXATTR | op::LISTXATTR => size_of::<GetxattrIn>(),
        op::LSEEK => size_of::<LseekIn>(),
        op::ACCESS => size_of::<AccessIn>(),
        op::FORGET => size_of::<ForgetIn>(),
        op::BATCH_FORGET => size_of::<BatchForgetIn>(),
        _ => 0,
    }
}

/// Bits of [`InitIn`] and [`InitOut`]: the low 32 in `flags`, the others in `flags2`.
#[allow(missing_docs)]
pub mod init {
    pub const ASYNC_READ: u64 = 1 << 0;
    pub const EXPORT_SUPPORT: u64 = 1 << 4;
    pub const BIG_WRITES: u64 = 1 << 5;
    pub const AUTO_INVAL_DATA: u64 = 1 << 12;
    pub const DO_READDIRPLUS: u64 = 1 << 13;
    pub const READDIRPLUS_AUTO: u64 = 1 << 14;
    pub const ASYNC_DIO: u64 = 1 << 15;
    pub const NO_OPEN_SUPPORT: u64 = 1 << 17;
    pub const PARALLEL_DIROPS: u64 = 1 << 18;
    pub const HANDLE_KILLPRIV_V2: u64 = 1 << 28;
    pub const POSIX_ACL: u64 = 1 << 20;
    pub const MAX_PAGES: u64 = 1 << 22;
    pub const CACHE_SYMLINKS: u64 = 1 << 23;
    pub const NO_OPENDIR_SUPPORT: u64 = 1 << 24;
    pub const EXPLICIT_INVAL_DATA: u64 = 1 << 25;
    pub const INIT_EXT: u64 = 1 << 30;
    pub const HAS_EXPIRE_ONLY: u64 = 1 << 35;
    pub const HAS_RESEND: u64 = 1 << 39;
    pub const OVER_IO_URING: u64 = 1 << 41;
}

/// Bits of [`SetattrIn::valid`].
#[allow(missing_docs)]
pub mod set {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
    pub const KILL_SUIDGID: u32 = 1 << 11;
}
/// In [`LseekIn::whence`]: the next data.
pub const SEEK_DATA: u32 = 3;
/// In [`LseekIn::whence`]: the next hole.
pub const SEEK_HOLE: u32 = 4;
/// In [`WriteIn::write_flags`]: the set-id bits go.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

macro_rules! wire {
    ($($(#[$meta:meta])* struct $name:ident { $($(#[$fmeta:meta])* $field:ident: $type:ty),* $(,)? })*) => {
        $(
            $(#[$meta])*
            #[allow(missing_docs)]
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
            #[repr(C)]
            pub struct $name { $($(#[$fmeta])* pub $field: $type),* }
        )*
    };
}

wire! {
    /// Before every request.
    struct InHeader {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16,
        padding: u16,
    }
    /// Before every reply; `error` is 0 or a negative errno (of a notification: its code).
    struct OutHeader { len: u32, error: i32, unique: u64 }
    /// What `stat` shows.
    struct Attr {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    /// The reply to LOOKUP; node id 0 says that there is no such name, and may be kept too.
    struct EntryOut {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32,
        attr_valid_nsec: u32, attr: Attr,
    }
    /// The reply to GETATTR.
    struct AttrOut { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    struct InitIn { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }
    struct InitOut {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16,
        congestion_threshold: u16, max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16,
        flags2: u32, max_stack_depth: u32, request_timeout: u16, unused: [u16; 11],
    }
    struct SetattrIn {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    struct MknodIn { mode: u32, rdev: u32, umask: u32, padding: u32 }
    struct MkdirIn { mode: u32, umask: u32 }
    struct CreateIn { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    struct RenameIn { newdir: u64 }
    struct Rename2In { newdir: u64, flags: u32, padding: u32 }
    struct LinkIn { oldnodeid: u64 }
    struct WriteIn {
        fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32,
    }
    struct WriteOut { size: u32, padding: u32 }
    struct ReleaseIn { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    struct FsyncIn { fh: u64, fsync_flags: u32, padding: u32 }
    struct SetxattrIn { size: u32, flags: u32 }
    struct FallocateIn { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    struct StatxIn { getattr_flags: u32, reserved: u32, fh: u64, sx_flags: u32, sx_mask: u32 }
    struct StatxTime { sec: i64, nsec: u32, reserved: i32 }
    /// What `statx` shows.
    struct Statx {
        mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, spare0: u16, ino: u64,
        size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime, ctime: StatxTime,
        mtime: StatxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, spare2: [u64; 14],
    }
    struct StatxOut { attr_valid: u64, attr_valid_nsec: u32, flags: u32, spare: [u64; 2], stat: Statx }
    struct GetattrIn { flags: u32, dummy: u32, fh: u64 }
    struct OpenIn { flags: u32, open_flags: u32 }
    struct OpenOut { fh: u64, open_flags: u32, backing_id: i32 }
    struct ReadIn { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    struct GetxattrIn { size: u32, padding: u32 }
    struct GetxattrOut { size: u32, padding: u32 }
    struct LseekIn { fh: u64, offset: u64, whence: u32, padding: u32 }
    struct LseekOut { offset: u64 }
    struct AccessIn { mask: u32, padding: u32 }
    struct ForgetIn { nlookup: u64 }
    struct BatchForgetIn { count: u32, dummy: u32 }
    struct ForgetOne { nodeid: u64, nlookup: u64 }
    /// The reply to STATFS.
    struct StatFs {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    /// Before every name in the reply to READDIR; names are padded to 8 bytes.
    struct Dirent { ino: u64, off: u64, namelen: u32, kind: u32 }
    /// What a ring entry says beside the request: where its reply belongs and how long its payload is.
    struct UringEnt { flags: u64, commit_id: u64, payload_size: u32, padding: u32, reserved: u64 }
    /// The command area of a submission.
    struct UringCmd { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }
}

/// Sizes that the kernel has; a changed one would be a different protocol.
const _: () = {
    assert!(size_of::<InHeader>() == 40);
    assert!(size_of::<OutHeader>() == 16);
    assert!(size_of::<Attr>() == 88);
    assert!(size_of::<EntryOut>() == 128);
    assert!(size_of::<AttrOut>() == 104);
    assert!(size_of::<InitIn>() == 64);
    assert!(size_of::<SetattrIn>() == 88);
    assert!(size_of::<WriteIn>() == 40);
    assert!(size_of::<ReleaseIn>() == 24);
    assert!(size_of::<StatxIn>() == 24);
    assert!(size_of::<Statx>() == 256);
    assert!(size_of::<StatxOut>() == 288);
    assert!(size_of::<InitOut>() == 64);
    assert!(size_of::<ReadIn>() == 40);
    assert!(size_of::<StatFs>() == 80);
    assert!(size_of::<UringEnt>() == 32);
    assert!(size_of::<UringCmd>() == 24);
};
