//! The history file system.
