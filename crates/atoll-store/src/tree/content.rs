//! The second hash: equal for trees with equal names, kinds, modes, owners, attributes and contents, wherever
//! they came from (inode numbers, birth ids, times and cookies are left out).
//!
//! It is a sum over all paths of a 1024-bit hash of each (path, metadata, contents), so a commit updates it
//! from the differences alone, and a tree needs no hash per folder. It finds equal content; it is no proof
//! against someone who constructs collisions: the root hash is.

use crate::commit::Summary;
use crate::{Num, Objects, Result};

/// The sum: 16 lanes of 64 bits, each added modulo 2^64. The empty tree's is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentSum(pub [u64; 16]);

impl ContentSum {
    /// The sum and summary of `new`, computed from those of `old` and what differs.
    pub fn update(
        objects: &dyn Objects,
        old: Option<(Num, ContentSum, Summary)>,
        new: Num,
    ) -> Result<(ContentSum, Summary)> {
        let _ = (objects, old, new);
        todo!()
    }
}
