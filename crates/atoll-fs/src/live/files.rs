//! Attributes and contents.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use atoll_store::Ino;
use atoll_store::tree::{Extent, FileType, Inode, Time};
use bytes::{Bytes, BytesMut};
use rustix::io::Errno;

use super::content::{Content, Place, Source};
use super::node::Node;
use super::op::{Attrs, Op};
use super::runs::runs;
use super::state::Base;
use super::{Inner, Live, Reply, Stat, Who, failed, is_full, refused};

/// Larger writes go to the data area, smaller ones into the journal, where one sync makes them durable with what
/// names them.
const INLINE: usize = 64 << 10;
/// A write that finds no room for all is cut to whole pages.
const PAGE: usize = 4096;
/// The largest file: what offsets can say.
const SIZE_MAX: u64 = i64::MAX as u64;
const S_ISUID: u16 = 0o4000;
const S_ISGID: u16 = 0o2000;
const S_IXGRP: u16 = 0o010;

/// A part of what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// These.
    Bytes(Bytes),
    /// So many zeros.
    Zeros(u64),
}

impl Live {
    /// Sets attributes. `drops`: the set-id bits go, for somebody else changes the contents.
    ///
    /// # Errors
    /// ENOENT; EINVAL for the size of what is no regular file, EFBIG.
    pub fn set(&self, who: Who, ino: Ino, mut attrs: Attrs, drops: bool) -> Reply<Stat> {
        let time = self.now();
        let mut inner = self.inner.lock();
        let node = inner.node(ino)?;
        if let Some(size) = attrs.size {
            if node.inode.kind != FileType::File {
                return Err(if node.inode.kind == FileType::Dir { Errno::ISDIR } else { Errno::INVAL });
            }
            fits(size)?;
        }
        // A file that changes hands is nobody's way to another's rights, whoever gives it away.
        let given = attrs.uid.is_some() || attrs.gid.is_some();
        if attrs.mode.is_none() && node.inode.kind != FileType::Dir && (drops || given) {
            attrs.mode = without_set_id(&node.inode);
        }
        let frees = attrs.size.is_some_and(|size| size < node.inode.size);
        inner.make(who.request, Op::Set { ino, attrs, time }, &[], frees)?;
        inner.stat(ino)
    }

    /// Writes bytes and says how many: fewer only where there is no room for all. `drops` as for [`Live::set`].
    ///
    /// # Errors
    /// ENOENT, EINVAL for what is no regular file, EFBIG, ENOSPC when there is room for nothing.
    pub fn write(&self, who: Who, ino: Ino, offset: u64, bytes: &[u8], drops: bool) -> Reply<usize> {
        let time = self.now();
        fits(offset.checked_add(bytes.len() as u64).ok_or(Errno::FBIG)?)?;
        let mut inner = self.inner.lock();
        let inode = inner.regular(ino)?.inode;
        let mode = if drops { without_set_id(&inode) } else { None };
        let mut left = bytes;
        loop {
            match inner.write(who, ino, offset, left, mode, time) {
                // As much as there is room for (POSIX).
                Err(Errno::NOSPC | Errno::DQUOT) if left.len() > PAGE => {
                    left = &left[..(left.len() / 2).next_multiple_of(PAGE).min(left.len() - 1)];
                }
                done => return done.map(|()| left.len()),
            }
        }
    }

    /// `fallocate`: makes a hole, or (`keep_size` unset) lets the file reach to the end of the range.
    ///
    /// # Errors
    /// Those of [`Live::write`].
    pub fn fallocate(&self, who: Who, ino: Ino, range: Range<u64>, hole: bool, keep_size: bool) -> Reply<()> {
        let time = self.now();
        fits(range.end)?;
        let mut inner = self.inner.lock();
        let inode = inner.regular(ino)?.inode;
        let size = if keep_size { inode.size } else { inode.size.max(range.end) };
        let mode = without_set_id(&inode).filter(|_| who.uid != 0);
        // Where nothing is punched only the size can change.
        let (start, end) = if hole { (range.start, range.end) } else { (range.start, range.start) };
        inner.make(who.request, Op::Punch { ino, start, end, size, mode, time }, &[], hole)
    }

    /// Up to `len` bytes from `offset` on; fewer only at the end of the file. `slow` is called before something is
    /// done that may take longer than looking at memory.
    ///
    /// # Errors
    /// ENOENT, EINVAL for what is no regular file, EIO when bytes cannot be had.
    pub fn read(&self, ino: Ino, offset: u64, len: u64, slow: &dyn Fn()) -> Reply<Vec<Part>> {
        let (_pin, base, files) = {
            let inner = self.inner.lock();
            let node = inner.regular(ino)?;
            let end = node.inode.size.min(offset.saturating_add(len));
            let sources =
                node.content().map_or(Vec::new(), |content| content.sources(offset..end.max(offset)));
            let mut found = Vec::with_capacity(sources.len());
            for (range, source) in sources {
                let file = match source {
                    Source::At(place) => Some(inner.file(place.file)?),
                    _ => None,
                };
                found.push((range, source, file));
            }
            (inner.pins.clone(), inner.state.base.clone(), found)
        };
        let mut parts = Vec::with_capacity(files.len());
        for (range, source, file) in files {
            match (source, file) {
                (Source::Hole, _) => parts.push(Part::Zeros(range.end - range.start)),
                (Source::At(place), Some(file)) => {
                    let bytes = read_file(&file, place.offset, (range.end - range.start) as usize)?;
                    parts.push(Part::Bytes(bytes));
                }
                _ => {
                    slow();
                    read_base(&base, ino, range, &mut parts)?;
                }
            }
        }
        Ok(parts)
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// ENOENT; EINVAL for what is no symbolic link.
    pub fn readlink(&self, ino: Ino) -> Reply<Bytes> {
        let inner = self.inner.lock();
        inner.node(ino)?;
        inner.state.target(ino).map_err(failed)?.ok_or(Errno::INVAL)
    }

    /// `SEEK_DATA` (`data`) or `SEEK_HOLE`.
    ///
    /// # Errors
    /// ENXIO behind the end, and when there is no more data.
    pub fn seek(&self, ino: Ino, offset: u64, data: bool) -> Reply<u64> {
        let inner = self.inner.lock();
        let node = inner.regular(ino)?;
        let size = node.inode.size;
        if offset >= size {
            return Err(Errno::NXIO);
        }
        // In steps, so that a large file is not looked through whole.
        const STEP: u64 = 64 << 20;
        let content = node.content().expect("it is a regular file");
        let mut at = offset;
        while at < size {
            let end = size.min(at.saturating_add(STEP) / STEP * STEP);
            for run in runs(&inner.state.base, ino, content, size, at..end).map_err(failed)? {
                if data {
                    return Ok(run.start.max(offset));
                }
                if run.start > at {
                    return Ok(at);
                }
                at = run.end;
            }
            if !data && at < end {
                return Ok(at);
            }
            at = at.max(end);
        }
        if data { Err(Errno::NXIO) } else { Ok(size) }
    }
}

impl Inner {
    fn write(
        &mut self,
        who: Who,
        ino: Ino,
        offset: u64,
        bytes: &[u8],
        mode: Option<u16>,
        time: Time,
    ) -> Reply<()> {
        let len = bytes.len() as u64;
        if bytes.len() <= INLINE {
            let op = Op::Write { ino, offset, len, place: None, mode, time };
            return self.make(who.request, op, bytes, false);
        }
        let mut written = self.area.write(bytes);
        if written.as_ref().is_err_and(is_full) && self.reclaim() {
            written = self.area.write(bytes);
        }
        let at = written.map_err(refused)?;
        let place = Some(Place { file: super::AREA, offset: at });
        let op = Op::Write { ino, offset, len, place, mode, time };
        self.make(who.request, op, &[], false).inspect_err(|_| self.area.free(at, len))
    }

    pub(super) fn stat(&self, ino: Ino) -> Reply<Stat> {
        let node = self.node(ino)?;
        let allocated = self.allocated(ino, &node)?;
        Ok(Stat { ino, inode: node.inode, atime: node.atime, allocated })
    }

    pub(super) fn regular(&self, ino: Ino) -> Reply<Arc<Node>> {
        let node = self.node(ino)?;
        match node.inode.kind {
            FileType::File => Ok(node),
            FileType::Dir => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn file(&self, number: u32) -> Reply<Arc<File>> {
        if number == super::AREA {
            return Ok(self.area.file().clone());
        }
        self.files.get(&number).cloned().ok_or_else(|| {
            log::error!("Segment {number} of the workspace's journal is needed and not there.");
            Errno::IO
        })
    }

    fn allocated(&self, ino: Ino, node: &Node) -> Reply<u64> {
        let Some(content) = node.content() else { return Ok(0) };
        let size = node.inode.size;
        let runs = runs(&self.state.base, ino, content, size, 0..size).map_err(failed)?;
        Ok(runs.iter().map(|run| run.end - run.start).sum())
    }
}

/// The mode without what lets a file act for its owner; `None` when it has nothing of that. The group's bit means
/// something only where the group may execute.
fn without_set_id(inode: &Inode) -> Option<u16> {
    let group = if inode.mode & S_IXGRP != 0 { S_ISGID } else { 0 };
    let mode = inode.mode & !(S_ISUID | group);
    (mode != inode.mode).then_some(mode)
}

fn fits(end: u64) -> Reply<()> {
    if end > SIZE_MAX { Err(Errno::FBIG) } else { Ok(()) }
}

pub(super) fn read_file(file: &File, offset: u64, len: usize) -> Reply<Bytes> {
    let mut bytes = BytesMut::zeroed(len);
    file.read_exact_at(&mut bytes, offset).map_err(|error| {
        log::error!("Bytes of the workspace cannot be read: {error}.");
        Errno::IO
    })?;
    Ok(bytes.freeze())
}

/// A range of a file as the base has it, chunk by chunk.
pub(super) fn read_base(base: &Base, ino: Ino, range: Range<u64>, parts: &mut Vec<Part>) -> Reply<()> {
    let mut at = range.start;
    let zeros = |from: u64, to: u64, parts: &mut Vec<Part>| {
        if from < to {
            parts.push(Part::Zeros(to - from));
        }
    };
    for (offset, extent) in base.view().extents(ino, range.clone()).map_err(failed)? {
        zeros(at, offset, parts);
        at = at.max(offset);
        let bytes = match &extent {
            Extent::Inline(bytes) => Bytes::copy_from_slice(bytes),
            Extent::Chunk { num, .. } => base.objects.chunk(*num).map_err(failed)?,
        };
        if bytes.len() as u64 != extent.len() {
            return Err(failed(atoll_store::Error::damaged(
                "A chunk has another length than the tree says.",
            )));
        }
        let stop = range.end.min(offset + extent.len());
        parts.push(Part::Bytes(bytes.slice((at - offset) as usize..(stop - offset) as usize)));
        at = stop;
    }
    zeros(at, range.end, parts);
    Ok(())
}

/// Whether a range of contents is just as in the base.
pub(super) fn untouched(content: &Content, range: Range<u64>) -> bool {
    matches!(&content.sources(range.clone())[..], [(all, Source::Base)] if *all == range)
}
