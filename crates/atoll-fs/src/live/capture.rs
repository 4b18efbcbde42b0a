//! A frozen workspace becomes a tree, while changes go on: what differs from the base is known, so nothing is
//! walked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_store::tree::{ContentSum, Edit, Extent, FileType, Inode, Key, Value, edit, scan};
use atoll_store::{Code, Error, Hash, Ino, Objects, Result, Store};

use super::area::AREA;
use super::content::{Content, Source};
use super::node::{Body, Node};
use super::runs::runs;
use super::state::{Base, State};
use super::{Live, files, journal, replay};
use crate::import::{Captured, Report};
use crate::ingest::contents::{CHUNK_MAX, Extents, Ingest, StreamError};

/// A workspace at one time, with all that it needs to be read.
pub struct Frozen {
    /// The commit that it is based on.
    pub base: Hash,
    /// How many changes led to it, counted as the journal counts: it can be read there again.
    pub changes: u64,
    state: State,
    area: Arc<File>,
    files: HashMap<u32, Arc<File>>,
    _pin: Arc<()>,
}

impl Live {
    /// The state at this moment. It costs a pointer for each file that differs from the base; writers wait no longer.
    pub fn freeze(&self) -> Frozen {
        let mut inner = self.inner.lock();
        inner.state.flipped = true;
        Frozen {
            base: Hash(inner.journal.head().base),
            changes: inner.journal.changes,
            state: inner.state.clone(),
            area: inner.area.file().clone(),
            files: inner.files.clone(),
            _pin: inner.pins.clone(),
        }
    }

    /// A commit of `frozen` is the base from now on: what has not changed since is not kept any more. Returns when
    /// a crash would find it so.
    ///
    /// # Errors
    /// Those of reading the old base and of writing a journal; the workspace goes on with the old base then.
    pub fn rebase(&self, frozen: Frozen, base: Base, commit: [u8; 32]) -> Result<()> {
        let mut inner = self.inner.lock();
        let mut state = inner.state.clone();
        let was = std::mem::replace(&mut state.base, base);
        state.fresh = frozen.state.next;
        state.flipped = false;
        // What came and went meanwhile is in no base.
        let fresh = state.fresh;
        let new = |ino: &Ino| ino.random() == state.random && ino.low() >= fresh;
        state.dead.retain(|ino| !frozen.state.dead.contains(ino) && !new(ino));
        let mut gone = Vec::new();
        state.nodes.retain(|ino, node| {
            let same = frozen.state.nodes.get(ino).is_some_and(|then| Arc::ptr_eq(then, node));
            if same && node.inode.nlink > 0 {
                gone.extend(node.places());
            }
            !same || node.inode.nlink == 0
        });
        // Whoever still holds a file without a name reads it on: the new base does not have it.
        let orphans: Vec<Ino> =
            state.nodes.iter().filter(|(_, node)| node.inode.nlink == 0).map(|(ino, _)| *ino).collect();
        let mut area_used = Vec::new();
        let brought = orphans.into_iter().try_for_each(|ino| {
            let node = Arc::make_mut(state.nodes.get_mut(&ino).expect("it was just there"));
            bring_here(&was, ino, node, &mut inner.area, &mut area_used)
        });
        drop(frozen);
        let mut before = std::mem::replace(&mut inner.state, state);
        let mut begun = brought.and_then(|()| inner.begin_anew(commit));
        if begun.as_ref().is_err_and(|error| error.code == Code::NoSpace) {
            // What makes space writes the old state down, if anything.
            std::mem::swap(&mut inner.state, &mut before);
            let helped = inner.reclaim();
            std::mem::swap(&mut inner.state, &mut before);
            if helped {
                begun = inner.begin_anew(commit);
            }
        }
        if let Err(error) = begun {
            inner.state = before;
            for (offset, len) in area_used {
                inner.area.free(offset, len);
            }
            return Err(error);
        }
        inner.unsynced.extend(gone);
        inner.recycle_unsynced();
        Ok(())
    }
}

/// Takes what a file has in a base that goes.
fn bring_here(
    was: &Base,
    ino: Ino,
    node: &mut Node,
    area: &mut super::Area,
    used: &mut Vec<(u64, u64)>,
) -> Result<()> {
    let failed = |error| {
        Error::new(
            Code::Io,
            format!("The contents of a deleted file that is open could not be kept: {error}."),
        )
    };
    let size = node.inode.size;
    match &mut node.body {
        Body::Symlink(target @ None) => *target = Some(was.view().readlink(ino)?.to_vec().into()),
        Body::File(content) => {
            let sources = content.sources(0..size);
            for (range, _) in sources.into_iter().filter(|(_, source)| *source == Source::Base) {
                for (offset, extent) in was.view().extents(ino, range.clone())? {
                    let part = range.start.max(offset)..range.end.min(offset + extent.len());
                    let bytes = was.view().read(ino, size.max(part.end), part.clone())?;
                    let at = area.write(&bytes).map_err(failed)?;
                    used.push((at, bytes.len() as u64));
                    let place = super::content::Place { file: AREA, offset: at };
                    content.write(part, place, &mut Vec::new());
                }
            }
            content.leave_base();
        }
        _ => {}
    }
    if node.xattrs.is_none() {
        let found = was.view().xattrs(ino)?;
        node.xattrs = Some(found.into_iter().map(|(name, value)| (name.into(), value.into())).collect());
    }
    node.names = Some(BTreeSet::new());
    Ok(())
}

impl Frozen {
    /// Reads the workspace in `folder` as it was after so many `changes`, or as it is: `None` when there is none. Who
    /// has it open may go on meanwhile, but must hold a frozen state of its own of no more changes. See
    /// [`Live::open`] for `boot` and `base`.
    ///
    /// # Errors
    /// Those of [`Live::open`].
    pub fn read(
        folder: &Path,
        changes: Option<u64>,
        boot: &str,
        base: impl Fn(&Hash) -> Result<Base>,
    ) -> Result<Option<Frozen>> {
        let Some(read) = replay::read(folder, boot, changes, |commit| base(&Hash(*commit)))? else {
            return Ok(None);
        };
        let open = |path: PathBuf| {
            File::open(&path).map(Arc::new).map_err(|error| Error::io("read the workspace's", &path, error))
        };
        let mut files = HashMap::new();
        for run in read.state.nodes.values().flat_map(|node| node.places()) {
            if run.place.file != AREA && !files.contains_key(&run.place.file) {
                files.insert(run.place.file, open(folder.join(journal::name(run.place.file)))?);
            }
        }
        Ok(Some(Frozen {
            base: Hash(read.base),
            changes: read.changes,
            state: read.state,
            area: open(super::area_path(folder))?,
            files,
            _pin: Arc::new(()),
        }))
    }

    /// Makes a tree of it; nothing is in the store before the caller publishes it.
    ///
    /// # Errors
    /// Those of [`Frozen::edits`] and of the store.
    pub fn capture(&self, store: &Store, head: &Hash) -> Result<Captured> {
        let writer = store.writer()?;
        let base = store.commit(&self.base)?.record;
        let mut ingest = Ingest::new(writer.batch());
        let edits = self.edits(&mut ingest)?;
        let mut report = Report { read_bytes: ingest.bytes, ..Report::default() };
        ingest.finish()?;
        let (mut root, mut content, mut summary) = (base.root, base.content, base.summary);
        if !edits.is_empty() {
            root = edit(&writer, Some(base.root), edits)?;
            let old = Some((base.root, base.content, base.summary));
            (content, summary) = ContentSum::update(&writer, old, root)?;
        }
        let head = store.commit(head)?;
        report.files = summary.files + summary.others;
        report.dirs = summary.dirs;
        report.changed = root != head.record.root && writer.hash(root)? != head.tree;
        Ok(Captured { root, content, summary, writer, report, meta: BTreeMap::new() })
    }

    /// What makes the base's tree into this state's, ascending by key. Contents are stored through `ingest`.
    ///
    /// # Errors
    /// Those of reading the base and the workspace's files, and of storing.
    pub fn edits(&self, ingest: &mut Ingest<'_>) -> Result<Vec<Edit>> {
        let mut edits = Vec::new();
        for (ino, node) in &self.state.nodes {
            if node.inode.nlink > 0 {
                self.edits_of(*ino, node, ingest, &mut edits)?;
            }
        }
        for ino in &self.state.dead {
            let (from, to) = (Key::Inode(*ino).to_vec(), (ino.key() + 1).to_be_bytes());
            let base = &self.state.base;
            for entry in scan(&*base.objects, base.root, &from, Some(&to)) {
                edits.push((entry?.0, None));
            }
        }
        edits.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Ok(edits)
    }

    fn edits_of(&self, ino: Ino, node: &Node, ingest: &mut Ingest<'_>, out: &mut Vec<Edit>) -> Result<()> {
        let view = self.state.base.view();
        let old = if self.state.is_new(ino) { None } else { view.inode(ino)? };
        let now = tree_inode(&node.inode);
        if old != Some(now) {
            out.push((Key::Inode(ino).to_vec(), Some(Value::Inode(now))));
        }
        if let Some(names) = &node.names {
            let before = if old.is_some() { view.parents(ino)? } else { Vec::new() };
            let before: BTreeSet<(Ino, &[u8])> = before.iter().map(|(dir, name)| (*dir, &**name)).collect();
            let after: BTreeSet<(Ino, &[u8])> = names.iter().map(|(dir, name)| (*dir, &**name)).collect();
            for (dir, name) in before.symmetric_difference(&after) {
                let value = after.contains(&(*dir, *name)).then_some(Value::Parent);
                out.push((Key::Parent(ino, *dir, name).to_vec(), value));
            }
        }
        if let Some(xattrs) = &node.xattrs {
            let before = if old.is_some() { view.xattrs(ino)? } else { Vec::new() };
            for (name, _) in before.iter().filter(|(name, _)| !xattrs.contains_key(&**name)) {
                out.push((Key::Xattr(ino, name).to_vec(), None));
            }
            for (name, value) in xattrs {
                if !before.iter().any(|(have, was)| **have == **name && **was == **value) {
                    out.push((Key::Xattr(ino, name).to_vec(), Some(Value::Xattr((**value).into()))));
                }
            }
        }
        match &node.body {
            Body::Dir(dir) => {
                for (name, dirent) in dir.changes() {
                    out.push((Key::Dirent(ino, name).to_vec(), dirent.map(Value::Dirent)));
                }
            }
            Body::Symlink(Some(target)) => {
                let extent = Extent::Inline((**target).into());
                out.push((Key::Extent(ino, 0).to_vec(), Some(Value::Extent(extent))));
            }
            Body::File(content)
                if old.map(|old| old.size) != Some(now.size) || !content.is_base(now.size) =>
            {
                let before = if old.is_some() { view.extents(ino, 0..u64::MAX)? } else { Vec::new() };
                let after = self.extents(ino, node.inode.size, content, &before, ingest)?;
                let mut before: HashMap<u64, Extent> = before.into_iter().collect();
                for (offset, extent) in after {
                    if before.remove(&offset).as_ref() != Some(&extent) {
                        out.push((Key::Extent(ino, offset).to_vec(), Some(Value::Extent(extent))));
                    }
                }
                out.extend(before.into_keys().map(|offset| (Key::Extent(ino, offset).to_vec(), None)));
            }
            _ => {}
        }
        Ok(())
    }

    /// A file's extents, cut where an import would cut it. Chunks of the base that would be cut the same are taken
    /// over unread.
    fn extents(
        &self,
        ino: Ino,
        size: u64,
        content: &Content,
        before: &[(u64, Extent)],
        ingest: &mut Ingest<'_>,
    ) -> Result<Extents> {
        let mut found = Extents::new();
        for region in runs(&self.state.base, ino, content, size, 0..size)? {
            let mut reader = Contents { frozen: self, ino, content, at: region.start };
            let short = region.end - region.start <= CHUNK_MAX as u64;
            let known = |at| if short { None } else { known(at, content, before) };
            ingest.region_with(&mut reader, region, size, known, &mut found).map_err(stored)?;
        }
        Ok(found)
    }
}

/// The base's chunk that begins here, if the file still has all of it and it was not the last of a run.
fn known(at: u64, content: &Content, before: &[(u64, Extent)]) -> Option<Extent> {
    let index = before.binary_search_by_key(&at, |(offset, _)| *offset).ok()?;
    let extent = &before[index].1;
    let end = at + extent.len();
    let goes_on = before.get(index + 1).is_some_and(|(next, _)| *next == end);
    (goes_on && files::untouched(content, at..end)).then(|| extent.clone())
}

/// Trees keep no more of an inode than this.
fn tree_inode(inode: &Inode) -> Inode {
    if inode.kind == FileType::Dir { Inode { size: 0, ..*inode } } else { *inode }
}

fn stored(error: StreamError) -> Error {
    match error {
        StreamError::Short => Error::damaged("A file of the workspace ended before its size."),
        StreamError::Read(error) => error.into(),
        StreamError::Store(error) => error,
    }
}

/// Reads a frozen file. It never ends: whoever reads knows the size.
struct Contents<'a> {
    frozen: &'a Frozen,
    ino: Ino,
    content: &'a Content,
    at: u64,
}

impl Seek for Contents<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            _ => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(self.at)
    }
}

impl Read for Contents<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let range = self.at..self.at + buffer.len() as u64;
        for (part, source) in self.content.sources(range) {
            let into = &mut buffer[(part.start - self.at) as usize..(part.end - self.at) as usize];
            match source {
                Source::Hole => into.fill(0),
                Source::At(place) => {
                    let file = if place.file == AREA {
                        Some(&self.frozen.area)
                    } else {
                        self.frozen.files.get(&place.file)
                    };
                    file.ok_or(io::ErrorKind::NotFound)?.read_exact_at(into, place.offset)?;
                }
                Source::Base => {
                    let bytes = self
                        .frozen
                        .state
                        .base
                        .view()
                        .read(self.ino, part.end, part)
                        .map_err(io::Error::other)?;
                    into.copy_from_slice(&bytes);
                }
            }
        }
        self.at += buffer.len() as u64;
        Ok(buffer.len())
    }
}
