//! What an import leaves out by patterns: `.atollignore` files and given excludes, in `.gitignore` syntax.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use ::ignore::Match;
use ::ignore::gitignore::{Gitignore, GitignoreBuilder};
use atoll_store::{Code, Error, Result};

/// The file that holds a folder's patterns.
pub const FILE_NAME: &[u8] = b".atollignore";

/// The patterns that hold in a folder: its own, then those of the folders above.
#[derive(Clone, Default)]
pub struct Ignores(Option<Arc<Level>>);

struct Level {
    /// The folder's path with a slash at its end; empty for the root.
    prefix: Vec<u8>,
    patterns: Gitignore,
    /// Given by the caller: they decide before any file's patterns.
    given: bool,
    above: Ignores,
}

impl Ignores {
    /// No patterns but the given ones.
    ///
    /// # Errors
    /// `Usage` naming a pattern that is malformed.
    pub fn new(excludes: &[String]) -> Result<Ignores> {
        if excludes.is_empty() {
            return Ok(Ignores::default());
        }
        let patterns = parse(excludes.iter().map(String::as_str))
            .map_err(|error| Error::new(Code::Usage, format!("An exclude pattern is malformed: {error}.")))?;
        Ok(Ignores(Some(Arc::new(Level {
            prefix: Vec::new(),
            patterns,
            given: true,
            above: Ignores::default(),
        }))))
    }

    /// With the patterns of the `.atollignore` in the folder `dir`.
    ///
    /// # Errors
    /// `Usage` naming the file and the malformed pattern.
    pub fn with_file(&self, dir: &[u8], text: &[u8]) -> Result<Ignores> {
        let text = String::from_utf8_lossy(text);
        let patterns = parse(text.lines()).map_err(|error| {
            let shown = String::from_utf8_lossy(dir);
            let place = if dir.is_empty() { ".atollignore".into() } else { format!("{shown}/.atollignore") };
            Error::new(Code::Usage, format!("{place} holds a malformed pattern: {error}."))
        })?;
        let mut prefix = dir.to_vec();
        if !prefix.is_empty() {
            prefix.push(b'/');
        }
        Ok(Ignores(Some(Arc::new(Level { prefix, patterns, given: false, above: self.clone() }))))
    }

    /// Whether there is any pattern at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether `path` (from the root) is left out. The folders above it are not: whoever asks did not go into
    /// what was left out.
    pub fn leaves_out(&self, path: &[u8], is_dir: bool) -> bool {
        let mut decided = None;
        let mut level = self.0.as_ref();
        while let Some(here) = level {
            level = here.above.0.as_ref();
            if decided.is_some() && !here.given {
                continue;
            }
            let Some(below) = path.strip_prefix(&here.prefix[..]) else { continue };
            match here.patterns.matched(Path::new(OsStr::from_bytes(below)), is_dir) {
                Match::Ignore(_) => decided = Some(true),
                Match::Whitelist(_) => decided = Some(false),
                Match::None => {}
            }
        }
        decided.unwrap_or(false)
    }
}

fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Gitignore, ::ignore::Error> {
    let mut builder = GitignoreBuilder::new("");
    for line in lines {
        builder.add_line(None, line)?;
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearer_patterns_win_and_given_ones_win_over_all() {
        let given = Ignores::new(&["*.tmp".into()]).unwrap();
        let root = given.with_file(b"", b"# comment\n/build/\n*.log\n\n").unwrap();
        let sub = root.with_file(b"a/b", b"!keep.log\n!x.tmp\nlocal\n").unwrap();
        assert!(root.leaves_out(b"build", true));
        assert!(!root.leaves_out(b"build", false), "the pattern names a folder");
        assert!(!root.leaves_out(b"a/build", true), "the pattern is anchored");
        assert!(root.leaves_out(b"a/b/x.log", false));
        assert!(!sub.leaves_out(b"a/b/keep.log", false));
        assert!(sub.leaves_out(b"a/b/other.log", false));
        assert!(sub.leaves_out(b"a/b/x.tmp", false), "given patterns decide first");
        assert!(sub.leaves_out(b"a/b/deep/local", false));
        assert!(!root.leaves_out(b"a/b/local", false));
        assert!(!Ignores::default().leaves_out(b"x", false));
    }

    #[test]
    fn malformed_patterns_are_named() {
        let error = Ignores::new(&["a{".into()]).err().unwrap();
        assert_eq!(error.code, Code::Usage);
    }
}
