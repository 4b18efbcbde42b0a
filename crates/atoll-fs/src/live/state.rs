//! A workspace's state: the base, and what differs from it. It is a value: a clone is the state at that time, and
//! costs a pointer for each file that differs.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use atoll_store::tree::{Dirent, FileType, Key, TreeView, Value, get};
use atoll_store::{Error, Ino, Num, Objects, Result};
use bytes::Bytes;

use super::node::{Body, Name, Node};

/// The tree that a workspace began at, or that its last commit made.
#[derive(Clone)]
pub struct Base {
    /// Where its nodes and chunks are.
    pub objects: Arc<dyn Objects>,
    /// Its root node.
    pub root: Num,
}

impl Base {
    /// Its view.
    pub fn view(&self) -> TreeView<'_> {
        TreeView::new(&*self.objects, self.root)
    }
}

/// A workspace at one time.
#[derive(Clone)]
pub struct State {
    pub base: Base,
    pub(super) nodes: HashMap<Ino, Arc<Node>>,
    /// Files of the base that have no name left.
    pub(super) dead: HashSet<Ino>,
    /// The random bits of the inode numbers given out here; the low bits of the first one that the base has not,
    /// and of the next one.
    pub(super) random: u32,
    pub(super) fresh: u32,
    pub(super) next: u32,
    /// A commit is being made of an earlier state, and may become the base: what goes has to be remembered as gone
    /// even where the present base never had it.
    pub(super) flipped: bool,
}

impl State {
    /// Nothing differs from `base`, and no file of it has the number `first` or one behind it with the same random
    /// bits.
    pub fn new(base: Base, first: Ino) -> Self {
        let (random, fresh) = (first.random(), first.low());
        State {
            base,
            nodes: HashMap::new(),
            dead: HashSet::new(),
            random,
            fresh,
            next: fresh,
            flipped: false,
        }
    }

    /// A file; `None` when there is none of this number.
    pub fn node(&self, ino: Ino) -> Result<Option<Arc<Node>>> {
        if let Some(node) = self.nodes.get(&ino) {
            return Ok(Some(node.clone()));
        }
        if self.is_new(ino) || self.dead.contains(&ino) {
            return Ok(None);
        }
        Ok(self.base.view().inode(ino)?.map(|inode| Arc::new(Node::of_base(inode))))
    }

    /// A file that is to change.
    pub(super) fn node_mut(&mut self, ino: Ino) -> Result<&mut Node> {
        if !self.nodes.contains_key(&ino) {
            let node = self.node(ino)?.ok_or_else(|| lost(ino))?;
            self.nodes.insert(ino, node);
        }
        Ok(Arc::make_mut(self.nodes.get_mut(&ino).expect("it was just put there")))
    }

    /// What a name is.
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Dirent>> {
        let known = self.nodes.get(&dir).and_then(|node| node.dir()?.get(name));
        known.map_or_else(|| self.in_base(dir, name), Ok)
    }

    /// What a name is in the base.
    pub(super) fn in_base(&self, dir: Ino, name: &[u8]) -> Result<Option<Dirent>> {
        if self.is_new(dir) { Ok(None) } else { self.base.view().lookup(dir, name) }
    }

    /// The base's names of a folder.
    pub(super) fn base_names(&self, dir: Ino) -> Result<Vec<(Box<[u8]>, Dirent)>> {
        if self.is_new(dir) { Ok(Vec::new()) } else { self.base.view().readdir(dir) }
    }

    /// Whether a folder has no name.
    pub fn is_empty(&self, dir: Ino) -> Result<bool> {
        let node = self.nodes.get(&dir);
        let changes = node.and_then(|node| node.dir());
        if changes.is_some_and(|dir| dir.changes().any(|(_, now)| now.is_some())) {
            return Ok(false);
        }
        let gone = |name: &[u8]| changes.is_some_and(|dir| dir.get(name).is_some());
        Ok(self.base_names(dir)?.iter().all(|(name, _)| gone(name)))
    }

    /// A folder's parent, and its name there; `None` for the root and for folders without a name.
    pub fn parent(&self, dir: Ino) -> Result<Option<(Ino, Name)>> {
        if let Some(names) = self.nodes.get(&dir).and_then(|node| node.names.as_ref()) {
            return Ok(names.first().cloned());
        }
        if dir == Ino::ROOT || self.is_new(dir) {
            return Ok(None);
        }
        let parents = self.base.view().parents(dir)?;
        Ok(parents.into_iter().next().map(|(parent, name)| (parent, name.into())))
    }

    /// An extended attribute.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Option<Bytes>> {
        if let Some(known) = self.nodes.get(&ino).and_then(|node| node.xattrs.as_ref()) {
            return Ok(known.get(name).map(|value| Bytes::copy_from_slice(value)));
        }
        if self.is_new(ino) {
            return Ok(None);
        }
        let key = Key::Xattr(ino, name).to_vec();
        Ok(match get(&*self.base.objects, self.base.root, &key)? {
            Some(Value::Xattr(value)) => Some(Bytes::from(value.into_vec())),
            _ => None,
        })
    }

    /// All extended attributes, by name.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<(Name, Name)>> {
        if let Some(known) = self.nodes.get(&ino).and_then(|node| node.xattrs.as_ref()) {
            return Ok(known.iter().map(|(name, value)| (name.clone(), value.clone())).collect());
        }
        if self.is_new(ino) {
            return Ok(Vec::new());
        }
        let found = self.base.view().xattrs(ino)?;
        Ok(found.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }

    /// A symbolic link's target; `None` when it is none.
    pub fn target(&self, ino: Ino) -> Result<Option<Bytes>> {
        Ok(match self.node(ino)?.as_deref() {
            Some(Node { body: Body::Symlink(Some(target)), .. }) => Some(Bytes::copy_from_slice(target)),
            Some(Node { body: Body::Symlink(None), .. }) => Some(self.base.view().readlink(ino)?),
            _ => None,
        })
    }

    /// Whether the number was given out here after the base was made: then the base has nothing of it.
    pub(super) fn is_new(&self, ino: Ino) -> bool {
        ino.random() == self.random && ino.low() >= self.fresh
    }

    /// The next inode number; `None` when all are given out.
    pub(super) fn next_ino(&self) -> Option<Ino> {
        (self.next != u32::MAX).then(|| Ino::new(self.random, self.next))
    }

    /// Whether the base, or one that is to follow, has a file of this number.
    pub(super) fn has_base(&self, ino: Ino) -> Result<bool> {
        Ok(self.flipped || !self.is_new(ino) && self.base.view().inode(ino)?.is_some())
    }

    /// Whether the file is a folder.
    pub(super) fn is_dir(&self, ino: Ino) -> Result<bool> {
        Ok(self.node(ino)?.is_some_and(|node| node.inode.kind == FileType::Dir))
    }
}

/// A file that a change names and nobody has.
pub(super) fn lost(ino: Ino) -> Error {
    Error::damaged(format!(
        "A change in the workspace's journal is of file {}, which is not there.",
        ino.shown()
    ))
}
