//! Kernel overlayfs: mounting and unmounting a workspace, and what can stand in the way.

mod holders;
mod mount;
mod probe;
mod scratch;
mod table;
mod umount;
mod volatile;

pub use holders::{Holder, holders};
pub use mount::{FsyncMode, Overlay, mount};
pub use probe::{Fitness, probe_upper};
pub use scratch::{mount_scratch, umount_scratch};
pub use table::{Mount, find_mount, mounts};
pub use umount::umount;
pub use volatile::{clear_volatile, is_volatile, set_aside};
