//! What the caller asks for.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

/// Bytes in JSON: a text whose characters U+0000 to U+00FF each stand for one byte, since arguments,
/// environment and paths need not be UTF-8.
fn bytes_of(text: &str) -> Vec<u8> {
    text.chars().map(|c| c as u32 as u8).collect()
}

pub(super) fn os_string<'de, D: Deserializer<'de>>(from: D) -> Result<OsString, D::Error> {
    Ok(OsString::from_vec(bytes_of(&String::deserialize(from)?)))
}

fn path<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    os_string(from).map(PathBuf::from)
}

fn maybe_path<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.map(|text| PathBuf::from(OsString::from_vec(bytes_of(&text)))))
}

fn os_strings<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<OsString>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    Ok(texts.iter().map(|text| OsString::from_vec(bytes_of(text))).collect())
}

fn pairs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(OsString, OsString)>, D::Error> {
    let texts = Vec::<(String, String)>::deserialize(from)?;
    let pair = |(name, value): &(String, String)| {
        (OsString::from_vec(bytes_of(name)), OsString::from_vec(bytes_of(value)))
    };
    Ok(texts.iter().map(pair).collect())
}

/// One run of one command. In JSON, paths, arguments and environment are texts of bytes (one character U+0000 to
/// U+00FF for each byte).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// The command and its arguments.
    #[serde(deserialize_with = "os_strings")]
    pub command: Vec<OsString>,
    /// The workspace's folder on the host.
    #[serde(deserialize_with = "path")]
    pub workspace: PathBuf,
    /// Where the command sees it; `None` leaves it where it is.
    #[serde(default, deserialize_with = "maybe_path")]
    pub at: Option<PathBuf>,
    /// The folder the command starts in, as the command sees it.
    #[serde(deserialize_with = "path")]
    pub cwd: PathBuf,
    /// Environment set on top of the launcher's own.
    #[serde(default, deserialize_with = "pairs")]
    pub env: Vec<(OsString, OsString)>,
    /// Host files and folders shown read-only.
    #[serde(default)]
    pub passes: Vec<Pass>,
    /// Seconds until the command is asked to end.
    #[serde(default)]
    pub timeout_s: Option<f64>,
    /// Seconds between asking a command to end and ending it.
    #[serde(default = "ten")]
    pub grace_s: f64,
    /// What the command and all it starts may use together.
    #[serde(default)]
    pub limits: Limits,
    /// Let processes that the command leaves behind go on.
    #[serde(default)]
    pub detach_children: bool,
    /// The inherited file for events.
    pub report_fd: i32,
    /// The store's folder of this workspace (`workspaces/ID`): `runs/PID.json` is kept in it while the command
    /// runs, so that capture can freeze it and unmount can name it.
    #[serde(default, deserialize_with = "maybe_path")]
    pub state_dir: Option<PathBuf>,
}

fn ten() -> f64 {
    10.0
}

/// A host file or folder shown read-only.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pass {
    /// On the host.
    #[serde(deserialize_with = "path")]
    pub source: PathBuf,
    /// As the command sees it.
    #[serde(deserialize_with = "path")]
    pub target: PathBuf,
}

/// What the command and all it starts may use together; they need a cgroup.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Bytes.
    #[serde(default)]
    pub memory: Option<u64>,
    /// Processors: 1.5 is one and a half.
    #[serde(default)]
    pub cpus: Option<f64>,
    /// Processes and threads.
    #[serde(default)]
    pub pids: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn arguments_need_not_be_utf8() {
        let text =
            r#"{"command": ["echo", "\u00ff\u0080a"], "workspace": "/w", "cwd": "/w", "report_fd": 4}"#;
        let spec: Spec = serde_json::from_str(text).unwrap();
        assert_eq!(spec.command[1].as_bytes(), b"\xff\x80a");
        assert_eq!(spec.at, None);
        assert_eq!(spec.grace_s, 10.0);
    }

    #[test]
    fn an_unknown_setting_is_refused() {
        let text = r#"{"command": [], "workspace": "/w", "cwd": "/w", "report_fd": 4, "tiemout_s": 1}"#;
        assert!(serde_json::from_str::<Spec>(text).is_err());
    }
}
