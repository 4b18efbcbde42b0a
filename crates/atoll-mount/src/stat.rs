//! An inode as the kernel wants it.

use atoll_fuse::abi::Attr;
use atoll_store::Ino;
use atoll_store::tree::{FileType, Inode, Time};

/// What `stat` shows. `allocated` is how many bytes are no holes: programs tell a sparse file by it. A tree keeps no
/// time of access; that of the last change stands for it.
pub(crate) fn attr(ino: Ino, inode: &Inode, allocated: u64) -> Attr {
    let (mtime, mtimensec) = time(inode.mtime);
    let (ctime, ctimensec) = time(inode.ctime);
    Attr {
        ino: ino.shown(),
        size: inode.size,
        blocks: allocated.div_ceil(512),
        atime: mtime,
        mtime,
        ctime,
        atimensec: mtimensec,
        mtimensec,
        ctimensec,
        mode: (dirent_type(inode.kind) << 12) | u32::from(inode.mode & 0o7777),
        nlink: inode.nlink,
        uid: inode.uid,
        gid: inode.gid,
        // The kernel's 32-bit form has the same bits for every device that Linux has.
        rdev: inode.rdev as u32,
        blksize: 4096,
        flags: 0,
    }
}

/// Seconds before 1970 go as two's complement, which is how the kernel reads them.
pub(crate) fn time(time: Time) -> (u64, u32) {
    (time.sec as u64, time.nsec)
}

/// The kind of a file as listings show it (`DT_*`); shifted by 12 it is the type in a mode.
pub(crate) fn dirent_type(kind: FileType) -> u32 {
    match kind {
        FileType::Fifo => 1,
        FileType::Char => 2,
        FileType::Dir => 4,
        FileType::Block => 6,
        FileType::File => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
    }
}
