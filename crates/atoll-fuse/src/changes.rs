//! Requests that change something, taken apart for [`Writable`].

use crate::abi::{self, op, set};
use crate::filesystem::{Call, Errno, Reply};
use crate::reply::ReplyBuffer;
use crate::session::Parts;
use crate::writable::{NewNode, SetAttr, SetTime, Writable};

impl<'a> Parts<'a> {
    /// Two names, one after the other.
    fn names(&self) -> Reply<(&'a [u8], &'a [u8])> {
        let first = self.name()?;
        let rest = &self.payload[first.len() + 1..];
        let end = rest.iter().position(|byte| *byte == 0).ok_or(Errno::EINVAL)?;
        Ok((first, &rest[..end]))
    }
}

/// Answers a request that changes something; `None` when it is none.
pub(crate) fn dispatch(
    fs: &dyn Writable,
    call: &Call<'_>,
    request: &Parts<'_>,
    reply: &mut ReplyBuffer,
) -> Option<Reply<()>> {
    let node = request.header.nodeid;
    let done = match request.header.opcode {
        op::CREATE | op::TMPFILE | op::MKNOD | op::MKDIR | op::SYMLINK => make(fs, call, request, reply),
        op::LINK => request.args().and_then(|args: abi::LinkIn| {
            let entry = fs.link(call, args.oldnodeid, node, request.name()?)?;
            reply.put(&entry.wire());
            Ok(())
        }),
        op::UNLINK => request.name().and_then(|name| fs.remove(call, node, name, false)),
        op::RMDIR => request.name().and_then(|name| fs.remove(call, node, name, true)),
        op::RENAME => request.args().and_then(|args: abi::RenameIn| {
            let (from, to) = request.names()?;
            fs.rename(call, (node, from), (args.newdir, to), 0)
        }),
        op::RENAME2 => request.args().and_then(|args: abi::Rename2In| {
            let (from, to) = request.names()?;
            fs.rename(call, (node, from), (args.newdir, to), args.flags)
        }),
        op::SETATTR => setattr(fs, call, request, reply),
        op::STATX => statx(fs, call, request, reply),
        op::WRITE => write(fs, call, request, reply),
        op::FALLOCATE => request
            .args()
            .and_then(|args: abi::FallocateIn| fs.fallocate(call, node, args.offset, args.length, args.mode)),
        op::FSYNC | op::FSYNCDIR => fs.fsync(call, node),
        op::SETXATTR => request.args().and_then(|args: abi::SetxattrIn| {
            let name = request.name()?;
            let value = request.payload.get(name.len() + 1..).unwrap_or_default();
            let value = value.get(..args.size as usize).ok_or(Errno::EINVAL)?;
            fs.setxattr(call, node, name, value, args.flags)
        }),
        op::REMOVEXATTR => request.name().and_then(|name| fs.removexattr(call, node, name)),
        _ => return None,
    };
    Some(done)
}

fn make(fs: &dyn Writable, call: &Call<'_>, request: &Parts<'_>, reply: &mut ReplyBuffer) -> Reply<()> {
    let parent = request.header.nodeid;
    let mut new = NewNode { mode: 0, rdev: 0, target: b"" };
    let mut name = None;
    let mut opens = false;
    match request.header.opcode {
        op::CREATE | op::TMPFILE => {
            let args: abi::CreateIn = request.args()?;
            new.mode = libc::S_IFREG | (args.mode & 0o7777);
            opens = true;
            if request.header.opcode == op::CREATE {
                name = Some(request.name()?);
            }
        }
        op::MKNOD => {
            let args: abi::MknodIn = request.args()?;
            (new.mode, new.rdev, name) = (args.mode, args.rdev, Some(request.name()?));
        }
        op::MKDIR => {
            let args: abi::MkdirIn = request.args()?;
            (new.mode, name) = (libc::S_IFDIR | (args.mode & 0o7777), Some(request.name()?));
        }
        _ => {
            let (of, target) = request.names()?;
            (new.mode, new.target, name) = (libc::S_IFLNK | 0o777, target, Some(of));
        }
    }
    reply.put(&fs.make(call, parent, name, new)?.wire());
    if opens {
        let opened = fs.opened();
        reply.put(&abi::OpenOut { fh: opened.handle, open_flags: opened.flags, backing_id: 0 });
    }
    Ok(())
}

fn setattr(fs: &dyn Writable, call: &Call<'_>, request: &Parts<'_>, reply: &mut ReplyBuffer) -> Reply<()> {
    let args: abi::SetattrIn = request.args()?;
    let has = |bit: u32| args.valid & bit != 0;
    let time = |bit, now, seconds: u64, nanoseconds| match (has(bit), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(seconds as i64, nanoseconds)),
        _ => None,
    };
    let wanted = SetAttr {
        mode: has(set::MODE).then_some(args.mode),
        uid: has(set::UID).then_some(args.uid),
        gid: has(set::GID).then_some(args.gid),
        size: has(set::SIZE).then_some(args.size),
        atime: time(set::ATIME, set::ATIME_NOW, args.atime, args.atimensec),
        mtime: time(set::MTIME, set::MTIME_NOW, args.mtime, args.mtimensec),
        drops_set_id: has(set::KILL_SUIDGID),
    };
    let (attr, valid) = fs.setattr(call, request.header.nodeid, wanted)?;
    reply.put(&abi::AttrOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        dummy: 0,
        attr,
    });
    Ok(())
}

fn statx(fs: &dyn Writable, call: &Call<'_>, request: &Parts<'_>, reply: &mut ReplyBuffer) -> Reply<()> {
    let (stat, valid) = fs.statx(call, request.header.nodeid)?;
    reply.put(&abi::StatxOut {
        attr_valid: valid.as_secs(),
        attr_valid_nsec: valid.subsec_nanos(),
        flags: 0,
        spare: [0; 2],
        stat,
    });
    Ok(())
}

fn write(fs: &dyn Writable, call: &Call<'_>, request: &Parts<'_>, reply: &mut ReplyBuffer) -> Reply<()> {
    let args: abi::WriteIn = request.args()?;
    let bytes = request.payload.get(..args.size as usize).ok_or(Errno::EINVAL)?;
    let drops = args.write_flags & abi::WRITE_KILL_SUIDGID != 0;
    let size = fs.write(call, request.header.nodeid, args.offset, bytes, drops)?;
    reply.put(&abi::WriteOut { size, padding: 0 });
    Ok(())
}
