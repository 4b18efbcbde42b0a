//! atoll-fuse
