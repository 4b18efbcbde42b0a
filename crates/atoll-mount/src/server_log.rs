//! The log of helper processes: lines with time and process on stderr, which is a file.

use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

struct Lines;

impl log::Log for Lines {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let line = format!(
                "{}.{:03} [{}] {}: {}\n",
                now.as_secs(),
                now.subsec_millis(),
                std::process::id(),
                record.level(),
                record.args()
            );
            // One write for each line, so that two processes do not mix theirs.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    fn flush(&self) {}
}

/// Sends what is logged to stderr. Calling it again does nothing. `ATOLL_LOG=trace` shows every request.
pub(crate) fn init() {
    static LINES: Lines = Lines;
    if log::set_logger(&LINES).is_ok() {
        let wanted = std::env::var("ATOLL_LOG").ok().and_then(|level| level.parse().ok());
        log::set_max_level(wanted.unwrap_or(log::LevelFilter::Info));
    }
}
