//! Makes a tree from another one and a sorted run of changes. Building from nothing is the same code.
//!
//! One level after the other, from the leaves up: the old nodes that changes fall into are cut again, and the
//! ones behind them for as long as the new boundaries differ from the old; the rest is not even read. What became
//! of the nodes of one level are the changes of the next.

use std::sync::Arc;

use crate::tree::boundary::Boundary;
use crate::tree::codec::{ValueKind, is_valid, put_value, weight};
use crate::tree::cursor::Cursor;
use crate::tree::{Key, Node, Value};
use crate::{Code, Error, Num, Objects, Result, Sink};

/// One change: an encoded key and its new value, or `None` to take the key away.
pub type Edit = (Vec<u8>, Option<Value>);

/// The weight of a child pointer in the boundary rule.
const CHILD_WEIGHT: usize = 32;

/// Applies `edits` (strictly ascending by key) to the tree at `root` (`None`: the empty tree) and returns the
/// new root. Nodes that the edits do not touch are shared. Each new node is stored as replacing the old one that
/// most of it came from, if a good part of it did. Edits that change nothing, or take away what is not there,
/// are fine.
///
/// # Errors
/// `Usage` when the edits do not ascend or a value does not fit its key; those of [`Sink`].
pub fn edit(sink: &dyn Sink, root: Option<Num>, edits: impl IntoIterator<Item = Edit>) -> Result<Num> {
    let objects: &dyn Objects = sink;
    let height = match root {
        Some(root) => Some(objects.node(root)?.level()),
        None => None,
    };
    let mut level = Level::new(sink, root, 0)?;
    let mut before: Option<Vec<u8>> = None;
    for (key, value) in edits {
        check(before.as_deref(), &key, value.as_ref())?;
        level.apply(&key, value.map(Item::Value))?;
        before = Some(key);
    }
    for next in 1.. {
        let above = root.filter(|_| height >= Some(next));
        let done = level.finish(above.is_some())?;
        if let (false, Some(root)) = (done.changed, root) {
            return Ok(root);
        }
        match done.only {
            Only::Nothing => return sink.put_node(Node::new(0), None),
            Only::One(child) => return lowest(objects, child),
            Only::More => {}
        }
        level = Level::new(sink, above, next)?;
        for (key, child) in done.edits {
            level.apply(&key, child.map(Item::Child))?;
        }
    }
    unreachable!("a level has fewer nodes than the one below it")
}

fn check(before: Option<&[u8]>, key: &[u8], value: Option<&Value>) -> Result<()> {
    let usage = |what: &str| Err(Error::new(Code::Usage, format!("{what}: {:?}.", Key::decode(key))));
    if before.is_some_and(|before| before >= key) {
        return usage("Edits of a tree must ascend by key");
    }
    if Key::decode(key).is_err() {
        return usage("An edit of a tree has a malformed key");
    }
    let fits = |value: &Value| ValueKind::of_key(key) == Some(ValueKind::of_value(value)) && is_valid(value);
    if value.is_some_and(|value| !fits(value)) {
        return usage("An edit of a tree has a value that does not fit its key");
    }
    Ok(())
}

/// A root never has a single child: its child is the root then.
fn lowest(objects: &dyn Objects, mut root: Num) -> Result<Num> {
    loop {
        let node = objects.node(root)?;
        if node.level() == 0 || node.len() > 1 {
            return Ok(root);
        }
        root = node.child(0);
    }
}

enum Item {
    Value(Value),
    Child(Num),
}

/// What a whole level came to.
enum Only {
    /// It has no items.
    Nothing,
    /// It is one node, or one pointer to a node: the root.
    One(Num),
    /// It needs a level above.
    More,
}

struct Done {
    only: Only,
    /// Whether any node came or went.
    changed: bool,
    /// The changes of the level above; all its items when the old tree does not have it.
    edits: Vec<(Vec<u8>, Option<Num>)>,
}

/// One level on its way from old to new.
struct Level<'a> {
    sink: &'a dyn Sink,
    level: u8,
    /// The present old node; `None` when there are no (more) old nodes.
    old: Option<Cursor<'a>>,
    /// Whether items of the present old node are being copied. If not, all is in step: the new node would
    /// begin where the old node begins.
    inside: bool,
    /// The place in the present old node.
    at: usize,
    /// Whether old nodes were, or will be, kept as they are.
    kept: bool,
    node: Node,
    boundary: Boundary,
    /// The pending node's items are the present old node's from its start, unchanged.
    pure: bool,
    source: Source,
    scratch: Vec<u8>,
    opened: Vec<(Vec<u8>, Num)>,
    made: Vec<(Vec<u8>, Num)>,
}

impl<'a> Level<'a> {
    fn new(sink: &'a dyn Sink, root: Option<Num>, level: u8) -> Result<Self> {
        let old = match root {
            Some(root) => Some(Cursor::at_level(sink, root, level, &[])?).filter(|cursor| !cursor.is_end()),
            None => None,
        };
        Ok(Level {
            sink,
            level,
            old,
            inside: false,
            at: 0,
            kept: false,
            node: Node::new(level),
            boundary: Boundary::new(level),
            pure: false,
            source: Source::default(),
            scratch: Vec::new(),
            opened: Vec::new(),
            made: Vec::new(),
        })
    }

    fn apply(&mut self, key: &[u8], item: Option<Item>) -> Result<()> {
        self.go_to(key)?;
        let mut same = item.is_none();
        if let Some((num, node)) =
            self.here().filter(|(_, node)| self.at < node.len() && node.key(self.at) == key)
        {
            same = match &item {
                Some(Item::Value(value)) => {
                    self.scratch.clear();
                    put_value(&mut self.scratch, value);
                    node.raw(self.at) == self.scratch
                }
                Some(Item::Child(child)) => node.child(self.at) == *child,
                None => false,
            };
            self.at += 1;
            if item.is_some() {
                self.source.add(num, key.len());
            }
        }
        self.pure &= same;
        match item {
            Some(Item::Value(value)) => self.node.push(key, &value),
            Some(Item::Child(child)) => self.node.push_child(key, child),
            None => return Ok(()),
        }
        self.close_if_full()
    }

    /// The old node that is being copied.
    fn here(&self) -> Option<(Num, Arc<Node>)> {
        let (num, node, _) = self.old.as_ref().filter(|_| self.inside)?.node()?;
        Some((*num, node.clone()))
    }

    /// Copies what comes before `key`, or passes over it where old and new are in step.
    fn go_to(&mut self, key: &[u8]) -> Result<()> {
        while let Some(cursor) = &mut self.old {
            if !self.inside {
                let before = cursor.node().map(|(num, ..)| *num);
                cursor.skip_to_node(key)?;
                self.kept |= cursor.node().map(|(num, ..)| *num) != before;
                self.open();
            }
            let stays = self.old.as_ref().and_then(Cursor::node_end).is_none_or(|end| key < end);
            self.copy(Some(key))?;
            if stays {
                break;
            }
            self.leave()?;
        }
        Ok(())
    }

    /// Begins with the present old node.
    fn open(&mut self) {
        if let Some((num, node, _)) = self.old.as_ref().and_then(Cursor::node) {
            self.opened.push((node.key(0).to_vec(), *num));
        }
        self.inside = true;
        self.at = 0;
        self.pure = self.node.is_empty();
    }

    /// Goes on to the next old node, and into it unless old and new are in step. False when there is none.
    fn leave(&mut self) -> Result<bool> {
        let Some(cursor) = &mut self.old else { return Ok(false) };
        if !cursor.next_node()? {
            return Ok(false);
        }
        self.inside = false;
        if !self.node.is_empty() {
            self.open();
        }
        Ok(true)
    }

    /// Copies the present old node's items before `key` (`None`: all).
    fn copy(&mut self, key: Option<&[u8]>) -> Result<()> {
        let Some((num, node)) = self.here() else { return Ok(()) };
        let end = key.map_or(node.len(), |key| node.search(key).unwrap_or_else(|at| at));
        while self.at < end {
            let (at, item) = (self.at, node.key(self.at));
            match self.level {
                0 => self.node.push_raw(item, node.raw(at)),
                _ => self.node.push_child(item, node.child(at)),
            }
            self.at += 1;
            self.source.add(num, item.len());
            self.close_if_full()?;
        }
        Ok(())
    }

    /// Ends the pending node if the boundary rule says so after its last item.
    fn close_if_full(&mut self) -> Result<()> {
        let last = self.node.len() - 1;
        let weight = match self.level {
            0 => weight(self.node.kind(last), self.node.raw(last)),
            _ => CHILD_WEIGHT,
        };
        if self.boundary.ends_after(self.node.key(last), weight) { self.close() } else { Ok(()) }
    }

    fn close(&mut self) -> Result<()> {
        let node = std::mem::replace(&mut self.node, Node::new(self.level));
        let source = std::mem::take(&mut self.source);
        let first = node.key(0).to_vec();
        let unchanged = match self.here() {
            Some((num, old)) if self.pure && self.at == old.len() && node.len() == old.len() => Some(num),
            _ => None,
        };
        let num = match unchanged {
            Some(num) => num,
            None => {
                let size = (0..node.len()).map(|at| node.key(at).len()).sum();
                self.sink.put_node(node, source.replaced(size))?
            }
        };
        self.pure = false;
        self.made.push((first, num));
        Ok(())
    }

    /// `above`: the old tree has a level above this one, so that changes are enough for it.
    fn finish(mut self, above: bool) -> Result<Done> {
        while self.inside {
            self.copy(None)?;
            if !self.leave()? {
                break;
            }
        }
        self.kept |= self.old.is_some() && !self.inside;
        let whole = !self.kept;
        if self.level > 0 && whole && self.made.is_empty() && self.node.len() == 1 {
            return Ok(Done { only: Only::One(self.node.child(0)), changed: true, edits: Vec::new() });
        }
        if !self.node.is_empty() {
            self.close()?;
        }
        let only = match &self.made[..] {
            [] if whole => Only::Nothing,
            [(_, num)] if whole => Only::One(*num),
            _ => Only::More,
        };
        let edits = match above {
            true => merge(self.opened, self.made),
            false if self.opened == self.made => Vec::new(),
            false => self.made.into_iter().map(|(key, num)| (key, Some(num))).collect(),
        };
        let changed = !edits.is_empty() || matches!(only, Only::Nothing);
        Ok(Done { only, changed, edits })
    }
}

/// The changes of the level above: nodes opened are taken away, nodes made are put in; the same node under the
/// same key is no change.
fn merge(opened: Vec<(Vec<u8>, Num)>, made: Vec<(Vec<u8>, Num)>) -> Vec<(Vec<u8>, Option<Num>)> {
    let mut edits = Vec::with_capacity(made.len());
    let mut opened = opened.into_iter().peekable();
    for (key, num) in made {
        while let Some((gone, _)) = opened.next_if(|(gone, _)| *gone < key) {
            edits.push((gone, None));
        }
        if opened.next_if(|(gone, _)| *gone == key).is_none_or(|(_, old)| old != num) {
            edits.push((key, Some(num)));
        }
    }
    edits.extend(opened.map(|(gone, _)| (gone, None)));
    edits
}

/// Which old node most of the pending node came from. Old nodes come in order, so it counts one after the other.
#[derive(Default)]
struct Source {
    best: Option<(Num, usize)>,
    present: Option<(Num, usize)>,
}

impl Source {
    fn add(&mut self, num: Num, bytes: usize) {
        match &mut self.present {
            Some((present, sum)) if *present == num => *sum += bytes,
            _ => {
                self.best = self.better();
                self.present = Some((num, bytes));
            }
        }
    }

    fn better(&self) -> Option<(Num, usize)> {
        [self.best, self.present].into_iter().flatten().max_by_key(|(_, sum)| *sum)
    }

    /// A delta on a node that gave less than a quarter of the key bytes is not worth trying.
    fn replaced(&self, size: usize) -> Option<Num> {
        self.better().filter(|(_, sum)| sum * 4 >= size).map(|(num, _)| num)
    }
}
