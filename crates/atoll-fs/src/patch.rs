//! Changes as a patch in git's format, which `git apply --binary` accepts, and their numbers as `--stat` shows
//! them.
//!
//! git knows regular files, their executable bit, and symbolic links; nothing else. A moved folder is told as its
//! files, empty folders and other metadata cannot be told, and what was left out is reported.

mod binary;
mod files;
mod quote;
mod text;

use std::io::Write;

use atoll_store::tree::{Change, FileType, TreeView};
use atoll_store::{Num, Objects, Result};
use bytes::Bytes;
use sha1::{Digest, Sha1};

pub use files::{Entry, FilePair, file_pairs};
use quote::{quoted, tab_if_spaced};
use text::{LineDiff, is_binary};

/// How a patch is written.
#[derive(Debug, Clone, Copy)]
pub struct PatchOptions {
    /// Lines of context around a change.
    pub context: u32,
}

impl Default for PatchOptions {
    fn default() -> Self {
        PatchOptions { context: 3 }
    }
}

/// What a patch could not say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PatchReport {
    /// Changed paths that git has no words for: devices, pipes, sockets, folders, owners, attributes.
    pub left_out: Vec<Vec<u8>>,
}

/// One line of `--stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    /// The path in the new tree (of a deletion: in the old one).
    pub path: Vec<u8>,
    /// The path in the old tree where it is another one.
    pub old_path: Option<Vec<u8>>,
    /// Lines added; 0 for a binary file.
    pub added: u64,
    /// Lines taken away; 0 for a binary file.
    pub deleted: u64,
    /// Whether either side is no text.
    pub binary: bool,
    /// Bytes before (0 when there was no file).
    pub old_size: u64,
    /// Bytes after (0 when there is no file).
    pub new_size: u64,
}

/// Writes the patch that leads from `old` to `new`; `changes` are those between the two trees, or some of them.
///
/// # Errors
/// Those of reading the trees; a failed write.
pub fn write_patch(
    objects: &dyn Objects,
    old: Option<Num>,
    new: Option<Num>,
    changes: &[Change],
    options: PatchOptions,
    out: &mut dyn Write,
) -> Result<PatchReport> {
    let mut report = PatchReport::default();
    let pairs = file_pairs(objects, new, changes, &mut report.left_out)?;
    let sides = Sides { objects, old, new };
    for pair in &pairs {
        write_pair(&sides, pair, options, out)?;
    }
    Ok(report)
}

/// The numbers of `diff --stat`, by path.
///
/// # Errors
/// Those of reading the trees.
pub fn stat(
    objects: &dyn Objects,
    old: Option<Num>,
    new: Option<Num>,
    changes: &[Change],
) -> Result<Vec<FileStat>> {
    let sides = Sides { objects, old, new };
    let mut stats = Vec::new();
    for pair in file_pairs(objects, new, changes, &mut Vec::new())? {
        let size = |entry: &Option<Entry>| entry.as_ref().map_or(0, |entry| entry.inode.size);
        let mut stat = FileStat {
            path: pair.path().to_vec(),
            old_path: pair.old.as_ref().map(|old| old.path.clone()).filter(|old| *old != pair.path()),
            added: 0,
            deleted: 0,
            binary: false,
            old_size: size(&pair.old),
            new_size: size(&pair.new),
        };
        if pair.content_changed {
            let (before, after) = sides.read(&pair)?;
            if before == after && pair.is_in_place() {
                continue;
            }
            stat.binary = is_binary(&before) || is_binary(&after);
            if !stat.binary {
                (stat.added, stat.deleted) = LineDiff::new(&before, &after).counts();
            }
        }
        stats.push(stat);
    }
    Ok(stats)
}

struct Sides<'a> {
    objects: &'a dyn Objects,
    old: Option<Num>,
    new: Option<Num>,
}

impl Sides<'_> {
    fn read(&self, pair: &FilePair) -> Result<(Bytes, Bytes)> {
        Ok((self.read_one(self.old, &pair.old)?, self.read_one(self.new, &pair.new)?))
    }

    fn read_one(&self, root: Option<Num>, entry: &Option<Entry>) -> Result<Bytes> {
        let (Some(root), Some(entry)) = (root, entry) else { return Ok(Bytes::new()) };
        let view = TreeView::new(self.objects, root);
        match entry.inode.kind {
            FileType::Symlink => view.readlink(entry.ino),
            _ => view.read(entry.ino, entry.inode.size, 0..entry.inode.size),
        }
    }
}

fn git_mode(entry: &Entry) -> &'static str {
    match entry.inode.kind {
        FileType::Symlink => "120000",
        _ if entry.inode.mode & 0o100 != 0 => "100755",
        _ => "100644",
    }
}

/// git's name of a blob: `git apply --binary` checks both sides by it.
fn blob_id(bytes: &[u8]) -> String {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()));
    hasher.update(bytes);
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

const NO_BLOB: &str = "0000000000000000000000000000000000000000";

fn write_pair(sides: &Sides<'_>, pair: &FilePair, options: PatchOptions, out: &mut dyn Write) -> Result<()> {
    let old_path = pair.old.as_ref().map_or(pair.path(), |old| &old.path);
    let new_path = pair.new.as_ref().map_or(old_path, |new| &new.path);
    let mut head = Vec::new();
    let mut line = |parts: &[&[u8]]| {
        parts.iter().for_each(|part| head.extend_from_slice(part));
        head.push(b'\n');
    };
    line(&[b"diff --git ", &quoted(b"a/", old_path), b" ", &quoted(b"b/", new_path)]);
    let modes = (pair.old.as_ref().map(git_mode), pair.new.as_ref().map(git_mode));
    match modes {
        (Some(old), Some(new)) if old != new => {
            line(&[b"old mode ", old.as_bytes()]);
            line(&[b"new mode ", new.as_bytes()]);
        }
        (Some(old), None) => line(&[b"deleted file mode ", old.as_bytes()]),
        (None, Some(new)) => line(&[b"new file mode ", new.as_bytes()]),
        _ => {}
    }
    let (before, after) = if pair.content_changed { sides.read(pair)? } else { Default::default() };
    let content_changed =
        before != after || pair.content_changed && (pair.old.is_none() || pair.new.is_none());
    if !content_changed && pair.is_in_place() && modes.0 == modes.1 {
        return Ok(());
    }
    let binary = is_binary(&before) || is_binary(&after);
    let lines = (content_changed && !binary).then(|| LineDiff::new(&before, &after));
    if old_path != new_path {
        let similarity = match &lines {
            _ if !content_changed => 100,
            Some(lines) => lines.similarity(),
            None => 0,
        };
        line(&[b"similarity index ", similarity.to_string().as_bytes(), b"%"]);
        line(&[b"rename from ", &quoted(b"", old_path)]);
        line(&[b"rename to ", &quoted(b"", new_path)]);
    }
    if content_changed {
        let old_id = pair.old.as_ref().map_or(NO_BLOB.to_owned(), |_| blob_id(&before));
        let new_id = pair.new.as_ref().map_or(NO_BLOB.to_owned(), |_| blob_id(&after));
        let mode = match modes {
            (Some(old), Some(new)) if old == new => format!(" {old}"),
            _ => String::new(),
        };
        line(&[b"index ", old_id.as_bytes(), b"..", new_id.as_bytes(), mode.as_bytes()]);
        let name = |prefix: &[u8], entry: &Option<Entry>, path: &[u8]| match entry {
            Some(_) => [&quoted(prefix, path)[..], tab_if_spaced(path)].concat(),
            None => b"/dev/null".to_vec(),
        };
        if before != after && !binary {
            line(&[b"--- ", &name(b"a/", &pair.old, old_path)]);
            line(&[b"+++ ", &name(b"b/", &pair.new, new_path)]);
        }
    }
    out.write_all(&head)?;
    match lines {
        Some(lines) => lines.write(options.context as usize, out)?,
        None if binary && before != after => binary::write(&before, &after, out)?,
        None => {}
    }
    Ok(())
}
