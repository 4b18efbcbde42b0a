//! One error type for the whole core: a stable code, a full sentence, and the cause below it.

use std::fmt;
use std::io;
use std::path::Path;

/// What went wrong, as callers branch on it. The names are part of the interface: Python maps each to an
/// exception class and an exit code (`python/atoll/errors.py`), so a code is never renamed or used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// There is no store at the place looked at.
    NoStore,
    /// A store (or a folder with something else in it) is already there.
    StoreExists,
    /// The store was written by a newer version than this program.
    NewerFormat,
    /// No branch, tag, commit or path of this name.
    NotFound,
    /// A prefix names more than one commit.
    Ambiguous,
    /// The branch, tag or workspace exists already.
    Exists,
    /// A name that cannot be a branch, tag or workspace.
    InvalidName,
    /// A branch moved while its new commit was being made: a lost race.
    Moved,
    /// Something else holds what is needed (a mount, a lock, a running git).
    Busy,
    /// Stored bytes do not match their checksum, or something that must exist is missing.
    Damaged,
    /// No space, or a quota reached.
    NoSpace,
    /// The operating system refused for lack of a right.
    Permission,
    /// This cannot be done here (driver, kernel, file system).
    Unsupported,
    /// A file kept changing while it was read.
    Changed,
    /// The caller asked to stop (Ctrl-C).
    Interrupted,
    /// The target has changes of its own that would be overwritten.
    Conflict,
    /// An argument makes no sense.
    Usage,
    /// Any other failure of the operating system.
    Io,
}

impl Code {
    /// The stable name, as it stands in JSON: `no_store`, `moved`, …
    pub fn name(self) -> &'static str {
        match self {
            Code::NoStore => "no_store",
            Code::StoreExists => "store_exists",
            Code::NewerFormat => "newer_format",
            Code::NotFound => "not_found",
            Code::Ambiguous => "ambiguous",
            Code::Exists => "exists",
            Code::InvalidName => "invalid_name",
            Code::Moved => "moved",
            Code::Busy => "busy",
            Code::Damaged => "damaged",
            Code::NoSpace => "no_space",
            Code::Permission => "permission",
            Code::Unsupported => "unsupported",
            Code::Changed => "changed",
            Code::Interrupted => "interrupted",
            Code::Conflict => "conflict",
            Code::Usage => "usage",
            Code::Io => "io",
        }
    }
}

/// An error of the core. `message` is a full sentence that names the cause and the next step.
#[derive(Debug)]
pub struct Error {
    /// What callers branch on.
    pub code: Code,
    /// A full sentence for people.
    pub message: String,
    /// The system's error below it, if there is one.
    pub source: Option<io::Error>,
}

/// The result of everything in the core.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error with a code and a sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Error { code, message: message.into(), source: None }
    }

    /// Stored bytes that are not what they should be.
    pub fn damaged(message: impl Into<String>) -> Self {
        Error::new(Code::Damaged, message)
    }

    /// A failed system call on a path: `doing` completes "atoll could not …".
    pub fn io(doing: &str, path: &Path, source: io::Error) -> Self {
        let code = code_of(&source);
        let message = format!("atoll could not {doing} {}: {source}.", path.display());
        Error { code, message, source: Some(source) }
    }
}

fn code_of(source: &io::Error) -> Code {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::NoSpace,
        io::ErrorKind::PermissionDenied => Code::Permission,
        io::ErrorKind::NotFound => Code::NotFound,
        io::ErrorKind::ResourceBusy => Code::Busy,
        _ => Code::Io,
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Error { code: code_of(&source), message: source.to_string(), source: Some(source) }
    }
}
