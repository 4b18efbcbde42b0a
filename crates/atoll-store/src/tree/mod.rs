//! A tree: one complete state of a file system as one ordered map, kept in content-addressed nodes.
//!
//! Node boundaries are set by content, so the same map always has the same nodes and the same root hash,
//! whatever the order of the changes. A tree is named by the number of its root node.

mod boundary;
pub mod changes;
mod codec;
pub mod content;
pub mod cursor;
pub mod diff;
pub mod edit;
pub mod key;
pub mod node;
pub mod record;
pub mod scan;
pub mod value;
pub mod view;

pub use changes::{Change, ChangeKind, changes, changes_or_times};
pub use content::{ContentSum, content_equal};
pub use cursor::Cursor;
pub use diff::{Difference, diff};
pub use edit::{Edit, edit};
pub use key::Key;
pub use node::Node;
pub use record::Record;
pub use scan::{Loaded, get, load_all, scan};
pub use value::{Dirent, Extent, FileType, INLINE_MAX, Inode, Time, Value, Xattrs};
pub use view::TreeView;
