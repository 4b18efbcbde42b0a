//! Files come and go, and their names.

use atoll_store::tree::{FileType, Inode};
use atoll_store::{BirthId, Ino};
use rustix::io::Errno;

use super::node::Name;
use super::op::{Entry, Op};
use super::{Inner, Live, Reply, Stat, Who, failed};

/// The longest name, as on Linux' other file systems.
const NAME_MAX: usize = 255;
/// The most names that a file can have: ext4's limit, so that programs meet one that they know.
const LINK_MAX: u32 = 65_000;
const S_ISGID: u16 = 0o2000;

/// What a file is to begin as.
#[derive(Debug, Clone, Copy)]
pub struct New<'a> {
    /// What it is.
    pub kind: FileType,
    /// The 12 permission bits.
    pub mode: u16,
    /// A device's number.
    pub rdev: u64,
    /// A symbolic link's target; empty for everything else.
    pub target: &'a [u8],
}

/// What becomes of the name that a file is renamed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameMode {
    /// The file takes its place.
    Replace,
    /// Having one is an error.
    NoReplace,
    /// The two change places.
    Exchange,
}

/// # Errors
/// ENAMETOOLONG; EINVAL for what can be no name, which the kernel never sends.
pub(super) fn check(name: &[u8]) -> Reply<()> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    if !atoll_store::tree::key::is_name(name) {
        return Err(Errno::INVAL);
    }
    Ok(())
}

impl Live {
    /// Makes a file; without a place (O_TMPFILE) it belongs in `dir` and has no name.
    ///
    /// # Errors
    /// EEXIST, ENOENT and ENOTDIR for the folder, ENAMETOOLONG, ENOSPC.
    pub fn create(&self, who: Who, dir: Ino, name: Option<&[u8]>, new: New<'_>) -> Reply<Stat> {
        let time = self.now();
        let mut inner = self.inner.lock();
        let entry = match name {
            Some(name) => Some(inner.vacant(dir, name)?),
            None => None,
        };
        let parent = inner.folder(dir)?;
        let ino = inner.state.next_ino().ok_or(Errno::NOSPC)?;
        let is_dir = new.kind == FileType::Dir;
        let inherits = parent.inode.mode & S_ISGID != 0;
        let inode = Inode {
            birth: BirthId((self.options.random)()),
            kind: new.kind,
            mode: new.mode | if is_dir && inherits { S_ISGID } else { 0 },
            uid: who.uid,
            gid: if inherits { parent.inode.gid } else { who.gid },
            size: new.target.len() as u64,
            nlink: if is_dir { 2 } else { u32::from(entry.is_some()) },
            rdev: new.rdev,
            mtime: time,
            ctime: time,
            btime: time,
        };
        let target = (new.kind == FileType::Symlink).then(|| Name::from(new.target));
        inner.make(who.request, Op::Create { ino, inode, target, xattrs: Vec::new(), entry }, &[], false)?;
        inner.stat(ino)
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// EPERM for a folder, EMLINK, and those of [`Live::create`].
    pub fn link(&self, who: Who, ino: Ino, dir: Ino, name: &[u8]) -> Reply<Stat> {
        let time = self.now();
        let mut inner = self.inner.lock();
        let inode = inner.node(ino)?.inode;
        if inode.kind == FileType::Dir {
            return Err(Errno::PERM);
        }
        if inode.nlink >= LINK_MAX {
            return Err(Errno::MLINK);
        }
        let entry = inner.vacant(dir, name)?;
        inner.make(who.request, Op::Link { ino, entry, time }, &[], false)?;
        inner.stat(ino)
    }

    /// Takes a name away: of an empty folder (`folder`) or of anything else.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR, EISDIR, ENOTEMPTY.
    pub fn remove(&self, who: Who, dir: Ino, name: &[u8], folder: bool) -> Reply<()> {
        let time = self.now();
        let mut inner = self.inner.lock();
        inner.folder(dir)?;
        let gone = inner.state.lookup(dir, name).map_err(failed)?.ok_or(Errno::NOENT)?;
        inner.may_go(gone.ino, gone.kind == FileType::Dir, folder)?;
        inner.make(who.request, Op::Remove { dir, name: name.into(), time }, &[], true)
    }

    /// Gives a file another name, maybe in another folder.
    ///
    /// # Errors
    /// ENOENT, EEXIST, ENOTDIR, EISDIR, ENOTEMPTY; EINVAL when a folder would come to be inside itself.
    pub fn rename(
        &self,
        who: Who,
        (dir, name): (Ino, &[u8]),
        (to, as_name): (Ino, &[u8]),
        mode: RenameMode,
    ) -> Reply<()> {
        check(as_name)?;
        let time = self.now();
        let mut inner = self.inner.lock();
        inner.folder(dir)?;
        inner.folder(to)?;
        let moved = inner.state.lookup(dir, name).map_err(failed)?.ok_or(Errno::NOENT)?;
        let there = inner.state.lookup(to, as_name).map_err(failed)?;
        let is_dir = moved.kind == FileType::Dir;
        if is_dir && dir != to {
            inner.not_inside(moved.ino, to)?;
        }
        match (mode, there) {
            (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST),
            (RenameMode::Exchange, None) => return Err(Errno::NOENT),
            (RenameMode::Exchange, Some(there)) => {
                if there.kind == FileType::Dir && dir != to {
                    inner.not_inside(there.ino, dir)?;
                }
                let (one, other) = ((dir, Name::from(name)), (to, Name::from(as_name)));
                return inner.make(who.request, Op::Exchange { one, other, time }, &[], false);
            }
            // Two names of one file: nothing happens (POSIX).
            (_, Some(there)) if there.ino == moved.ino => return Ok(()),
            (_, Some(there)) => inner.may_go(there.ino, there.kind == FileType::Dir, is_dir)?,
            (_, None) => {}
        }
        let to = Entry { dir: to, name: as_name.into(), cookie: inner.next_cookie(to)? };
        inner.make(who.request, Op::Rename { dir, name: name.into(), to, time }, &[], false)
    }
}

impl Inner {
    /// A folder that has a name: in others nothing can come to be.
    fn folder(&self, dir: Ino) -> Reply<std::sync::Arc<super::node::Node>> {
        let node = self.node(dir)?;
        match node.inode.kind {
            FileType::Dir if node.inode.nlink == 0 => Err(Errno::NOENT),
            FileType::Dir => Ok(node),
            _ => Err(Errno::NOTDIR),
        }
    }

    /// A place for a name that is not there.
    fn vacant(&mut self, dir: Ino, name: &[u8]) -> Reply<Entry> {
        check(name)?;
        self.folder(dir)?;
        if self.state.lookup(dir, name).map_err(failed)?.is_some() {
            return Err(Errno::EXIST);
        }
        Ok(Entry { dir, name: name.into(), cookie: self.next_cookie(dir)? })
    }

    /// Whether a file may lose its name to somebody who wants a folder gone, or not a folder.
    fn may_go(&self, ino: Ino, is_dir: bool, folder: bool) -> Reply<()> {
        match (is_dir, folder) {
            (false, true) => Err(Errno::NOTDIR),
            (true, false) => Err(Errno::ISDIR),
            (true, true) if !self.state.is_empty(ino).map_err(failed)? => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }

    /// Whether `dir` is neither the folder `moved` nor below it.
    fn not_inside(&self, moved: Ino, mut dir: Ino) -> Reply<()> {
        loop {
            if dir == moved {
                return Err(Errno::INVAL);
            }
            match self.state.parent(dir).map_err(failed)? {
                Some((parent, _)) => dir = parent,
                None => return Ok(()),
            }
        }
    }

    /// A position behind all that the folder ever gave out, as far as the base and the journal know.
    fn next_cookie(&mut self, dir: Ino) -> Reply<u64> {
        let known = self.state.nodes.get(&dir).and_then(|node| node.dir()?.last_cookie());
        if let Some(last) = known {
            return Ok(last + 1);
        }
        let names = self.state.base_names(dir).map_err(failed)?;
        let last = names.iter().map(|(_, dirent)| dirent.cookie).max().unwrap_or(0);
        Ok(last + 1)
    }
}
