//! Reads one key, or a range of keys in order.

use crate::tree::Value;
use crate::{Num, Objects, Result};

/// The value behind an encoded key.
pub fn get(objects: &dyn Objects, root: Num, key: &[u8]) -> Result<Option<Value>> {
    let _ = (objects, root, key);
    todo!()
}

/// All entries with `from <= key < to` in order; `to` of `None` means to the end.
pub fn scan<'a>(
    objects: &'a dyn Objects,
    root: Num,
    from: &[u8],
    to: Option<&[u8]>,
) -> Box<dyn Iterator<Item = Result<(Vec<u8>, Value)>> + Send + 'a> {
    let _ = (objects, root, from, to);
    todo!()
}
