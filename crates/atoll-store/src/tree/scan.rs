//! Reads one key, or a range of keys in order.

use crate::tree::cursor::{Cursor, open_child};
use crate::tree::{Dirent, Inode, Key, Value};
use crate::{Ino, Num, Objects, Result};

/// The value behind an encoded key.
///
/// # Errors
/// Those of [`Objects::node`].
pub fn get(objects: &dyn Objects, root: Num, key: &[u8]) -> Result<Option<Value>> {
    let mut node = objects.node(root)?;
    while node.level() > 0 {
        node = open_child(objects, &node, node.covering(key))?;
    }
    Ok(node.search(key).ok().map(|at| node.value(at)))
}

/// All entries with `from <= key < to` in order; `to` of `None` means to the end.
///
/// # Errors
/// Each item those of [`Objects::node`]; after an error there are no more items.
pub fn scan<'a>(
    objects: &'a dyn Objects,
    root: Num,
    from: &[u8],
    to: Option<&[u8]>,
) -> Box<dyn Iterator<Item = Result<(Vec<u8>, Value)>> + Send + 'a> {
    let to = to.map(<[u8]>::to_vec);
    let mut state = Some(Cursor::seek(objects, root, from));
    Box::new(std::iter::from_fn(move || {
        let mut cursor = match state.take()? {
            Ok(cursor) => cursor,
            Err(error) => return Some(Err(error)),
        };
        let key = cursor.key().filter(|key| to.as_deref().is_none_or(|to| *key < to))?.to_vec();
        let value = cursor.value()?;
        state = Some(cursor.advance().map(|()| cursor));
        Some(Ok((key, value)))
    }))
}

/// A whole tree's inodes and folder entries, each sorted, as importers compare a folder with.
#[derive(Debug, Clone, Default)]
pub struct Loaded {
    /// The inodes, by number.
    pub inodes: Vec<(Ino, Inode)>,
    /// The folder entries, by folder and name.
    pub dirents: Vec<(Ino, Box<[u8]>, Dirent)>,
    /// The inodes that have extended attributes.
    pub with_xattrs: Vec<Ino>,
}

impl Loaded {
    /// An inode by its number.
    pub fn inode(&self, ino: Ino) -> Option<&Inode> {
        let at = self.inodes.binary_search_by_key(&ino, |(ino, _)| *ino).ok()?;
        Some(&self.inodes[at].1)
    }

    /// A folder's entries, by name.
    pub fn dir(&self, dir: Ino) -> &[(Ino, Box<[u8]>, Dirent)] {
        let start = self.dirents.partition_point(|(of, ..)| *of < dir);
        let len = self.dirents[start..].partition_point(|(of, ..)| *of == dir);
        &self.dirents[start..start + len]
    }
}

/// Reads all inodes and folder entries at once (extents, ways back and attributes' values are left out).
///
/// # Errors
/// Those of [`Objects::node`].
pub fn load_all(objects: &dyn Objects, root: Num) -> Result<Loaded> {
    let mut loaded = Loaded::default();
    let mut cursor = Cursor::first(objects, root)?;
    while let Some((_, node, _)) = cursor.node() {
        for at in 0..node.len() {
            match Key::decode(node.key(at))? {
                Key::Inode(ino) => {
                    if let Value::Inode(inode) = node.value(at) {
                        loaded.inodes.push((ino, inode));
                    }
                }
                Key::Dirent(dir, name) => {
                    if let Value::Dirent(dirent) = node.value(at) {
                        loaded.dirents.push((dir, name.into(), dirent));
                    }
                }
                Key::Xattr(ino, _) if loaded.with_xattrs.last() != Some(&ino) => loaded.with_xattrs.push(ino),
                _ => {}
            }
        }
        if !cursor.next_node()? {
            break;
        }
    }
    Ok(loaded)
}
