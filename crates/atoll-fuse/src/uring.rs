//! FUSE over io_uring.
