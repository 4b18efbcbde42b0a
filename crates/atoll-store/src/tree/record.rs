//! All that a tree says of one inode, and what two trees say differently of it.

use std::collections::HashMap;
use std::rc::Rc;

use crate::tree::{Cursor, Extent, FileType, Inode, Key, TreeView, Value, Xattrs, diff};
use crate::{Ino, Num, Objects, Result};

/// All keys of one inode but its folder entries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Record {
    /// The inode itself.
    pub inode: Option<Inode>,
    /// Its names: folder and name, in the order of the tree.
    pub parents: Vec<(Ino, Box<[u8]>)>,
    /// Its extended attributes, by name.
    pub xattrs: Xattrs,
    /// Its extents, by offset.
    pub extents: Vec<(u64, Extent)>,
}

impl Record {
    fn add(&mut self, key: Key<'_>, value: Value) {
        match (key, value) {
            (Key::Inode(_), Value::Inode(inode)) => self.inode = Some(inode),
            (Key::Parent(_, dir, name), Value::Parent) => self.parents.push((dir, name.into())),
            (Key::Xattr(_, name), Value::Xattr(bytes)) => self.xattrs.push((name.into(), bytes)),
            (Key::Extent(_, offset), Value::Extent(extent)) => self.extents.push((offset, extent)),
            _ => {}
        }
    }
}

impl TreeView<'_> {
    /// All keys of an inode but its folder entries, read in one go; `None` when there is no such inode.
    pub fn record(&self, ino: Ino) -> Result<Option<Record>> {
        let mut record = Record::default();
        let mut cursor = Cursor::seek(self.objects, self.root, &Key::Inode(ino).to_vec())?;
        while let (Some(key), Some(value)) = (cursor.key(), cursor.value()) {
            let key = Key::decode(key)?;
            if key.ino() != ino || matches!(key, Key::Dirent(..)) {
                break;
            }
            record.add(key, value);
            cursor.advance()?;
        }
        // A folder has no extents, so nothing is lost by not walking over its entries.
        Ok(record.inode.is_some().then_some(record))
    }
}

/// The keys of one inode in which two trees differ, each side as its tree has them. Folder entries are not among
/// them: a name is also the named file's way back.
#[derive(Debug, Default)]
pub(crate) struct Differing {
    pub ino: Option<Ino>,
    pub old: Record,
    pub new: Record,
}

impl Differing {
    /// Whether something that people see differs, beside the inode's own fields.
    pub fn beyond_inode(&self) -> bool {
        let sides = [&self.old, &self.new];
        sides
            .iter()
            .any(|side| !side.parents.is_empty() || !side.xattrs.is_empty() || !side.extents.is_empty())
    }
}

/// The differences of two trees, one inode at a time, in their order.
pub(crate) fn differing<'a>(
    objects: &'a dyn Objects,
    old: Option<Num>,
    new: Option<Num>,
) -> impl Iterator<Item = Result<(Ino, Differing)>> + 'a {
    let mut differences = diff(objects, old, new).peekable();
    std::iter::from_fn(move || {
        let mut group = Differing::default();
        loop {
            let ino = match differences.peek() {
                Some(Ok(difference)) => match Key::decode(&difference.key) {
                    Ok(key) => key.ino(),
                    Err(error) => return Some(Err(error)),
                },
                Some(Err(_)) => return differences.next().and_then(Result::err).map(Err),
                None => return group.ino.take().map(|ino| Ok((ino, group))),
            };
            if let Some(of) = group.ino.filter(|of| *of != ino) {
                return Some(Ok((of, group)));
            }
            group.ino = Some(ino);
            let Some(Ok(difference)) = differences.next() else { return None };
            let key = match Key::decode(&difference.key) {
                Ok(key) => key,
                Err(error) => return Some(Err(error)),
            };
            if let Some(value) = difference.old {
                group.old.add(key, value);
            }
            if let Some(value) = difference.new {
                group.new.add(key, value);
            }
        }
    })
}

/// Whether two records of a file say the same of what people see, contents, names and attributes aside.
pub(crate) fn same_fields(old: &Inode, new: &Inode) -> bool {
    let size = |inode: &Inode| if inode.kind == FileType::Dir { 0 } else { inode.size };
    (old.kind, old.mode, old.uid, old.gid, old.rdev, size(old))
        == (new.kind, new.mode, new.uid, new.gid, new.rdev, size(new))
}

/// The paths of a tree's folders, each found once.
pub(crate) struct Paths<'a> {
    view: TreeView<'a>,
    dirs: HashMap<Ino, Option<Rc<[u8]>>>,
    ways: HashMap<Ino, (Ino, Box<[u8]>)>,
}

impl<'a> Paths<'a> {
    pub fn new(view: TreeView<'a>) -> Self {
        Paths { view, dirs: [(Ino::ROOT, Some([].into()))].into(), ways: HashMap::new() }
    }

    /// Tells a folder's way up where it is known already: the tree need not be asked.
    pub fn know(&mut self, dir: Ino, above: Ino, name: &[u8]) {
        self.ways.insert(dir, (above, name.into()));
    }

    /// A folder's path.
    pub fn dir(&mut self, dir: Ino) -> Result<Option<Rc<[u8]>>> {
        // Up to the first folder whose path is known, then down again.
        let mut names: Vec<(Ino, Box<[u8]>)> = Vec::new();
        let mut above = dir;
        let mut path = loop {
            if let Some(known) = self.dirs.get(&above) {
                break known.clone();
            }
            let way = match self.ways.remove(&above) {
                Some(way) => Some(way),
                None => self.view.parents(above)?.into_iter().next(),
            };
            let Some((next, name)) = way else { break None };
            // A damaged tree can have folders that contain each other.
            if names.iter().any(|(seen, _)| *seen == above) || names.len() > 1 << 14 {
                break None;
            }
            names.push((above, name));
            above = next;
        };
        for (of, name) in names.into_iter().rev() {
            path = path.map(|path| join(&path, &name).into());
            self.dirs.insert(of, path.clone());
        }
        if path.is_none() {
            self.dirs.insert(dir, None);
        }
        Ok(path)
    }

    /// The path of a name in a folder; `None` when the folder cannot be reached from the root.
    pub fn of(&mut self, dir: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.dir(dir)?.map(|path| join(&path, name)))
    }
}

/// A name in the folder at a path.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    if dir.is_empty() { name.to_vec() } else { [dir, name].join(&b'/') }
}
