//! Extended attributes.

use atoll_store::Ino;
use bytes::Bytes;
use rustix::io::Errno;

use super::op::Op;
use super::{Live, Reply, Who, failed};

/// The longest name, value and list, as the kernel has them.
const NAME_MAX: usize = 255;
const SIZE_MAX: usize = 64 << 10;
const LIST_MAX: usize = 64 << 10;

/// When an attribute may be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Having {
    /// Whether there is one or not.
    Any,
    /// `XATTR_CREATE`: only when there is none.
    Not,
    /// `XATTR_REPLACE`: only when there is one.
    Already,
}

impl Live {
    /// An attribute's value.
    ///
    /// # Errors
    /// ENOENT, ENODATA.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Reply<Bytes> {
        let inner = self.inner.lock();
        inner.node(ino)?;
        inner.state.xattr(ino, name).map_err(failed)?.ok_or(Errno::NODATA)
    }

    /// The names of all attributes, each with a NUL after it.
    ///
    /// # Errors
    /// ENOENT.
    pub fn xattrs(&self, ino: Ino) -> Reply<Bytes> {
        let inner = self.inner.lock();
        inner.node(ino)?;
        let mut list = Vec::new();
        for (name, _) in inner.state.xattrs(ino).map_err(failed)? {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(list.into())
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// ENOENT, EEXIST, ENODATA, ERANGE for a name and E2BIG for a value that is too long, ENOSPC when the list would
    /// be too long to be shown.
    pub fn set_xattr(&self, who: Who, ino: Ino, name: &[u8], value: &[u8], having: Having) -> Reply<()> {
        if name.is_empty() || name.len() > NAME_MAX {
            return Err(Errno::RANGE);
        }
        if value.len() > SIZE_MAX {
            return Err(Errno::TOOBIG);
        }
        let time = self.now();
        let mut inner = self.inner.lock();
        inner.node(ino)?;
        let known = inner.state.xattrs(ino).map_err(failed)?;
        let is_there = known.iter().any(|(have, _)| **have == *name);
        match having {
            Having::Not if is_there => return Err(Errno::EXIST),
            Having::Already if !is_there => return Err(Errno::NODATA),
            _ => {}
        }
        let list: usize = known.iter().map(|(have, _)| have.len() + 1).sum();
        if !is_there && list + name.len() + 1 > LIST_MAX {
            return Err(Errno::NOSPC);
        }
        let op = Op::Xattr { ino, name: name.into(), value: Some(value.into()), mode: None, time };
        inner.make(who.request, op, &[], false)
    }

    /// Takes an attribute away.
    ///
    /// # Errors
    /// ENOENT, ENODATA.
    pub fn remove_xattr(&self, who: Who, ino: Ino, name: &[u8]) -> Reply<()> {
        let time = self.now();
        let mut inner = self.inner.lock();
        inner.node(ino)?;
        inner.state.xattr(ino, name).map_err(failed)?.ok_or(Errno::NODATA)?;
        let op = Op::Xattr { ino, name: name.into(), value: None, mode: None, time };
        inner.make(who.request, op, &[], true)
    }
}
