//! The FUSE wire, small and fast: the kernel's structures ([`abi`]), how a mount comes to be ([`mount`]), and
//! a [`Session`] that answers requests for a [`FileSystem`] over one of two transports: `/dev/fuse` with a
//! short spin before it blocks ([`dev`], the default: it survives the death of its process), or FUSE over
//! io_uring ([`uring`], opt-in). It knows no store.

pub mod abi;
mod awake;
mod changes;
pub mod counters;
pub mod dev;
pub mod filesystem;
#[cfg(test)]
mod hostile;
pub mod mount;
mod priority;
pub mod reply;
pub mod session;
pub mod uring;
mod writable;

pub use counters::Counters;
pub use filesystem::{Call, Data, DirSink, Entry, Errno, FileSystem, Found, Opened, Reply};
pub use mount::{Device, MountOptions};
pub use session::{Config, Session, serve};
pub use writable::{NewNode, SetAttr, SetTime, Writable};

/// How long the kernel may keep what never changes: a hundred years.
pub const FOREVER: std::time::Duration = std::time::Duration::from_secs(100 * 365 * 86_400);
