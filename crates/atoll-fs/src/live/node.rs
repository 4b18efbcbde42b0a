//! What is known of a file that differs, or may differ, from the base.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use atoll_store::Ino;
use atoll_store::tree::{Dirent, FileType, Inode, Time};
use serde::{Deserialize, Serialize};

use super::content::{Content, Freed};

/// A name in a folder, or of an extended attribute.
pub type Name = Arc<[u8]>;

/// A file, whatever its names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its record; `nlink` 0: it has no name left, and lives as long as somebody holds it.
    pub inode: Inode,
    /// Last access, as far as somebody set it; trees do not keep it.
    pub atime: Time,
    /// Its names: each one's folder and the name itself. `None`: those of the base.
    pub names: Option<BTreeSet<(Ino, Name)>>,
    /// Its extended attributes. `None`: those of the base.
    pub xattrs: Option<BTreeMap<Name, Name>>,
    /// What it holds.
    pub body: Body,
}

/// What a file holds, by its kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Body {
    File(Content),
    Dir(Dir),
    /// A symbolic link's target; `None`: the base's.
    Symlink(Option<Name>),
    /// A pipe, socket or device.
    Other,
}

/// A folder's changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dir {
    /// What a name is now; `None`: the base's name is gone.
    names: HashMap<Name, Option<Dirent>>,
    /// The names that are there, by their positions in listings.
    order: BTreeMap<u64, Name>,
    /// The highest position that was ever given out, the base's included; 0: the base's is not known yet.
    last_cookie: u64,
}

impl Node {
    /// As the base has it.
    pub fn of_base(inode: Inode) -> Self {
        let body = match inode.kind {
            FileType::File => Body::File(Content::of_base(inode.size)),
            FileType::Dir => Body::Dir(Dir::default()),
            FileType::Symlink => Body::Symlink(None),
            _ => Body::Other,
        };
        Node { inode, atime: inode.mtime, names: None, xattrs: None, body }
    }

    /// The folder's changes; `None` when it is no folder.
    pub fn dir(&self) -> Option<&Dir> {
        if let Body::Dir(dir) = &self.body { Some(dir) } else { None }
    }

    /// The file's contents; `None` when it is no regular file.
    pub fn content(&self) -> Option<&Content> {
        if let Body::File(content) = &self.body { Some(content) } else { None }
    }

    /// All its runs in the workspace's own files: what is free when it goes.
    pub fn places(&self) -> Vec<Freed> {
        self.content().map_or(Vec::new(), |content| content.places().collect())
    }
}

impl Dir {
    /// What is known of a name here: `None` is nothing, so the base decides.
    pub fn get(&self, name: &[u8]) -> Option<Option<Dirent>> {
        self.names.get(name).copied()
    }

    /// A name comes, at a position that the folder never gave out before.
    pub fn add(&mut self, name: Name, dirent: Dirent) {
        self.last_cookie = self.last_cookie.max(dirent.cookie);
        self.set(name, dirent);
    }

    /// A name means something else, at the position that it had.
    pub fn set(&mut self, name: Name, dirent: Dirent) {
        if let Some(Some(old)) = self.names.insert(name.clone(), Some(dirent)) {
            self.order.remove(&old.cookie);
        }
        self.order.insert(dirent.cookie, name);
    }

    /// The highest position that was ever given out; `None` when that is the base's.
    pub fn last_cookie(&self) -> Option<u64> {
        (self.last_cookie > 0).then_some(self.last_cookie)
    }

    /// Takes a name away. `of_base`: the base has it, so that its absence has to be remembered.
    pub fn remove(&mut self, name: &Name, of_base: bool) {
        let old = if of_base { self.names.insert(name.clone(), None) } else { self.names.remove(name) };
        if let Some(Some(old)) = old {
            self.order.remove(&old.cookie);
        }
    }

    /// The names that came or changed, from a position on.
    pub fn from(&self, cookie: u64) -> impl Iterator<Item = (u64, &Name, Dirent)> {
        let known = |name| self.names.get(name).copied().flatten();
        self.order.range(cookie..).filter_map(move |(at, name)| Some((*at, name, known(name)?)))
    }

    /// All that differs from the base: `None` is a name that is gone.
    pub fn changes(&self) -> impl Iterator<Item = (&Name, Option<Dirent>)> {
        self.names.iter().map(|(name, dirent)| (name, *dirent))
    }
}
