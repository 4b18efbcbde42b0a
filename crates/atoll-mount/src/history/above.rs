//! What stands above the trees: `branches`, `commits`, `tags`, with symbolic links that say where things are.
//!
//! Everything that moves is a link: a folder below `commits` never changes. A link's node id says its target
//! too, so that a moved branch is another node, and no cache has to be told.

use std::collections::HashMap;
use std::time::Duration;

use atoll_fuse::abi::Attr;
use atoll_fuse::{DirSink, Entry, Errno, FOREVER, Reply};
use atoll_store::store::RefName;
use atoll_store::{Error, Hash, Ino};
use bytes::Bytes;
use parking_lot::RwLock;

use super::source::Source;
use super::tree::{InTree, errno};
use super::trees::Trees;
use super::{Side, ids};
use crate::stat;

/// At least so many digits of a commit's id find its folder.
const MIN_DIGITS: usize = 12;
/// So many links are remembered; one that was forgotten is asked for by its name again.
const REMEMBERED: usize = 1 << 16;

/// A node above the trees.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Node {
    Root,
    Commits,
    /// The folder of the branches (or tags) whose names begin so; `""` has them all.
    Refs(Kind, Box<str>),
    Link(Bytes),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Branch,
    Tag,
}

impl Kind {
    fn name(self, name: &str) -> RefName {
        match self {
            Kind::Branch => RefName::Branch(name.to_owned()),
            Kind::Tag => RefName::Tag(name.to_owned()),
        }
    }

    fn of(name: &RefName) -> (Kind, &str) {
        match name {
            RefName::Branch(name) => (Kind::Branch, name),
            RefName::Tag(name) => (Kind::Tag, name),
        }
    }

    fn folder(self) -> u64 {
        match self {
            Kind::Branch => ids::BRANCHES,
            Kind::Tag => ids::TAGS,
        }
    }
}

/// The nodes above the trees of one mount.
pub(super) struct Above {
    side: Side,
    /// Hashed ids that were given out.
    known: RwLock<HashMap<u64, Node>>,
}

impl Above {
    pub fn new(side: Side) -> Self {
        Above { side, known: RwLock::default() }
    }

    fn node(&self, id: u64) -> Reply<Node> {
        Ok(match id {
            ids::ROOT => Node::Root,
            ids::COMMITS => Node::Commits,
            ids::BRANCHES => Node::Refs(Kind::Branch, "".into()),
            ids::TAGS => Node::Refs(Kind::Tag, "".into()),
            // After a restart the kernel may ask for a link by its id: ESTALE has it ask by name.
            _ => self.known.read().get(&id).cloned().ok_or(Errno::ESTALE)?,
        })
    }

    fn id(&self, node: Node) -> u64 {
        let id = match &node {
            Node::Root => return ids::ROOT,
            Node::Commits => return ids::COMMITS,
            Node::Refs(kind, prefix) if prefix.is_empty() => return kind.folder(),
            Node::Refs(kind, prefix) => ids::hashed(format!("folder {kind:?} {prefix}").as_bytes()),
            Node::Link(target) => ids::hashed(&[b"link ", &target[..]].concat()),
        };
        if !self.known.read().contains_key(&id) {
            let mut known = self.known.write();
            if known.len() >= REMEMBERED {
                known.clear();
            }
            known.insert(id, node);
        }
        id
    }

    fn entry(&self, source: &dyn Source, node: Node) -> Reply<Entry> {
        let fixed = matches!(&node, Node::Root | Node::Commits)
            || matches!(&node, Node::Refs(_, prefix) if prefix.is_empty());
        let valid = if fixed { FOREVER } else { Duration::ZERO };
        let id = self.id(node.clone());
        let (attr, attr_valid) = self.attr(source, id, &node)?;
        Ok(Entry { node: id, generation: 0, attr, valid, attr_valid })
    }

    fn attr(&self, source: &dyn Source, id: u64, node: &Node) -> Reply<(Attr, Duration)> {
        let (mtime, nsec) = stat::time(source.changed().map_err(|error| fail(&error))?);
        let mut attr = Attr {
            ino: Ino::from_key(id).map_or(id, Ino::shown),
            atime: mtime,
            mtime,
            ctime: mtime,
            atimensec: nsec,
            mtimensec: nsec,
            ctimensec: nsec,
            mode: (4 << 12) | 0o555,
            nlink: 2,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            blksize: 4096,
            ..Attr::default()
        };
        Ok(match node {
            Node::Link(target) => {
                attr.mode = (10 << 12) | 0o777;
                attr.nlink = 1;
                attr.size = target.len() as u64;
                (attr, FOREVER)
            }
            // The kernel drops its copy of a listing when the mtime moved, so it has to look.
            _ => (attr, Duration::ZERO),
        })
    }

    pub fn getattr(&self, source: &dyn Source, id: u64) -> Reply<(Attr, Duration)> {
        self.attr(source, id, &self.node(id)?)
    }

    pub fn readlink(&self, id: u64) -> Reply<Bytes> {
        match self.node(id)? {
            Node::Link(target) => Ok(target),
            _ => Err(Errno::EINVAL),
        }
    }

    /// The root's entry, for handles.
    pub fn root(&self, source: &dyn Source) -> Reply<Entry> {
        self.entry(source, Node::Root)
    }

    /// The entry of `commits`: what `..` of a commit's folder is.
    pub fn commits(&self, source: &dyn Source) -> Reply<Entry> {
        self.entry(source, Node::Commits)
    }

    pub fn lookup(&self, source: &dyn Source, trees: &Trees, dir: u64, name: &[u8]) -> Reply<Entry> {
        let node = self.node(dir)?;
        match (&node, name) {
            (_, b"." | b"/") => self.entry(source, node),
            (Node::Link(_), _) => Err(Errno::ENOTDIR),
            (Node::Refs(kind, prefix), b"..") if !prefix.is_empty() => {
                let above = prefix.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _)| above);
                let above = if above.is_empty() { String::new() } else { format!("{above}/") };
                self.entry(source, Node::Refs(*kind, above.into()))
            }
            (_, b"..") => self.root(source),
            (Node::Root, b"commits") => self.entry(source, Node::Commits),
            (Node::Root, b"branches") => self.entry(source, Node::Refs(Kind::Branch, "".into())),
            (Node::Root, b"tags") => self.entry(source, Node::Refs(Kind::Tag, "".into())),
            (Node::Root, _) => Ok(Entry::none(FOREVER)),
            (Node::Commits, _) => self.lookup_commit(source, trees, name),
            (Node::Refs(kind, prefix), _) => self.lookup_ref(source, *kind, prefix, name),
        }
    }

    /// A commit by 64 digits is its folder, or a link to it in the other mount; by fewer digits it is a link to
    /// the full id: a folder may have one name only.
    fn lookup_commit(&self, source: &dyn Source, trees: &Trees, name: &[u8]) -> Reply<Entry> {
        let none = Ok(Entry::none(Duration::ZERO));
        let Ok(digits) = std::str::from_utf8(name) else { return none };
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if !(MIN_DIGITS..=64).contains(&digits.len()) || !digits.bytes().all(hex) {
            return none;
        }
        if digits.len() < 64 {
            return match source.find_commit(digits) {
                Ok(id) => self.entry(source, Node::Link(Bytes::from(id.hex()))),
                Err(_) => none,
            };
        }
        let id = Hash::from_hex(digits).map_err(|error| fail(&error))?;
        let commit = match source.commit(&id) {
            Ok(commit) => commit,
            Err(error) if errno(&error) == Errno::ENOENT => return none,
            Err(error) => return Err(fail(&error)),
        };
        let side = Side::of(&commit);
        if side != self.side {
            let target = format!("../../{}/commits/{digits}", side.folder());
            return self.entry(source, Node::Link(Bytes::from(target)));
        }
        let tree = trees.of_commit(source, &id).map_err(|error| fail(&error))?;
        InTree { source, tree }.entry_of(Ino::ROOT)
    }

    fn lookup_ref(&self, source: &dyn Source, kind: Kind, prefix: &str, name: &[u8]) -> Reply<Entry> {
        let none = Ok(Entry::none(Duration::ZERO));
        let Ok(name) = std::str::from_utf8(name) else { return none };
        let full = format!("{prefix}{name}");
        if let Some(id) = source.get_ref(&kind.name(&full)).map_err(|error| fail(&error))? {
            return self.entry(source, Node::Link(link(prefix, &id)));
        }
        let folder = format!("{full}/");
        let refs = source.refs().map_err(|error| fail(&error))?;
        let below =
            |name: &RefName| matches!(Kind::of(name), (k, name) if k == kind && name.starts_with(&folder));
        match refs.iter().any(|(name, _)| below(name)) {
            true => self.entry(source, Node::Refs(kind, folder.into())),
            false => none,
        }
    }

    pub fn readdir(
        &self,
        source: &dyn Source,
        trees: &Trees,
        dir: u64,
        offset: u64,
        sink: &mut DirSink<'_>,
    ) -> Reply<()> {
        let mut names: Vec<(String, u32)> = vec![(".".into(), 4), ("..".into(), 4)];
        match self.node(dir)? {
            Node::Link(_) => return Err(Errno::ENOTDIR),
            Node::Root => names.extend(["branches", "commits", "tags"].map(|name| (name.into(), 4))),
            Node::Commits => names.extend(self.list_commits(source, trees)?),
            Node::Refs(kind, prefix) => names.extend(list_refs(source, kind, &prefix)?),
        }
        for (at, (name, kind)) in names.iter().enumerate().skip(offset as usize) {
            // Names alone: a listing of `commits` must not give every commit a slot.
            let ino = ids::hashed(name.as_bytes());
            if !sink.add(ino, at as u64 + 1, *kind, name.as_bytes(), None) {
                break;
            }
        }
        Ok(())
    }

    /// The commits that refs name, and those that were looked at.
    fn list_commits(&self, source: &dyn Source, trees: &Trees) -> Reply<Vec<(String, u32)>> {
        let refs = source.refs().map_err(|error| fail(&error))?;
        let mut ids: Vec<Hash> = refs.iter().map(|(_, state)| state.commit).chain(trees.commits()).collect();
        ids.sort_unstable();
        ids.dedup();
        // Folder or link: it is not worth reading each commit to say.
        Ok(ids.iter().map(|id| (id.hex(), 0)).collect())
    }
}

/// The names directly below a folder of refs.
fn list_refs(source: &dyn Source, kind: Kind, prefix: &str) -> Reply<Vec<(String, u32)>> {
    let mut names: Vec<(String, u32)> = Vec::new();
    for (name, _) in source.refs().map_err(|error| fail(&error))? {
        let (of, name) = Kind::of(&name);
        let Some(rest) = name.strip_prefix(prefix).filter(|_| of == kind) else { continue };
        let (name, kind) = rest.split_once('/').map_or((rest, 10), |(folder, _)| (folder, 4));
        if names.last().is_none_or(|(last, _)| last != name) {
            names.push((name.to_owned(), kind));
        }
    }
    names.sort();
    names.dedup_by(|a, b| a.0 == b.0);
    Ok(names)
}

/// From a folder of refs to a commit's folder.
fn link(prefix: &str, id: &Hash) -> Bytes {
    let up = "../".repeat(prefix.matches('/').count() + 1);
    Bytes::from(format!("{up}commits/{}", id.hex()))
}

fn fail(error: &Error) -> Errno {
    let errno = errno(error);
    if errno != Errno::ENOENT {
        log::error!("The history mount could not look something up: {error}");
    }
    errno
}
