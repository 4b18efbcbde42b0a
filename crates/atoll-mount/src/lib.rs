//! atoll-mount
