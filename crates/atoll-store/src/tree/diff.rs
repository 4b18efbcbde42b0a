//! The keys in which two trees differ; subtrees that are the same node are never visited.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::tree::cursor::open_child;
use crate::tree::{Extent, Node, Value};
use crate::{Num, Objects, Result};

/// One key with its value on either side; at least one side is there, and they differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The encoded key.
    pub key: Vec<u8>,
    /// The value in the old tree.
    pub old: Option<Value>,
    /// The value in the new tree.
    pub new: Option<Value>,
}

/// The differences from `old` to `new` (`None`: the empty tree), in key order. Extents with different chunk
/// numbers but the same hash are equal.
///
/// # Errors
/// Each item those of [`Objects::node`]; after an error there are no more items.
pub fn diff<'a>(
    objects: &'a dyn Objects,
    old: Option<Num>,
    new: Option<Num>,
) -> Box<dyn Iterator<Item = Result<Difference>> + Send + 'a> {
    let mut walk = Some(Walk { objects, old: Side::new(old), new: Side::new(new) });
    Box::new(std::iter::from_fn(move || {
        let step = walk.as_mut()?.next().transpose();
        if !matches!(step, Some(Ok(_))) {
            walk = None;
        }
        step
    }))
}

struct Walk<'a> {
    objects: &'a dyn Objects,
    old: Side,
    new: Side,
}

/// A place in one tree that stands before an item, or before a whole subtree that nobody has looked into yet.
struct Side {
    /// The root, until it is opened.
    root: Option<Num>,
    /// The nodes that it is inside of, each with the place in it, none at its end.
    stack: Vec<(Arc<Node>, usize)>,
}

impl Side {
    fn new(root: Option<Num>) -> Self {
        Side { root, stack: Vec::new() }
    }

    fn open_root(&mut self, objects: &dyn Objects) -> Result<()> {
        if let Some(root) = self.root.take() {
            let node = objects.node(root)?;
            if !node.is_empty() {
                self.stack.push((node, 0));
            }
        }
        Ok(())
    }

    fn here(&self) -> Option<(&Node, usize)> {
        self.stack.last().map(|(node, at)| (&**node, *at))
    }

    fn descend(&mut self, objects: &dyn Objects) -> Result<()> {
        if let Some((node, at)) = self.stack.last() {
            let child = open_child(objects, node, *at)?;
            self.stack.push((child, 0));
        }
        Ok(())
    }

    fn advance(&mut self) {
        while let Some((node, at)) = self.stack.last_mut() {
            *at += 1;
            if *at < node.len() {
                return;
            }
            self.stack.pop();
        }
    }

    /// Takes the item that it stands before.
    fn take(&mut self) -> Option<(Vec<u8>, Value)> {
        let (node, at) = self.here()?;
        let item = (node.key(at).to_vec(), node.value(at));
        self.advance();
        Some(item)
    }
}

impl Walk<'_> {
    fn next(&mut self) -> Result<Option<Difference>> {
        if self.old.root.is_some() && self.new.root.is_some() && self.same(self.old.root, self.new.root)? {
            return Ok(None);
        }
        self.old.open_root(self.objects)?;
        self.new.open_root(self.objects)?;
        loop {
            let (old, new) = match (self.old.here(), self.new.here()) {
                (None, None) => return Ok(None),
                (Some((node, _)), None) if node.level() > 0 => {
                    self.old.descend(self.objects)?;
                    continue;
                }
                (None, Some((node, _))) if node.level() > 0 => {
                    self.new.descend(self.objects)?;
                    continue;
                }
                (Some(_), None) => return Ok(self.only_old()),
                (None, Some(_)) => return Ok(self.only_new()),
                (Some(old), Some(new)) => (old, new),
            };
            let (level, new_level) = (old.0.level(), new.0.level());
            match old.0.key(old.1).cmp(new.0.key(new.1)) {
                Ordering::Less if level > 0 => self.old.descend(self.objects)?,
                Ordering::Less => return Ok(self.only_old()),
                Ordering::Greater if new_level > 0 => self.new.descend(self.objects)?,
                Ordering::Greater => return Ok(self.only_new()),
                Ordering::Equal if level > new_level => self.old.descend(self.objects)?,
                Ordering::Equal if level < new_level => self.new.descend(self.objects)?,
                Ordering::Equal if level > 0 => {
                    let (old, new) = (old.0.child(old.1), new.0.child(new.1));
                    if self.same(Some(old), Some(new))? {
                        self.old.advance();
                        self.new.advance();
                    } else {
                        self.old.descend(self.objects)?;
                        self.new.descend(self.objects)?;
                    }
                }
                Ordering::Equal if old.0.raw(old.1) == new.0.raw(new.1) => {
                    self.old.advance();
                    self.new.advance();
                }
                Ordering::Equal => {
                    if let (Some((key, old)), Some((_, new))) = (self.old.take(), self.new.take())
                        && !same_value(self.objects, &old, &new)?
                    {
                        return Ok(Some(Difference { key, old: Some(old), new: Some(new) }));
                    }
                }
            }
        }
    }

    fn only_old(&mut self) -> Option<Difference> {
        self.old.take().map(|(key, value)| Difference { key, old: Some(value), new: None })
    }

    fn only_new(&mut self) -> Option<Difference> {
        self.new.take().map(|(key, value)| Difference { key, old: None, new: Some(value) })
    }

    /// Two numbers can stand for one node.
    fn same(&self, old: Option<Num>, new: Option<Num>) -> Result<bool> {
        Ok(match (old, new) {
            (Some(old), Some(new)) => old == new || self.objects.hash(old)? == self.objects.hash(new)?,
            _ => false,
        })
    }
}

fn same_value(objects: &dyn Objects, old: &Value, new: &Value) -> Result<bool> {
    match (old, new) {
        (Value::Extent(old), Value::Extent(new)) => same_extent(objects, old, new),
        _ => Ok(old == new),
    }
}

/// Whether two extents hold the same bytes.
pub(crate) fn same_extent(objects: &dyn Objects, old: &Extent, new: &Extent) -> Result<bool> {
    match (old, new) {
        (Extent::Chunk { num: a, len }, Extent::Chunk { num: b, len: other }) => {
            Ok(len == other && (a == b || objects.hash(*a)? == objects.hash(*b)?))
        }
        _ => Ok(old == new),
    }
}
