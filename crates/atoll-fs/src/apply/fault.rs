//! Places where tests kill an apply: before and after every change that it makes. Built only with debug assertions.

/// Passes a place: `ATOLL_APPLY_FAULT=N` kills the process at the N-th.
#[cfg(debug_assertions)]
pub(super) fn hit() {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static AT: LazyLock<Option<u64>> =
        LazyLock::new(|| std::env::var("ATOLL_APPLY_FAULT").ok().and_then(|text| text.parse().ok()));
    static PASSED: AtomicU64 = AtomicU64::new(0);
    if AT.is_some() && *AT == Some(PASSED.fetch_add(1, Ordering::SeqCst) + 1) {
        std::process::abort();
    }
}

/// Passes a place: nothing in a release build.
#[cfg(not(debug_assertions))]
pub(super) fn hit() {}
