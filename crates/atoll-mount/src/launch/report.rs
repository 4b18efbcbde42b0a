//! Events for the caller: one JSON object a line.

use std::fs::{File, OpenOptions};
use std::io::Write;

use atoll_store::{Code, Error, Result};
use serde_json::{Value, json};

/// Why nothing was run.
#[derive(Debug)]
pub(super) struct Failure {
    /// `no_namespace` when the workspace cannot be shown elsewhere (the caller may try without), else a
    /// [`Code`]'s name.
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { code: error.code.name(), message: error.message }
    }
}

impl Failure {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Failure { code: code.name(), message: message.into() }
    }

    pub(super) fn no_namespace(message: impl Into<String>) -> Self {
        Failure { code: "no_namespace", message: message.into() }
    }
}

pub(super) struct Report {
    file: File,
}

impl Report {
    /// Takes over an inherited file: opened again as close-on-exec, since the command must not hold it open (the
    /// caller waits for its end).
    pub(super) fn take(number: i32) -> Result<Self> {
        let file = OpenOptions::new().write(true).open(format!("/proc/self/fd/{number}"))?;
        nix::unistd::close(number).map_err(std::io::Error::from)?;
        Ok(Report { file })
    }

    /// A caller that is gone is no reason to fail: the command's fate does not depend on it.
    pub(super) fn send(&mut self, event: &Value) {
        let mut line = event.to_string();
        line.push('\n');
        let _ = self.file.write_all(line.as_bytes());
    }

    pub(super) fn note(&mut self, text: &str) {
        self.send(&json!({"event": "note", "text": text}));
    }

    pub(super) fn failed(&mut self, failure: &Failure) {
        self.send(&json!({"event": "failed", "code": failure.code, "message": failure.message}));
    }
}
