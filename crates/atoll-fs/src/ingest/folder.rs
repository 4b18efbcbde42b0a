//! From a host folder, which may be in use, to a tree: scan, relate to the base tree, read what is not clean,
//! make sure that nothing moved meanwhile, build.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use atoll_store::tree::{FileType, Time};
use atoll_store::{BirthId, Code, Error, Ino, Num, Result};

use super::Target;
use super::assign::{Assigned, Ids, Node, assign};
use super::base::{Base, Recorded};
use super::build::build;
use super::fast::FastMap;
use super::read::{Content, Outcome, ReadOptions, Wanted, read};
use super::same::unchanged;
use crate::import::{Report, SkipReason};
use crate::scan::{Scan, ScanOptions, coarse_now, join, parent};

/// How often a folder that does not keep still is read again.
const PASSES: u32 = 40;

/// Changes a scan before it is used (leaves something out) and says what contents are stored instead of the
/// host's, by path.
pub type Prepare<'a> = &'a dyn Fn(&mut Scan) -> Result<BTreeMap<Vec<u8>, Vec<u8>>>;

/// How a folder is read.
pub struct FolderOptions<'a> {
    /// How names are read; its threads and progress hold for everything.
    pub scan: ScanOptions<'a>,
    /// See [`Prepare`].
    pub prepare: Prepare<'a>,
    /// Where numbers and birth ids come from; `None` means the system.
    pub seed: Option<u64>,
}

/// A folder that became a tree.
pub struct FolderTree {
    /// The tree's root.
    pub root: Num,
    /// What was seen and done.
    pub report: Report,
    /// When it began, by the file systems' clock: a ctime at or after it is never clean.
    pub started: Time,
    /// The device of the folder.
    pub dev: u64,
    /// Files that were mapped shared and writable: their stat data says nothing.
    pub mapped: Vec<Ino>,
    /// Every file's stat data as it goes with the tree; empty when the tree is an import's own unchanged one,
    /// which has the same.
    pub recorded: Vec<(Ino, Recorded)>,
    /// Files that the host does not have and that were kept.
    pub kept: Vec<Ino>,
}

/// Reads a folder into a tree.
///
/// # Errors
/// `Changed` naming what never kept still; those of the scan, of `prepare` and of reading.
pub fn read_folder(
    target: &Target<'_>,
    base: &(dyn Fn() -> Result<Base> + Sync),
    folder: &Path,
    options: &FolderOptions<'_>,
) -> Result<FolderTree> {
    let started = coarse_now();
    // The base tree is loaded while the folder is scanned: neither needs the other yet.
    let (base, scan) = std::thread::scope(|scope| {
        let base = scope.spawn(base);
        let scan = Scan::new(folder, &options.scan);
        (base.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)), scan)
    });
    let (mut base, mut scan) = (base?, scan?);
    let dev = scan.dirs.get(&b""[..]).map_or(0, |dir| dir.stat.dev);
    let mapped = mapped(&scan, dev)?;
    if mapped.is_empty()
        && let Some(root) = base.root
        && let Some(report) = unchanged_report(&mut scan, &base, options)?
    {
        let (mapped, recorded, kept) = Default::default();
        return Ok(FolderTree { root, report, started, dev, mapped, recorded, kept });
    }
    base.relate();
    let base = &base;
    let mut ids = Ids::new(options.seed)?;
    let mut pass = Pass { base, mapped: &mapped, known: FastMap::default(), contents: FastMap::default() };
    let mut report = Report::default();
    let mut vanished = BTreeSet::new();
    let mut tries = 0;
    let assigned = loop {
        let overrides = (options.prepare)(&mut scan)?;
        let assigned = assign(&scan, base, &mut ids, &mut pass.known);
        let wanted = pass.wanted(&assigned, &overrides);
        let how = ReadOptions { scan: &options.scan, overrides: &overrides };
        let (outcomes, bytes) = read(&scan, target, &wanted, &how)?;
        report.read_bytes += bytes;
        let mut again = BTreeSet::from_iter(assigned.torn.iter().cloned());
        let mut left_out = false;
        for (file, outcome) in wanted.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Read(content) => {
                    report.read_files += u64::from(file.stat.kind == FileType::File);
                    if content.secret {
                        report.secrets.push(join(&file.dir, &file.name));
                    }
                    pass.contents.insert(file.stat.ino, content);
                }
                Outcome::Gone => {
                    vanished.insert(join(&file.dir, &file.name));
                    again.insert(file.dir);
                }
                Outcome::Unreadable => {
                    scan.leave_out(&file.dir, &file.name, SkipReason::Unreadable);
                    left_out = true;
                }
            }
        }
        again.append(&mut scan.unstable()?);
        if again.is_empty() && !left_out {
            report.rewritten = overrides.into_keys().collect();
            break assigned;
        }
        tries += 1;
        if tries > PASSES {
            return Err(restless(&scan, &again));
        }
        settle(tries);
        scan.read_again(with_parents(&scan, again), &options.scan)?;
    };
    let gone = vanished.into_iter().filter(|path| !is_there(&scan, path));
    left_out(&scan, gone.map(|path| (path, SkipReason::Vanished)), &mut report);
    report.secrets.sort();
    report.secrets.dedup();
    let root = build(target, base, &assigned, &pass.contents, &mut report)?;
    report.changed = base.root != Some(root);
    let recorded = assigned.nodes.iter().filter(|node| !node.kept).map(|node| pass.recorded(node)).collect();
    let kept = assigned.nodes.iter().filter(|node| node.kept).map(|node| node.ino).collect();
    let mapped = assigned
        .nodes
        .iter()
        .filter(|node| mapped.contains(&(dev, node.stat.ino)))
        .map(|node| node.ino)
        .collect();
    Ok(FolderTree { root, report, started, dev, mapped, recorded, kept })
}

fn left_out(scan: &Scan, more: impl Iterator<Item = (Vec<u8>, SkipReason)>, report: &mut Report) {
    let (mut skipped, ignored) = scan.left_out();
    skipped.extend(more);
    skipped.sort();
    report.skipped = skipped;
    report.ignored = ignored;
}

/// The report when the folder kept still and certainly equals the base tree, so that nothing is to be read.
fn unchanged_report(scan: &mut Scan, base: &Base, options: &FolderOptions<'_>) -> Result<Option<Report>> {
    if !(options.prepare)(scan)?.is_empty() {
        return Ok(None);
    }
    let Some(counts) = unchanged(scan, base) else { return Ok(None) };
    if !scan.unstable()?.is_empty() {
        return Ok(None);
    }
    let mut report =
        Report { files: counts.files, dirs: counts.dirs, unchanged: counts.files, ..Report::default() };
    left_out(scan, std::iter::empty(), &mut report);
    Ok(Some(report))
}

/// What is kept from one pass over a restless folder to the next.
struct Pass<'a> {
    base: &'a Base,
    mapped: &'a HashSet<(u64, u64)>,
    known: FastMap<u64, (Ino, BirthId)>,
    contents: FastMap<u64, Content>,
}

impl Pass<'_> {
    fn wanted(&self, assigned: &Assigned, overrides: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<Wanted> {
        let paths = Paths::new(&assigned.nodes);
        let mut wanted = Vec::new();
        for (at, node) in assigned.nodes.iter().enumerate().filter(|(_, node)| !node.kept) {
            let rewritten = || overrides.contains_key(&paths.path(at));
            let mapped = self.mapped.contains(&(node.stat.dev, node.stat.ino));
            let clean = node.in_base && !mapped && self.base.is_clean(node.ino, &node.stat);
            if clean && (overrides.is_empty() || !rewritten()) {
                continue;
            }
            // What was read in an earlier pass is at least as new as this pass's stat data, unless that is newer.
            let have = self.contents.get(&node.stat.ino).map(|content| &content.stat);
            if have.is_some_and(|have| have.same_state(&node.stat) || have.ctime > node.stat.ctime) {
                continue;
            }
            let (dir, name) = match node.names.first() {
                Some((dir, name)) => (paths.path(*dir).into(), name.clone()),
                None => Default::default(),
            };
            wanted.push(Wanted { dir, name, stat: node.stat });
        }
        wanted
    }

    fn recorded(&self, node: &Node) -> (Ino, Recorded) {
        let stat = self.contents.get(&node.stat.ino).map_or(&node.stat, |content| &content.stat);
        (node.ino, Recorded::of_host(stat))
    }
}

/// Paths of folders, put together when asked for.
pub(super) struct Paths<'a>(&'a [Node]);

impl<'a> Paths<'a> {
    pub(super) fn new(nodes: &'a [Node]) -> Self {
        Paths(nodes)
    }

    pub(super) fn path(&self, at: usize) -> Vec<u8> {
        let mut names = Vec::new();
        let mut at = at;
        while let Some((dir, name)) = self.0[at].names.first() {
            names.push(&name[..]);
            at = *dir;
        }
        names.reverse();
        names.join(&b'/')
    }
}

/// The files below that somebody has mapped shared and writable. They are synced first: a store into a page
/// that is clean then changes the ctime again.
fn mapped(scan: &Scan, dev: u64) -> Result<HashSet<(u64, u64)>> {
    let mut mapped = crate::maps::writable_shared(dev)?;
    if mapped.is_empty() {
        return Ok(mapped);
    }
    let mut here = HashSet::new();
    for (path, dir) in &scan.dirs {
        for entry in dir.entries.iter().filter(|entry| mapped.contains(&(entry.stat.dev, entry.stat.ino))) {
            here.insert((entry.stat.dev, entry.stat.ino));
            use std::os::fd::AsFd;
            let synced = crate::scan::host::open_dir(scan.root.as_fd(), path)
                .and_then(|dir| crate::scan::host::open_file(&dir, &entry.name))
                .and_then(rustix::fs::fdatasync);
            // What is gone or unreadable by now shows when it is read.
            let _ = synced;
        }
    }
    mapped.retain(|file| here.contains(file));
    Ok(mapped)
}

fn is_there(scan: &Scan, path: &[u8]) -> bool {
    let dir = parent(path);
    let name = path[dir.len()..].strip_prefix(b"/").unwrap_or(path);
    scan.dirs.get(dir).is_some_and(|dir| dir.entries.iter().any(|entry| *entry.name == *name))
}

/// Folders that are to be read again; of one that is gone, the one above it.
fn with_parents(scan: &Scan, paths: BTreeSet<Box<[u8]>>) -> BTreeSet<Box<[u8]>> {
    let mut all = BTreeSet::new();
    for mut path in paths {
        while !path.is_empty() && !scan.dirs.contains_key(&path) {
            path = parent(&path).into();
        }
        all.insert(path);
    }
    all
}

/// Lets the file systems' clock tick, and what writes there come to an end.
fn settle(tries: u32) {
    let before = coarse_now();
    while coarse_now() == before {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(u64::from(tries.saturating_sub(2)).min(20)));
}

fn restless(scan: &Scan, again: &BTreeSet<Box<[u8]>>) -> Error {
    let first = again.first().map_or(&b""[..], |path| path);
    let place = scan.host_path(first);
    Error::new(
        Code::Changed,
        format!(
            "The folder {} kept changing while it was read; stop what writes to it and try again.",
            place.display()
        ),
    )
}
