//! What git ignores: `.gitignore` files from the repository's top down, and `.git/info/exclude`. git itself is not
//! asked, since it runs what a repository's settings name. A file that git tracks is not ignored, whatever the
//! patterns say: the index is read for its names.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use atoll_store::Result;
use atoll_store::tree::{FileType, TreeView};

use crate::ignore::Ignores;
use crate::scan::{join, parent};

pub(super) struct Ignored<'a> {
    repository: Option<Repository>,
    target: PathBuf,
    tree: TreeView<'a>,
    /// Patterns that hold in a folder of the target, `None`: the folder itself is ignored.
    folders: HashMap<Vec<u8>, Option<Ignores>>,
}

struct Repository {
    /// The target's path in it.
    prefix: Vec<u8>,
    top: PathBuf,
    tracked: HashSet<Vec<u8>>,
}

impl<'a> Ignored<'a> {
    /// `tree` is the result: a `.gitignore` that comes with it holds where the target has none.
    pub fn new(target: &Path, tree: TreeView<'a>) -> Self {
        let target = target.canonicalize().unwrap_or_else(|_| target.to_path_buf());
        let repository = target.ancestors().find(|dir| dir.join(".git").exists()).map(|top| Repository {
            prefix: target
                .strip_prefix(top)
                .map(|path| path.as_os_str().as_bytes().to_vec())
                .unwrap_or_default(),
            top: top.to_path_buf(),
            tracked: std::fs::read(top.join(".git/index"))
                .ok()
                .and_then(|bytes| tracked(&bytes))
                .unwrap_or_default(),
        });
        Ignored { repository, target, tree, folders: HashMap::new() }
    }

    pub fn leaves_out(&mut self, path: &[u8], is_dir: bool) -> Result<bool> {
        let Some(repository) = &self.repository else { return Ok(false) };
        let full = join(&repository.prefix, path);
        if repository.tracked.contains(&full) {
            return Ok(false);
        }
        Ok(match self.folder(parent(path))? {
            None => true,
            Some(patterns) => patterns.leaves_out(&full, is_dir),
        })
    }

    fn folder(&mut self, dir: &[u8]) -> Result<Option<Ignores>> {
        if let Some(known) = self.folders.get(dir) {
            return Ok(known.clone());
        }
        let patterns = if dir.is_empty() {
            self.above()?
        } else {
            let prefix =
                self.repository.as_ref().map(|repository| repository.prefix.clone()).unwrap_or_default();
            let above = self.folder(parent(dir))?;
            above.filter(|patterns| !patterns.leaves_out(&join(&prefix, dir), true))
        };
        let patterns = match (patterns, self.text(dir)?) {
            (Some(patterns), Some(text)) => {
                let prefix =
                    self.repository.as_ref().map(|repository| &repository.prefix[..]).unwrap_or_default();
                // A pattern that cannot be understood is one that git does not follow either.
                Some(patterns.with_file(&join(prefix, dir), &text).unwrap_or(patterns))
            }
            (patterns, _) => patterns,
        };
        self.folders.insert(dir.to_vec(), patterns.clone());
        Ok(patterns)
    }

    /// Patterns from above the target.
    fn above(&self) -> Result<Option<Ignores>> {
        let Some(repository) = &self.repository else { return Ok(Some(Ignores::default())) };
        let mut patterns = Ignores::default();
        let exclude = std::fs::read(repository.top.join(".git/info/exclude")).unwrap_or_default();
        patterns = patterns.with_file(b"", &exclude).unwrap_or(patterns);
        let mut dir = Vec::new();
        for name in repository.prefix.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let place = repository.top.join(OsStr::from_bytes(&dir));
            if let Ok(text) = std::fs::read(place.join(".gitignore")) {
                patterns = patterns.with_file(&dir, &text).unwrap_or(patterns);
            }
            dir = join(&dir, name);
            if patterns.leaves_out(&dir, true) {
                return Ok(None);
            }
        }
        Ok(Some(patterns))
    }

    fn text(&self, dir: &[u8]) -> Result<Option<Vec<u8>>> {
        let path = join(dir, b".gitignore");
        if let Ok(text) = std::fs::read(self.target.join(OsStr::from_bytes(&path))) {
            return Ok(Some(text));
        }
        Ok(match self.tree.resolve(&path)? {
            Some((ino, inode)) if inode.kind == FileType::File && inode.size < 1 << 20 => {
                Some(self.tree.read(ino, inode.size, 0..inode.size)?.to_vec())
            }
            _ => None,
        })
    }
}

/// The names in a git index (versions 2 to 4); `None` when it cannot be understood.
fn tracked(bytes: &[u8]) -> Option<HashSet<Vec<u8>>> {
    let number = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if bytes.get(..4)? != b"DIRC" {
        return None;
    }
    let version = number(4).filter(|version| (2..=4).contains(version))?;
    let mut names = HashSet::new();
    let mut name: Vec<u8> = Vec::new();
    let mut at = 12;
    for _ in 0..number(8)? {
        // Stat data and a hash of 20 bytes, or of 32 in a repository of that kind, which is not looked at here.
        let start = at;
        let flags = u16::from_be_bytes(bytes.get(at + 60..at + 62)?.try_into().ok()?);
        at += if flags & 0x4000 != 0 { 64 } else { 62 };
        if version == 4 {
            let mut cut = 0usize;
            loop {
                let byte = *bytes.get(at)?;
                at += 1;
                cut = cut.checked_mul(128)? + usize::from(byte & 0x7f);
                if byte & 0x80 == 0 {
                    break;
                }
                cut += 1;
            }
            name.truncate(name.len().checked_sub(cut)?);
        } else {
            name.clear();
        }
        let length = bytes.get(at..)?.iter().position(|byte| *byte == 0)?;
        name.extend_from_slice(&bytes[at..at + length]);
        at += length + 1;
        if version < 4 {
            at = start + (at - start).div_ceil(8) * 8;
        }
        names.insert(name.clone());
    }
    Some(names)
}
