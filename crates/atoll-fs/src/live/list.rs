//! Listings of folders, in the order of positions that never change: what is deleted or comes during a listing
//! moves nothing else.

use std::num::NonZeroUsize;
use std::sync::Arc;

use atoll_store::tree::{Dirent, FileType};
use atoll_store::{Ino, Num};
use lru::LruCache;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::node::Name;
use super::{Live, Reply, failed};

/// A name of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Name,
    /// Whose it is.
    pub ino: Ino,
    /// What that is.
    pub kind: FileType,
    /// The listing goes on after it from this plus 1.
    pub cookie: u64,
}

/// A folder of the base, by position.
type Names = Arc<Vec<(u64, Name, Dirent)>>;

/// Listings of the base that were asked for last: one of a large folder is read in many steps.
pub struct Listings(Mutex<LruCache<(Num, Ino), Names>>);

impl Default for Listings {
    fn default() -> Self {
        Listings(Mutex::new(LruCache::new(NonZeroUsize::new(64).expect("not zero"))))
    }
}

impl Live {
    /// Up to `count` names of a folder from the position `from` on (0: the beginning), by position.
    ///
    /// # Errors
    /// ENOENT, ENOTDIR.
    pub fn list(&self, dir: Ino, from: u64, count: usize) -> Reply<Vec<Listed>> {
        let inner = self.inner.lock();
        let node = inner.node(dir)?;
        if node.inode.kind != FileType::Dir {
            return Err(Errno::NOTDIR);
        }
        let base = self.base_listing(&inner, dir)?;
        let changes = inner.state.nodes.get(&dir).and_then(|node| node.dir());
        let start = base.partition_point(|(cookie, ..)| *cookie < from);
        let mut old = base[start..]
            .iter()
            .filter(|(_, name, _)| changes.is_none_or(|dir| dir.get(name).is_none()))
            .map(|(cookie, name, dirent)| (*cookie, name, *dirent))
            .peekable();
        let mut new = changes.into_iter().flat_map(|dir| dir.from(from)).peekable();
        let mut listed = Vec::new();
        while listed.len() < count {
            let next = match (old.peek(), new.peek()) {
                (Some(one), Some(other)) if one.0 < other.0 => old.next(),
                (_, Some(_)) => new.next(),
                _ => old.next(),
            };
            let Some((cookie, name, dirent)) = next else { break };
            listed.push(Listed { name: name.clone(), ino: dirent.ino, kind: dirent.kind, cookie });
        }
        Ok(listed)
    }

    fn base_listing(&self, inner: &super::Inner, dir: Ino) -> Reply<Names> {
        if inner.state.is_new(dir) {
            return Ok(Arc::default());
        }
        let key = (inner.state.base.root, dir);
        if let Some(known) = self.listings.0.lock().get(&key) {
            return Ok(known.clone());
        }
        let mut names: Vec<(u64, Name, Dirent)> = inner
            .state
            .base_names(dir)
            .map_err(failed)?
            .into_iter()
            .map(|(name, dirent)| (dirent.cookie, name.into(), dirent))
            .collect();
        names.sort_unstable_by_key(|(cookie, ..)| *cookie);
        let names = Arc::new(names);
        self.listings.0.lock().put(key, names.clone());
        Ok(names)
    }
}
