//! From a related upper to the edits of the tree, and to the index of the next capture.

use std::collections::HashMap;

use atoll_store::tree::{Edit, Extent, FileType, Inode, Key, Time, TreeView, Value, scan};
use atoll_store::{BirthId, Ino, Objects, Result};

use super::index::{Record, nanos};
use super::keys::Keys;
use super::links::Links;
use super::plan::{Mapped, Plan, Trees};
use super::read::Facts;
use crate::ingest::Extents;
use crate::ingest::xattrs::Xattrs;
use crate::scan::HostStat;

/// Collects edits of the tree `from`.
struct Edits<'a> {
    trees: Trees<'a>,
    objects: &'a dyn Objects,
    links: &'a Links,
    out: Vec<Edit>,
}

/// One file or folder as it is now.
struct Now<'a> {
    key: Ino,
    facts: &'a Facts,
    nlink: u32,
    /// The base's file that it is.
    inherited: bool,
    /// No tree has it.
    new: bool,
    extents: &'a Extents,
}

/// The edits that turn `trees.from` into what the overlay shows, sorted.
pub(super) fn edits(
    plan: &Plan<'_>,
    links: &Links,
    trees: Trees<'_>,
    objects: &dyn Objects,
    keys: &mut Keys<'_>,
) -> Result<Vec<Edit>> {
    let births = births(plan, links, &trees, keys)?;
    let mut edits = Edits { trees, objects, links, out: Vec::new() };
    let mut nlinks: HashMap<Ino, u32> = HashMap::new();
    for (ino, added) in &links.added {
        nlinks.insert(*ino, added.len() as u32);
    }
    for ino in links.removed.keys().chain(links.added.keys()) {
        if !links.dead.contains(ino) {
            nlinks.insert(*ino, links.names(*ino, &trees)? as u32);
        }
    }
    let none = Extents::new();
    for dir in &plan.dirs {
        let Some(facts) = &dir.facts else { continue };
        let nlink = 2 + links.subdirs.get(&dir.key).copied().unwrap_or(0);
        nlinks.remove(&dir.key);
        let inherited = dir.lower.is_some();
        let now = Now { key: dir.key, facts, nlink, inherited, new: dir.new, extents: &none };
        edits.file(&now, births.get(&dir.key).copied())?;
    }
    for file in &plan.files {
        let (Some(key), Some(facts)) = (file.key, &file.facts) else { continue };
        if links.dead.contains(&key) {
            continue;
        }
        let nlink = match nlinks.remove(&key) {
            Some(nlink) => nlink,
            None => trees.from.parents(key)?.len() as u32,
        };
        if nlink == 0 {
            continue;
        }
        let lower = match file.source.filter(|_| facts.attrs.metacopy) {
            Some(source) => Some(trees.base.extents(source, 0..u64::MAX)?),
            None => None,
        };
        let extents = lower.as_ref().unwrap_or(&facts.extents);
        let now = Now { key, facts, nlink, inherited: file.inherited, new: file.new, extents };
        edits.file(&now, births.get(&key).copied())?;
    }
    // What is as it was, but for its number of names.
    for (key, nlink) in nlinks {
        let stays = |inode: &Inode| inode.kind != FileType::Dir && !links.dead.contains(&key);
        if let Some(inode) = trees.from.inode(key)?.filter(|inode| stays(inode) && inode.nlink != nlink) {
            edits.put(Key::Inode(key), Value::Inode(Inode { nlink, ..inode }));
        }
    }
    edits.names()?;
    edits.out.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(edits.out)
}

/// The birth ids of files that no tree has: the one of the file whose place it took, if that has no name left.
fn births(
    plan: &Plan<'_>,
    links: &Links,
    trees: &Trees<'_>,
    keys: &mut Keys<'_>,
) -> Result<HashMap<Ino, BirthId>> {
    let mut births = HashMap::new();
    let dirs = plan.dirs.iter().filter(|dir| dir.new).map(|dir| (dir.key, FileType::Dir));
    let files = plan.files.iter().filter(|file| file.new);
    let files = files.filter_map(|file| Some((file.key?, file.stat.kind)));
    for (key, kind) in dirs.chain(files) {
        let old = links.replaces.get(&key).filter(|old| links.dead.contains(old));
        let old = old.map_or(Ok(None), |old| trees.from.inode(*old))?.filter(|old| old.kind == kind);
        let birth = old.and_then(|old| keys.hand_on(old.birth));
        births.insert(key, birth.unwrap_or_else(|| keys.birth()));
    }
    Ok(births)
}

impl Edits<'_> {
    fn put(&mut self, key: Key<'_>, value: Value) {
        self.out.push((key.to_vec(), Some(value)));
    }

    /// Record, attributes and contents.
    fn file(&mut self, now: &Now<'_>, birth: Option<BirthId>) -> Result<()> {
        let from = self.trees.from;
        let old = if now.new { None } else { from.inode(now.key)? };
        let base = if now.inherited { self.trees.base.inode(now.key)? } else { None };
        let head = match now.new || from.root == self.trees.head.root {
            true => old,
            false => self.trees.head.inode(now.key)?,
        };
        let stat = &now.facts.stat;
        let seen = Inode {
            birth: base.or(head).map(|known| known.birth).or(birth).unwrap_or(BirthId(0)),
            kind: stat.kind,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            size: self.size(now, base.as_ref()),
            nlink: now.nlink,
            rdev: stat.rdev,
            mtime: stat.mtime,
            ctime: stat.ctime,
            btime: base.or(head).map_or(stat.btime, |known| known.btime),
        };
        let but_ctime = |known: Inode| Inode { ctime: seen.ctime, ..known } == seen;
        let mut inode = seen;
        // A file that was merely copied up is the base's; so is a folder in which only a file was.
        if let Some(base) = base.filter(|base| but_ctime(*base)) {
            let tree = self.trees.base;
            let same = tree.xattrs(now.key)? == now.facts.attrs.kept
                && (now.extents.is_empty() && stat.kind == FileType::Dir
                    || self.same(&tree.extents(now.key, 0..u64::MAX)?, now.extents)?);
            if same {
                inode = base;
            }
        }
        // Copying a file up touches its folder's ctime and nothing else.
        if stat.kind == FileType::Dir && inode == seen {
            inode = head.filter(|head| but_ctime(*head)).unwrap_or(seen);
        }
        if old != Some(inode) {
            self.put(Key::Inode(now.key), Value::Inode(inode));
        }
        self.xattrs(now.key, old.is_some().then_some(from), &now.facts.attrs.kept)?;
        if stat.kind != FileType::Dir {
            self.extents(now.key, old.is_some().then_some(from), now.extents)?;
        }
        Ok(())
    }

    fn size(&self, now: &Now<'_>, base: Option<&Inode>) -> u64 {
        match now.facts.stat.kind {
            FileType::File => match base {
                Some(base) if now.facts.attrs.metacopy => base.size,
                _ => now.facts.stat.size,
            },
            FileType::Symlink => now.extents.first().map_or(0, |(_, target)| target.len()),
            _ => 0,
        }
    }

    fn xattrs(&mut self, key: Ino, from: Option<TreeView<'_>>, now: &Xattrs) -> Result<()> {
        let old = from.map_or(Ok(Vec::new()), |from| from.xattrs(key))?;
        for (name, _) in old.iter().filter(|(name, _)| !now.iter().any(|(have, _)| have == name)) {
            self.out.push((Key::Xattr(key, name).to_vec(), None));
        }
        for (name, value) in now.iter().filter(|now| !old.contains(now)) {
            self.put(Key::Xattr(key, name), Value::Xattr(value.clone()));
        }
        Ok(())
    }

    fn extents(&mut self, key: Ino, from: Option<TreeView<'_>>, now: &Extents) -> Result<()> {
        let old = from.map_or(Ok(Vec::new()), |from| from.extents(key, 0..u64::MAX))?;
        let old: HashMap<u64, Extent> = old.into_iter().collect();
        for offset in old.keys() {
            if now.binary_search_by_key(offset, |(offset, _)| *offset).is_err() {
                self.out.push((Key::Extent(key, *offset).to_vec(), None));
            }
        }
        for (offset, extent) in now {
            let same = match old.get(offset) {
                Some(old) => self.same_extent(old, extent)?,
                None => false,
            };
            if !same {
                self.put(Key::Extent(key, *offset), Value::Extent(extent.clone()));
            }
        }
        Ok(())
    }

    fn same(&self, old: &[(u64, Extent)], now: &Extents) -> Result<bool> {
        if old.len() != now.len() {
            return Ok(false);
        }
        for ((old_at, old), (at, now)) in old.iter().zip(now) {
            if old_at != at || !self.same_extent(old, now)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn same_extent(&self, old: &Extent, now: &Extent) -> Result<bool> {
        Ok(match (old, now) {
            (Extent::Chunk { num: old, len: old_len }, Extent::Chunk { num, len }) => {
                old_len == len && (old == num || self.objects.hash(*old)? == self.objects.hash(*num)?)
            }
            _ => old == now,
        })
    }

    /// Ways back, folders' entries, and everything of files that have no name left.
    fn names(&mut self) -> Result<()> {
        let links = self.links;
        for ino in &links.dead {
            let from = Key::Inode(*ino).to_vec();
            let to = (ino.key() + 1).to_be_bytes();
            for entry in scan(self.trees.from.objects, self.trees.from.root, &from, Some(&to)) {
                self.out.push((entry?.0, None));
            }
        }
        let alive = |ino: &Ino| !links.dead.contains(ino);
        for (ino, names) in links.removed.iter().filter(|(ino, _)| alive(ino)) {
            for (dir, name) in names {
                self.out.push((Key::Parent(*ino, *dir, name).to_vec(), None));
            }
        }
        for (ino, names) in &links.added {
            for (dir, name) in names {
                self.put(Key::Parent(*ino, *dir, name), Value::Parent);
            }
        }
        for (dir, name, dirent) in &links.dirents {
            self.out.push((Key::Dirent(*dir, name).to_vec(), dirent.map(Value::Dirent)));
        }
        Ok(())
    }
}

/// What the next capture is to know. `start` is the time before which a change is certainly captured.
pub(super) fn records(plan: &Plan<'_>, mapped: &Mapped<'_>, start: Time) -> Vec<Record> {
    let mut records = Vec::with_capacity(plan.dirs.len() + plan.files.len());
    let record = |stat: &HostStat, key: Option<Ino>, extra: u64, inherited: bool| Record {
        ino: stat.ino,
        ctime: nanos(stat.ctime),
        btime: nanos(stat.btime),
        extra,
        key,
        clean: stat.ctime < start,
        inherited,
        retired: false,
        whiteouts: false,
    };
    for dir in &plan.dirs {
        // The listing is true of the walk's stat data, not of what was read later.
        let same = dir.facts.as_ref().is_none_or(|facts| facts.stat.ctime == dir.scan.stat.ctime);
        let lower = dir.lower.map_or(0, Ino::key);
        let mut record = record(&dir.scan.stat, Some(dir.key), lower, dir.lower.is_some());
        record.clean &= same;
        record.whiteouts = dir.whiteouts;
        records.push(record);
    }
    for file in &plan.files {
        let stat = file.facts.as_ref().map_or(&file.stat, |facts| &facts.stat);
        let mut record = record(stat, file.key, stat.size, file.inherited);
        record.clean &= !mapped.has(stat.ino, file.key);
        records.push(record);
    }
    records
}
