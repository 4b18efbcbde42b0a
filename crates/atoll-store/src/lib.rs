//! atoll's store: chunks and trees in packs, commits, refs, operations and their clean-up. It knows no
//! FUSE, no Python, and of the host's file systems only the folder that the store itself lives in.
//!
//! Read in this order: [`tree`] (one ordered map is a whole file system), [`object`] (where nodes and chunks
//! come from and go to), [`store`] (a folder that many processes use at once).

mod codec;
pub mod commit;
pub mod error;
mod fault;
pub mod ids;
pub mod object;
mod oplog;
mod pack;
pub mod store;
pub mod tree;

pub use commit::{Commit, NewCommit, Summary};
pub use error::{Code, Error, Result};
pub use ids::{BirthId, Hash, Ino, Num};
pub use object::{MemObjects, Objects, Sink};
pub use store::{Batch, Store, Writer};
