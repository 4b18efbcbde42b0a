//! Makes a tree from another one and a sorted run of changes. Building from nothing is the same code.

use crate::tree::Value;
use crate::{Num, Result, Sink};

/// One change: an encoded key and its new value, or `None` to take the key away.
pub type Edit = (Vec<u8>, Option<Value>);

/// Applies `edits` (strictly ascending by key) to the tree at `root` (`None`: the empty tree) and returns the
/// new root. Nodes that the edits do not touch are shared; each new node is stored as replacing the old one
/// that covered its first key.
pub fn edit(sink: &dyn Sink, root: Option<Num>, edits: impl IntoIterator<Item = Edit>) -> Result<Num> {
    let _ = (sink, root, edits.into_iter());
    todo!()
}
