//! Answers about files of one tree. All of it may be kept for ever: a tree never changes.

use std::ops::Range;
use std::sync::Arc;

use atoll_fuse::abi::Attr;
use atoll_fuse::{Call, Data, DirSink, Entry, Errno, FOREVER, Reply};
use atoll_store::tree::{Cursor, Dirent, Extent, FileType, Key, TreeView, Value};
use atoll_store::{Code, Error, Ino};
use bytes::Bytes;
use lru::LruCache;
use parking_lot::Mutex;

use super::ahead::Ahead;
use super::ids;
use super::source::Source;
use super::stat::{Stat, Stats};
use super::trees::Tree;
use crate::stat::dirent_type;

/// The first offsets of a listing stand for `.` and `..`.
const DOTS: u64 = 2;

/// Where a listing stopped, so that it goes on without counting names from the start: by node and offset, the
/// name that comes next, or that there is none (every listing ends with that question).
pub(super) type Resume = Mutex<LruCache<(u64, u64), Option<Box<[u8]>>>>;

pub(super) fn resume() -> Resume {
    Mutex::new(LruCache::new(std::num::NonZeroUsize::new(256).expect("not zero")))
}

/// One tree of one store.
pub(super) struct InTree<'a> {
    pub source: &'a dyn Source,
    pub tree: Arc<Tree>,
}

impl InTree<'_> {
    fn view(&self) -> TreeView<'_> {
        TreeView::new(self.source.objects(), self.tree.root)
    }

    /// Turns the store's error into what the caller sees, and says in the log which file of which commit it is.
    fn fail(&self, ino: Ino, error: &Error) -> Errno {
        let path = self.view().path(ino).ok().flatten().unwrap_or_default();
        log::error!(
            "Commit {} path /{} (inode {}): {error}",
            self.tree.commit,
            String::from_utf8_lossy(&path),
            ino.shown()
        );
        if error.code == Code::Damaged { Errno::EIO } else { errno(error) }
    }

    fn stat(&self, ino: Ino) -> Reply<Stat> {
        let stat = Stats::new(self.source.objects(), self.tree.root).get(ino);
        stat.map_err(|error| self.fail(ino, &error))?.ok_or(Errno::ESTALE)
    }

    fn entry(&self, stat: &Stat) -> Entry {
        Entry {
            node: ids::in_tree(self.tree.slot.number, stat.ino),
            generation: u64::from(self.tree.slot.generation),
            attr: stat.attr(),
            valid: FOREVER,
            attr_valid: FOREVER,
        }
    }

    /// The entry of an inode.
    pub fn entry_of(&self, ino: Ino) -> Reply<Entry> {
        Ok(self.entry(&self.stat(ino)?))
    }

    pub fn getattr(&self, ino: Ino) -> Reply<Attr> {
        Ok(self.stat(ino)?.attr())
    }

    /// The folder that a folder is in; `None` for the root.
    fn above(&self, dir: Ino) -> Reply<Option<Ino>> {
        if dir == Ino::ROOT {
            return Ok(None);
        }
        let parents = self.view().parents(dir).map_err(|error| self.fail(dir, &error))?;
        parents.first().map(|(parent, _)| Some(*parent)).ok_or(Errno::ESTALE)
    }

    /// A name in a folder; `None` is `..` of the root.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Reply<Option<Entry>> {
        match name {
            // "/" is the name of what the kernel found by a handle and has no path to. Overlayfs checks such an
            // entry (the origin of a copied-up file) again, and turns "no such name" into ESTALE.
            b"." | b"/" => return self.entry_of(dir).map(Some),
            b".." => return self.above(dir)?.map(|ino| self.entry_of(ino)).transpose(),
            _ => {}
        }
        match self.view().lookup(dir, name).map_err(|error| self.fail(dir, &error))? {
            Some(dirent) => self.entry_of(dirent.ino).map(Some),
            None => Ok(Some(Entry::none(FOREVER))),
        }
    }

    pub fn readdir(&self, dir: Ino, mut offset: u64, resume: &Resume, sink: &mut DirSink<'_>) -> Reply<()> {
        let fail = |error| self.fail(dir, &error);
        let node = ids::in_tree(self.tree.slot.number, dir);
        let known = resume.lock().pop(&(node, offset));
        if known == Some(None) {
            return Ok(());
        }
        if offset < DOTS {
            let above = self.above(dir)?.map_or(ids::COMMITS, Ino::shown);
            for (at, (ino, name)) in [(dir.shown(), &b"."[..]), (above, b"..")].into_iter().enumerate() {
                if at as u64 >= offset && !sink.add(ino, at as u64 + 1, 4, name, None) {
                    return Ok(());
                }
            }
            offset = DOTS;
        }
        let (names, more) = self.names(dir, offset, known.flatten(), sink).map_err(fail)?;
        // Inodes are asked for in the tree's order, given in the names' order.
        let mut stats: Vec<Option<Stat>> = vec![None; names.len()];
        if sink.plus() {
            let mut order: Vec<usize> = (0..names.len()).collect();
            order.sort_unstable_by_key(|&at| names[at].1.ino);
            let mut reader = Stats::new(self.source.objects(), self.tree.root);
            for at in order {
                stats[at] = reader.get(names[at].1.ino).map_err(fail)?;
            }
        }
        for (at, ((name, dirent), stat)) in names.iter().zip(&stats).enumerate() {
            let entry = stat.as_ref().map(|stat| self.entry(stat));
            let next = offset + at as u64 + 1;
            sink.add(dirent.ino.shown(), next, dirent_type(dirent.kind), name, entry.as_ref());
        }
        resume.lock().put((node, offset + names.len() as u64), more);
        Ok(())
    }

    /// The names that fit into the sink, from the one at `offset` on, and the name that comes after them.
    #[allow(clippy::type_complexity)]
    fn names(
        &self,
        dir: Ino,
        offset: u64,
        from: Option<Box<[u8]>>,
        sink: &DirSink<'_>,
    ) -> atoll_store::Result<(Vec<(Box<[u8]>, Dirent)>, Option<Box<[u8]>>)> {
        let (start, _) = Key::dirents(dir);
        let first = from.as_ref().map(|name| Key::Dirent(dir, name).to_vec());
        let objects = self.source.objects();
        let mut cursor = Cursor::seek(objects, self.tree.root, first.as_deref().unwrap_or(&start))?;
        let mut skip = if first.is_some() { 0 } else { offset - DOTS };
        let mut names = Vec::new();
        let mut room = sink.room();
        while let Some(name) = cursor.key().and_then(|key| key.strip_prefix(&start[..])) {
            if skip > 0 {
                skip -= 1;
            } else {
                let size = sink.size_of(name.len());
                if size > room {
                    return Ok((names, Some(name.into())));
                }
                room -= size;
                if let Some(Value::Dirent(dirent)) = cursor.value() {
                    names.push((name.into(), dirent));
                }
            }
            cursor.advance()?;
        }
        Ok((names, None))
    }

    pub fn readlink(&self, ino: Ino) -> Reply<Bytes> {
        if self.stat(ino)?.inode.kind != FileType::Symlink {
            return Err(Errno::EINVAL);
        }
        self.view().readlink(ino).map_err(|error| self.fail(ino, &error))
    }

    pub fn read(
        &self,
        call: &Call<'_>,
        ahead: &Ahead,
        ino: Ino,
        range: Range<u64>,
        out: &mut Data,
    ) -> Reply<()> {
        let fail = |error| self.fail(ino, &error);
        let inode = self.view().inode(ino).map_err(fail)?.ok_or(Errno::ESTALE)?;
        let end = range.end.min(inode.size);
        let mut at = range.start;
        if at >= end {
            return Ok(());
        }
        for (offset, extent) in self.view().extents(ino, at..end).map_err(fail)? {
            if offset > at {
                out.zeros((offset - at) as usize);
                at = offset;
            }
            let bytes = match &extent {
                Extent::Inline(bytes) => Bytes::copy_from_slice(bytes),
                Extent::Chunk { num, .. } => {
                    if !self.source.is_at_hand(*num) {
                        call.slow();
                    }
                    let bytes = self.source.objects().chunk(*num).map_err(fail)?;
                    if let Some(place) = self.source.place(*num) {
                        ahead.reads(*num, place);
                    }
                    bytes
                }
            };
            if bytes.len() as u64 != extent.len() {
                return Err(fail(Error::damaged("A chunk has another length than the tree says.")));
            }
            let stop = end.min(offset + extent.len());
            out.push(bytes.slice((at - offset) as usize..(stop - offset) as usize));
            at = stop;
        }
        out.zeros((end - at) as usize);
        Ok(())
    }

    /// `SEEK_DATA` and `SEEK_HOLE`.
    pub fn lseek(&self, ino: Ino, offset: u64, data: bool) -> Reply<u64> {
        let fail = |error| self.fail(ino, &error);
        let inode = self.view().inode(ino).map_err(fail)?.ok_or(Errno::ESTALE)?;
        if offset >= inode.size {
            return Err(Errno::ENXIO);
        }
        let mut at = offset;
        // A file's extents are few between a hole and the next, and asked for in steps, so that a large file
        // is not read whole.
        const STEP: u64 = 64 << 20;
        while at < inode.size {
            let stop = inode.size.min(at + STEP);
            for (start, extent) in self.view().extents(ino, at..stop).map_err(fail)? {
                if start > at {
                    return Ok(if data { start } else { at });
                }
                if data {
                    return Ok(at);
                }
                at = start + extent.len();
            }
            if at < stop {
                if !data {
                    return Ok(at);
                }
                at = stop;
            }
        }
        if data { Err(Errno::ENXIO) } else { Ok(inode.size) }
    }

    pub fn getxattr(&self, ino: Ino, name: &[u8]) -> Reply<Bytes> {
        let key = Key::Xattr(ino, name).to_vec();
        let value = atoll_store::tree::get(self.source.objects(), self.tree.root, &key);
        match value.map_err(|error| self.fail(ino, &error))? {
            Some(Value::Xattr(bytes)) => Ok(Bytes::from(bytes.into_vec())),
            _ => Err(Errno::ENODATA),
        }
    }

    pub fn listxattr(&self, ino: Ino) -> Reply<Bytes> {
        let mut list = Vec::new();
        for (name, _) in self.view().xattrs(ino).map_err(|error| self.fail(ino, &error))? {
            list.extend_from_slice(&name);
            list.push(0);
        }
        Ok(Bytes::from(list))
    }
}

/// The errno for the store's error.
pub(super) fn errno(error: &Error) -> Errno {
    match error.code {
        Code::NotFound | Code::Ambiguous => Errno::ENOENT,
        Code::NoSpace => Errno(rustix::io::Errno::NOSPC.raw_os_error()),
        Code::Permission => Errno(rustix::io::Errno::ACCESS.raw_os_error()),
        _ => Errno::EIO,
    }
}
