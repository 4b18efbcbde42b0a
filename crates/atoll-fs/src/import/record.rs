//! What an import leaves in its commit for the next import of the same folder.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use atoll_store::tree::Time;
use atoll_store::{Commit, Hash, Ino, NewCommit, Result, Store};
use serde_json::{Value, json};

/// The commit's metadata `import`: whose stat data the tree's inodes have, and up to when it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportRecord {
    /// The folder, absolute, without links.
    pub folder: PathBuf,
    /// When the import began, by the file systems' clock.
    pub started: Time,
    /// The folder's device, for people: device numbers change with a reboot, so nothing depends on it.
    pub dev: u64,
    /// Files that were mapped shared and writable: their stat data says nothing.
    pub mapped: Vec<Ino>,
}

impl ImportRecord {
    /// The metadata's key.
    pub const KEY: &'static str = "import";

    /// The JSON text.
    pub fn to_json(&self) -> String {
        let bytes = self.folder.as_os_str().as_bytes();
        let mut record = json!({
            "folder": String::from_utf8_lossy(bytes),
            "started_ns": self.started.sec * 1_000_000_000 + i64::from(self.started.nsec),
            "dev": self.dev,
        });
        if std::str::from_utf8(bytes).is_err() {
            // JSON holds no such bytes; the exact ones stand beside the readable form.
            record["folder_hex"] = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into();
        }
        if !self.mapped.is_empty() {
            record["mapped"] = self.mapped.iter().map(|ino| ino.key()).collect::<Vec<_>>().into();
        }
        record.to_string()
    }

    /// From a commit's metadata; `None` when it is no import.
    pub fn of(commit: &NewCommit) -> Option<ImportRecord> {
        Self::from_json(commit.meta.get(Self::KEY)?)
    }

    fn from_json(text: &str) -> Option<ImportRecord> {
        let record: Value = serde_json::from_str(text).ok()?;
        let folder = match record.get("folder_hex").and_then(Value::as_str) {
            Some(hex) => {
                let digits = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
                let bytes: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(digits).collect();
                OsString::from_vec(bytes?)
            }
            None => record.get("folder")?.as_str()?.into(),
        };
        let started = record.get("started_ns")?.as_i64()?;
        let mapped = record.get("mapped").and_then(Value::as_array);
        Some(ImportRecord {
            folder: folder.into(),
            started: Time {
                sec: started.div_euclid(1_000_000_000),
                nsec: started.rem_euclid(1_000_000_000) as u32,
            },
            dev: record.get("dev")?.as_u64()?,
            mapped: mapped
                .into_iter()
                .flatten()
                .filter_map(Value::as_u64)
                .filter_map(Ino::from_key)
                .collect(),
        })
    }

    /// What is known of the folder's last import that found exactly the tree of `commit`, of which `self` is the
    /// record: a later one that therefore made no commit knows more files for certain.
    pub(super) fn newest(self, store: &Store, commit: &Commit) -> Result<ImportRecord> {
        let seen = store.seen(self.folder.as_os_str().as_bytes(), &commit.tree)?;
        let seen = seen.as_deref().and_then(Self::from_json).filter(|seen| seen.is_of(&self.folder));
        Ok(seen.filter(|seen| seen.started > self.started).unwrap_or(self))
    }

    /// Remembers an import that found exactly the tree of `commit` and read files for that, which the next need not.
    pub(super) fn remember(store: &Store, commit: &Commit, json: &str) -> Result<()> {
        match Self::from_json(json) {
            Some(record) => store.put_seen(record.folder.as_os_str().as_bytes(), &commit.tree, json),
            None => Ok(()),
        }
    }

    /// Whether it was this folder.
    pub fn is_of(&self, folder: &Path) -> bool {
        self.folder == folder
    }
}

/// The newest import of `folder` (bytes of an absolute path without links) on the first-parent line from `head`.
pub fn last_import(store: &Store, head: &Hash, folder: &[u8]) -> Result<Option<Hash>> {
    let mut next = Some(*head);
    while let Some(id) = next {
        let commit = store.commit(&id)?;
        let record = ImportRecord::of(&commit.record);
        if record.is_some_and(|record| record.folder.as_os_str().as_bytes() == folder) {
            return Ok(Some(id));
        }
        next = commit.record.parents.first().copied();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use atoll_store::{Num, Summary, tree::ContentSum};

    #[test]
    fn a_record_comes_back_from_its_json() {
        for folder in [&b"/home/me/app"[..], b"/tmp/\xff\xfe/x", "/ä/\"q\"".as_bytes()] {
            let record = ImportRecord {
                folder: OsString::from_vec(folder.to_vec()).into(),
                started: Time { sec: 1_790_000_000, nsec: 7 },
                dev: 64513,
                mapped: vec![Ino::new(77, 9)],
            };
            let commit = NewCommit {
                root: Num(1),
                content: ContentSum::default(),
                summary: Summary::default(),
                parents: Vec::new(),
                author: String::new(),
                time: Time::default(),
                utc_offset: 0,
                message: String::new(),
                meta: BTreeMap::from([(ImportRecord::KEY.into(), record.to_json())]),
            };
            assert_eq!(ImportRecord::of(&commit), Some(record));
        }
    }
}
