//! Which names come and go, and which files have none left.

use std::collections::{BTreeMap, HashMap, HashSet};

use atoll_store::tree::{Dirent, FileType};
use atoll_store::{Ino, Result};

use super::index::Index;
use super::plan::{Child, Plan, Trees};

/// A name: its folder and itself.
pub(super) type Link = (Ino, Box<[u8]>);

/// What changes between the names of `from` and the merged view.
#[derive(Default)]
pub(super) struct Links {
    /// By file: names that go.
    pub removed: HashMap<Ino, Vec<Link>>,
    /// By file: names that come.
    pub added: HashMap<Ino, Vec<Link>>,
    /// Files that have no name any more, and all that was below such folders.
    pub dead: HashSet<Ino>,
    /// The folders' entries that change.
    pub dirents: Vec<(Ino, Box<[u8]>, Option<Dirent>)>,
    /// Of each folder that was compared: how many folders it holds.
    pub subdirs: HashMap<Ino, u32>,
    /// New file to the one of `from` that has its name there.
    pub replaces: HashMap<Ino, Ino>,
    /// Something that the last capture saw copied up is the lower's again: then `from` cannot be trusted.
    pub reverted: bool,
}

impl Links {
    /// Compares every folder that was read.
    pub fn new(plan: &Plan<'_>, trees: &Trees<'_>, index: &Index) -> Result<Links> {
        let mut links = Links::default();
        let missing = missing(plan, index);
        for at in 0..plan.dirs.len() {
            if plan.dirs[at].facts.is_some() {
                links.compare(plan, at, trees, &missing)?;
            }
        }
        links.bury(trees)?;
        // What was copied up and is not in the upper any more has to be gone from the tree too.
        for ino in missing {
            if !links.dead.contains(&ino) && trees.from.inode(ino)?.is_some() {
                links.reverted = true;
            }
        }
        Ok(links)
    }

    fn compare(
        &mut self,
        plan: &Plan<'_>,
        at: usize,
        trees: &Trees<'_>,
        missing: &HashSet<Ino>,
    ) -> Result<()> {
        let dir = &plan.dirs[at];
        let before = if dir.new { Vec::new() } else { trees.from.readdir(dir.key)? };
        let after = merged(plan, at, trees)?;
        // A folder that took another's place: its files take the places of the other's.
        let twin = match self.replaces.get(&dir.key) {
            Some(old) if dir.new => trees.from.readdir(*old)?,
            _ => Vec::new(),
        };
        for (name, now) in &after {
            if let Ok(old) = twin.binary_search_by(|(have, _)| have.cmp(name)) {
                self.replaces.insert(now.ino, twin[old].1.ino);
            }
        }
        let subdirs = after.values().filter(|now| now.kind == FileType::Dir).count();
        self.subdirs.insert(dir.key, subdirs as u32);
        self.reverted |= after.values().any(|now| missing.contains(&now.ino));
        let mut cookies = Cookies::new(dir.key, &before, &after, trees)?;
        for (name, old) in &before {
            let now = after.get(name);
            if now.is_some_and(|now| now.ino == old.ino) {
                continue;
            }
            self.removed.entry(old.ino).or_default().push((dir.key, name.clone()));
            let dirent = now.map(|now| {
                self.replaces.insert(now.ino, old.ino);
                self.added.entry(now.ino).or_default().push((dir.key, name.clone()));
                cookies.give(name, now, Some(old.cookie))
            });
            self.dirents.push((dir.key, name.clone(), dirent));
        }
        for (name, now) in &after {
            if before.binary_search_by(|(have, _)| have.cmp(name)).is_err() {
                self.added.entry(now.ino).or_default().push((dir.key, name.clone()));
                self.dirents.push((dir.key, name.clone(), Some(cookies.give(name, now, None))));
            }
        }
        Ok(())
    }

    /// Finds what has no name left, down through the folders among it.
    fn bury(&mut self, trees: &Trees<'_>) -> Result<()> {
        let mut look: Vec<Ino> = self.removed.keys().copied().collect();
        while let Some(ino) = look.pop() {
            if self.dead.contains(&ino) || self.names(ino, trees)? > 0 {
                continue;
            }
            self.dead.insert(ino);
            if trees.from.inode(ino)?.is_some_and(|inode| inode.kind == FileType::Dir) {
                for (name, dirent) in trees.from.readdir(ino)? {
                    self.removed.entry(dirent.ino).or_default().push((ino, name));
                    look.push(dirent.ino);
                }
            }
        }
        Ok(())
    }

    /// How many names a file of `from` has now.
    pub fn names(&self, ino: Ino, trees: &Trees<'_>) -> Result<usize> {
        let count = |links: &HashMap<Ino, Vec<Link>>| links.get(&ino).map_or(0, Vec::len);
        Ok((trees.from.parents(ino)?.len() + count(&self.added)).saturating_sub(count(&self.removed)))
    }
}

/// Readdir positions for names that come: never one that another name of the folder has.
struct Cookies {
    used: HashSet<u64>,
    last: u64,
    /// What the head gave, where the edits start from another tree.
    head: HashMap<Box<[u8]>, Dirent>,
}

impl Cookies {
    fn new(
        dir: Ino,
        before: &[(Box<[u8]>, Dirent)],
        after: &BTreeMap<Box<[u8]>, Dirent>,
        trees: &Trees<'_>,
    ) -> Result<Cookies> {
        let stays =
            |(name, old): &&(Box<[u8]>, Dirent)| after.get(name).is_some_and(|now| now.ino == old.ino);
        let used = before.iter().filter(stays).map(|(_, old)| old.cookie).collect();
        let mut last = before.iter().map(|(_, old)| old.cookie).max().unwrap_or(0);
        let mut head = HashMap::new();
        if trees.from.root != trees.head.root {
            for (name, dirent) in trees.head.readdir(dir)? {
                last = last.max(dirent.cookie);
                head.insert(name, dirent);
            }
        }
        Ok(Cookies { used, last, head })
    }

    /// The entry with its position: the base's, the head's, that of the name that it replaces, or the next one.
    fn give(&mut self, name: &[u8], now: &Dirent, replaced: Option<u64>) -> Dirent {
        let known = self.head.get(name).filter(|known| known.ino == now.ino).map(|known| known.cookie);
        let base = Some(now.cookie).filter(|cookie| *cookie > 0);
        let mut candidates = base.into_iter().chain(known).chain(replaced);
        let free = candidates.find(|cookie| !self.used.contains(cookie));
        let cookie = free.unwrap_or_else(|| {
            self.last += 1;
            self.last
        });
        self.used.insert(cookie);
        Dirent { cookie, ..*now }
    }
}

/// The names that the overlay shows in a folder of the upper; cookies are the base's, or still to be given (0).
fn merged(plan: &Plan<'_>, at: usize, trees: &Trees<'_>) -> Result<BTreeMap<Box<[u8]>, Dirent>> {
    let dir = &plan.dirs[at];
    let mut names = BTreeMap::new();
    for (name, dirent) in dir.lower.map_or(Ok(Vec::new()), |lower| trees.base.readdir(lower))? {
        names.insert(name, dirent);
    }
    for (entry, child) in dir.scan.entries.iter().zip(&dir.children) {
        let found = match *child {
            Child::Whiteout => None,
            Child::Dir(at) => Some((plan.dirs[at].key, FileType::Dir)),
            Child::File(at) => plan.files[at].key.map(|key| (key, entry.stat.kind)),
        };
        match found {
            Some((ino, kind)) => {
                let lower = names.get(&entry.name).filter(|lower| lower.ino == ino);
                let cookie = lower.map_or(0, |lower| lower.cookie);
                names.insert(entry.name.clone(), Dirent { ino, kind, cookie })
            }
            None => names.remove(&entry.name),
        };
    }
    Ok(names)
}

/// What the last capture saw copied up, and the upper does not have any more.
fn missing(plan: &Plan<'_>, index: &Index) -> HashSet<Ino> {
    let mut missing: HashSet<Ino> = index
        .records()
        .filter(|record| record.inherited && !record.retired)
        .filter_map(|record| record.key)
        .collect();
    if !missing.is_empty() {
        for key in plan.dirs.iter().map(|dir| dir.key).chain(plan.files.iter().filter_map(|file| file.key)) {
            missing.remove(&key);
        }
    }
    missing
}
