//! What each change does to the state. Nothing is checked here that the change's maker has checked; what fails is
//! the reading of the base, or a journal that does not fit it.

use std::collections::BTreeSet;

use atoll_store::tree::{Dirent, FileType, Time};
use atoll_store::{Ino, Result};

use super::content::{Content, Freed, Place};
use super::node::{Body, Dir, Name, Node};
use super::op::{Attrs, Entry, Op};
use super::state::{State, lost};

impl State {
    /// Applies a change. `inline` is where the journal has its bytes; runs that nobody needs any more go to `freed`.
    ///
    /// # Errors
    /// Those of reading the base; `Damaged` when the change is of a file that is not there.
    pub fn apply(&mut self, op: &Op, inline: Option<Place>, freed: &mut Vec<Freed>) -> Result<()> {
        match op {
            Op::Create { ino, inode, target, xattrs, entry } => {
                let body = match inode.kind {
                    FileType::File => Body::File(Content::default()),
                    FileType::Dir => Body::Dir(Dir::default()),
                    FileType::Symlink => Body::Symlink(target.clone()),
                    _ => Body::Other,
                };
                let names = Some(BTreeSet::new());
                let xattrs = Some(xattrs.iter().cloned().collect());
                let node = Node { inode: *inode, atime: inode.mtime, names, xattrs, body };
                self.nodes.insert(*ino, node.into());
                self.next = self.next.max(ino.low().saturating_add(1));
                if let Some(entry) = entry {
                    self.attach(*ino, entry, Dir::add, inode.ctime)?;
                }
            }
            Op::Link { ino, entry, time } => {
                let node = self.node_mut(*ino)?;
                node.inode.nlink += 1;
                node.inode.ctime = *time;
                self.dead.remove(ino);
                self.attach(*ino, entry, Dir::add, *time)?;
            }
            Op::Remove { dir, name, time } => self.remove(*dir, name, *time)?,
            Op::Rename { dir, name, to, time } => {
                let moved = self.lookup(*dir, name)?.ok_or_else(|| lost(*dir))?;
                if self.lookup(to.dir, &to.name)?.is_some() {
                    self.remove(to.dir, &to.name, *time)?;
                }
                self.detach(moved.ino, *dir, name, *time)?;
                self.attach(moved.ino, to, Dir::add, *time)?;
                self.node_mut(moved.ino)?.inode.ctime = *time;
            }
            Op::Exchange { one, other, time } => {
                let find = |state: &State, (dir, name): &(Ino, Name)| -> Result<(Dirent, Entry)> {
                    let dirent = state.lookup(*dir, name)?.ok_or_else(|| lost(*dir))?;
                    Ok((dirent, Entry { dir: *dir, name: name.clone(), cookie: dirent.cookie }))
                };
                let (first, second) = (find(self, one)?, find(self, other)?);
                self.detach(first.0.ino, one.0, &one.1, *time)?;
                self.detach(second.0.ino, other.0, &other.1, *time)?;
                self.attach(first.0.ino, &second.1, Dir::set, *time)?;
                self.attach(second.0.ino, &first.1, Dir::set, *time)?;
                for (dirent, _) in [first, second] {
                    self.node_mut(dirent.ino)?.inode.ctime = *time;
                }
            }
            Op::Set { ino, attrs, time } => self.set(*ino, attrs, *time, freed)?,
            Op::Write { ino, offset, len, place, mode, time } => {
                let place = place.or(inline).ok_or_else(|| lost(*ino))?;
                let node = self.node_mut(*ino)?;
                if let Body::File(content) = &mut node.body {
                    content.write(*offset..offset + len, place, freed);
                }
                node.inode.size = node.inode.size.max(offset + len);
                changed(node, *mode, *time);
            }
            Op::Punch { ino, start, end, size, mode, time } => {
                let node = self.node_mut(*ino)?;
                if let Body::File(content) = &mut node.body {
                    content.punch(*start..*end, freed);
                }
                node.inode.size = *size;
                changed(node, *mode, *time);
            }
            Op::Xattr { ino, name, value, mode, time } => {
                let known = self.xattrs(*ino)?;
                let node = self.node_mut(*ino)?;
                let xattrs = node.xattrs.get_or_insert_with(|| known.into_iter().collect());
                match value {
                    Some(value) => xattrs.insert(name.clone(), value.clone()),
                    None => xattrs.remove(name),
                };
                node.inode.mode = mode.unwrap_or(node.inode.mode);
                node.inode.ctime = *time;
            }
            Op::Reap { ino } => {
                if let Some(node) = self.nodes.remove(ino) {
                    freed.extend(node.places());
                }
            }
            Op::Put { ino, node } => {
                self.nodes.insert(*ino, (**node).clone().into());
                if self.is_new(*ino) {
                    self.next = self.next.max(ino.low().saturating_add(1));
                }
            }
            Op::Dead { ino } => {
                self.dead.insert(*ino);
            }
            Op::Mark { .. } => {}
        }
        Ok(())
    }

    /// A file gets a name, which `put` puts into its folder; its link count is the caller's.
    fn attach(&mut self, ino: Ino, entry: &Entry, put: fn(&mut Dir, Name, Dirent), time: Time) -> Result<()> {
        self.know_names(ino)?;
        let node = self.node_mut(ino)?;
        let kind = node.inode.kind;
        node.names.get_or_insert_default().insert((entry.dir, entry.name.clone()));
        let parent = self.node_mut(entry.dir)?;
        if let Body::Dir(dir) = &mut parent.body {
            put(dir, entry.name.clone(), Dirent { ino, kind, cookie: entry.cookie });
        }
        if kind == FileType::Dir {
            parent.inode.nlink += 1;
        }
        touched(parent, time);
        Ok(())
    }

    /// A file loses a name; its link count is the caller's.
    fn detach(&mut self, ino: Ino, dir: Ino, name: &Name, time: Time) -> Result<()> {
        self.know_names(ino)?;
        let node = self.node_mut(ino)?;
        let kind = node.inode.kind;
        node.names.get_or_insert_default().remove(&(dir, name.clone()));
        let of_base = self.flipped || self.in_base(dir, name)?.is_some();
        let parent = self.node_mut(dir)?;
        if let Body::Dir(dir) = &mut parent.body {
            dir.remove(name, of_base);
        }
        if kind == FileType::Dir {
            parent.inode.nlink -= 1;
        }
        touched(parent, time);
        Ok(())
    }

    /// A name goes, and with a file's last one the file, but for those who hold it.
    fn remove(&mut self, dir: Ino, name: &Name, time: Time) -> Result<()> {
        let gone = self.lookup(dir, name)?.ok_or_else(|| lost(dir))?.ino;
        self.detach(gone, dir, name, time)?;
        let of_base = self.has_base(gone)?;
        let node = self.node_mut(gone)?;
        node.inode.nlink = if node.inode.kind == FileType::Dir { 0 } else { node.inode.nlink - 1 };
        node.inode.ctime = time;
        if node.inode.nlink == 0 && of_base {
            self.dead.insert(gone);
        }
        Ok(())
    }

    fn set(&mut self, ino: Ino, attrs: &Attrs, time: Time, freed: &mut Vec<Freed>) -> Result<()> {
        let node = self.node_mut(ino)?;
        let inode = &mut node.inode;
        inode.mode = attrs.mode.unwrap_or(inode.mode);
        inode.uid = attrs.uid.unwrap_or(inode.uid);
        inode.gid = attrs.gid.unwrap_or(inode.gid);
        inode.ctime = time;
        if let Some(size) = attrs.size {
            inode.size = size;
            inode.mtime = time;
            if let Body::File(content) = &mut node.body {
                content.truncate(size, freed);
            }
        }
        node.inode.mtime = attrs.mtime.unwrap_or(node.inode.mtime);
        node.atime = attrs.atime.unwrap_or(node.atime);
        Ok(())
    }

    /// Brings a file's names here before one comes or goes.
    fn know_names(&mut self, ino: Ino) -> Result<()> {
        if self.nodes.get(&ino).is_none_or(|node| node.names.is_none()) {
            let names = if self.is_new(ino) { Vec::new() } else { self.base.view().parents(ino)? };
            let names = names.into_iter().map(|(dir, name)| (dir, name.into())).collect();
            self.node_mut(ino)?.names = Some(names);
        }
        Ok(())
    }
}

/// A folder's names changed.
fn touched(node: &mut Node, time: Time) {
    node.inode.mtime = time;
    node.inode.ctime = time;
}

/// A file's contents changed.
fn changed(node: &mut Node, mode: Option<u16>, time: Time) {
    node.inode.mode = mode.unwrap_or(node.inode.mode);
    node.inode.mtime = time;
    node.inode.ctime = time;
}
