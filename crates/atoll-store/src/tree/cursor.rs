//! A place in a tree, moved forward without reading what it passes over.

use std::sync::Arc;

use crate::tree::{Node, Value};
use crate::{Error, Num, Objects, Result};

/// A place at one level of a tree: at level 0 it moves from item to item; at a higher level from child pointer to
/// child pointer.
#[derive(Clone)]
pub struct Cursor<'a> {
    objects: &'a dyn Objects,
    level: u8,
    /// The nodes from the root down to `level`, each with the place in it. The places above the last are of the
    /// child that follows. Empty when the tree has no items.
    stack: Vec<(Num, Arc<Node>, usize)>,
}

impl<'a> Cursor<'a> {
    /// At the first item of the tree.
    ///
    /// # Errors
    /// Those of [`Objects::node`].
    pub fn first(objects: &'a dyn Objects, root: Num) -> Result<Self> {
        Self::at_level(objects, root, 0, &[])
    }

    /// At the first item whose key is not less than `key`.
    ///
    /// # Errors
    /// Those of [`Objects::node`].
    pub fn seek(objects: &'a dyn Objects, root: Num, key: &[u8]) -> Result<Self> {
        let mut cursor = Self::at_level(objects, root, 0, key)?;
        cursor.skip_to(key)?;
        Ok(cursor)
    }

    /// At the last item whose key is not greater than `key`; at the first item when there is none.
    ///
    /// # Errors
    /// Those of [`Objects::node`].
    pub fn floor(objects: &'a dyn Objects, root: Num, key: &[u8]) -> Result<Self> {
        let mut cursor = Self::at_level(objects, root, 0, key)?;
        if let Some((_, node, at)) = cursor.stack.last_mut() {
            *at = node.covering(key);
        }
        Ok(cursor)
    }

    /// In the node of `level` that covers `key`, at its start.
    pub(crate) fn at_level(objects: &'a dyn Objects, root: Num, level: u8, key: &[u8]) -> Result<Self> {
        let node = objects.node(root)?;
        let mut cursor = Cursor { objects, level, stack: vec![(root, node, 0)] };
        cursor.descend(Some(key))?;
        Ok(cursor)
    }

    /// From the last node of the stack down to the level, towards `key` or to the first item.
    fn descend(&mut self, key: Option<&[u8]>) -> Result<()> {
        while let Some((_, node, at)) = self.stack.last_mut()
            && node.level() > self.level
        {
            if let Some(key) = key {
                *at = node.covering(key);
            }
            let child = open_child(self.objects, node, *at)?;
            let num = node.child(*at);
            self.stack.push((num, child, 0));
        }
        Ok(())
    }

    /// Whether the cursor is behind the last item.
    pub fn is_end(&self) -> bool {
        self.stack.last().is_none_or(|(_, node, at)| *at >= node.len())
    }

    /// The key of the present item.
    pub fn key(&self) -> Option<&[u8]> {
        let (_, node, at) = self.stack.last()?;
        (*at < node.len()).then(|| node.key(*at))
    }

    /// The value of the present item (of a cursor over items).
    pub fn value(&self) -> Option<Value> {
        let (_, node, at) = self.stack.last()?;
        (*at < node.len()).then(|| node.value(*at))
    }

    /// The node that it is in, its number, and the place in it.
    pub(crate) fn node(&self) -> Option<&(Num, Arc<Node>, usize)> {
        self.stack.last()
    }

    /// To the next item.
    ///
    /// # Errors
    /// Those of [`Objects::node`].
    pub fn advance(&mut self) -> Result<()> {
        if let Some((_, node, at)) = self.stack.last_mut() {
            *at += 1;
            if *at >= node.len() {
                self.next_node()?;
            }
        }
        Ok(())
    }

    /// To the start of the next node of the level; at the last one it goes behind its items.
    pub(crate) fn next_node(&mut self) -> Result<bool> {
        let next =
            self.stack.iter().rposition(|(_, node, at)| node.level() > self.level && at + 1 < node.len());
        match next {
            Some(depth) => {
                self.stack.truncate(depth + 1);
                self.stack[depth].2 += 1;
                self.descend(None)?;
                Ok(true)
            }
            None => {
                if let Some((_, node, at)) = self.stack.last_mut() {
                    *at = node.len();
                }
                Ok(false)
            }
        }
    }

    /// The first key behind the present node, if there is one.
    pub(crate) fn node_end(&self) -> Option<&[u8]> {
        let above = self.stack.iter().rev().filter(|(_, node, _)| node.level() > self.level);
        above.filter(|(_, node, at)| at + 1 < node.len()).map(|(_, node, at)| node.key(at + 1)).next()
    }

    /// Forward to the node that covers `key` (to its start, if it is not the present one).
    pub(crate) fn skip_to_node(&mut self, key: &[u8]) -> Result<()> {
        if self.node_end().is_none_or(|end| key < end) {
            return Ok(());
        }
        // The lowest node above that still covers the key; the root covers all.
        let covers = |depth: usize| {
            let above = self.stack[..depth].iter().rev();
            above.filter(|(_, node, at)| at + 1 < node.len()).map(|(_, node, at)| node.key(at + 1)).next()
        };
        let depth =
            (0..self.stack.len()).rev().find(|&depth| covers(depth).is_none_or(|end| key < end)).unwrap_or(0);
        self.stack.truncate(depth + 1);
        self.descend(Some(key))
    }

    /// Forward to the first item whose key is not less than `key`; does nothing when it is there or beyond.
    ///
    /// # Errors
    /// Those of [`Objects::node`].
    pub fn skip_to(&mut self, key: &[u8]) -> Result<()> {
        self.skip_to_node(key)?;
        if let Some((_, node, at)) = self.stack.last_mut() {
            let (Ok(found) | Err(found)) = node.search(key);
            *at = found.max(*at);
            if *at >= node.len() {
                self.next_node()?;
            }
        }
        Ok(())
    }
}

/// Reads a child and checks that it is what its parent says, so that a damaged tree ends a walk with an error and
/// can neither loop nor be taken for another tree.
pub(crate) fn open_child(objects: &dyn Objects, parent: &Node, at: usize) -> Result<Arc<Node>> {
    let num = parent.child(at);
    let child = objects.node(num)?;
    if child.level() + 1 != parent.level() || child.is_empty() || child.key(0) != parent.key(at) {
        return Err(Error::damaged(format!(
            "The tree node {} does not fit its parent; run `atoll fsck` to see which commits are affected.",
            num.0
        )));
    }
    Ok(child)
}
