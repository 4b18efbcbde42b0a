//! atoll-fs
