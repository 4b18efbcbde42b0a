//! One capture from start to end.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::os::fd::AsFd;
use std::path::Path;

use atoll_store::tree::{ContentSum, Time, TreeView, edit};
use atoll_store::{Code, Commit, Error, Objects, Result, Store, Writer};

use super::edits::{edits, records};
use super::index::{self, Index};
use super::keys::Keys;
use super::links::Links;
use super::live::{Patience, settle};
use super::looked::Looked;
use super::plan::{Mapped, Plan, Trees, Wishes};
use super::read::{Facts, Source, read};
use super::{Notes, OverlayCapture, OverlayCaptured, PendingIndex};
use crate::import::{Captured, Report};
use crate::maps;
use crate::progress::{Progress, check};
use crate::scan::{Scan, ScanOptions, coarse_now, threads};

/// Everything that a capture needs.
pub(super) struct Capture<'a> {
    options: &'a OverlayCapture<'a>,
    progress: &'a dyn Progress,
    writer: Writer,
    base: Commit,
    head: Commit,
    /// Taken before anything was looked at: a change from then on has no earlier ctime.
    start: Time,
    mapped: HashSet<u64>,
    looked: Looked,
    threads: usize,
}

/// What was read before a pass that turned out torn, by the upper's inode numbers.
type Cache = HashMap<u64, Box<Facts>>;

impl<'a> Capture<'a> {
    pub fn new(store: &Store, options: &'a OverlayCapture<'a>, progress: &'a dyn Progress) -> Result<Self> {
        let start = coarse_now();
        Ok(Capture {
            options,
            progress,
            writer: store.writer()?,
            base: store.commit(&options.base)?,
            head: store.commit(&options.head)?,
            start,
            mapped: mapped(options.mountpoint.as_deref())?,
            looked: Looked::default(),
            threads: threads(options.threads),
        })
    }

    /// Captures; `None` when something that the index knows is the lower's again, so that only a capture from
    /// the base (without trust in the index) is right.
    pub fn run(mut self, trust: bool) -> Result<Option<OverlayCaptured>> {
        let options = self.options;
        // What is mapped changes without a trace, under whatever number the overlay shows.
        let looked = options.looked.as_deref().filter(|_| trust && self.mapped.is_empty());
        let scan_options = ScanOptions {
            ignores: None,
            skip_unreadable: false,
            skip_stores: false,
            threads: self.threads,
            progress: self.progress,
        };
        let mut scan = Scan::new(&options.upper, &scan_options)?;
        let root = scan.dirs.get(&b""[..]).map(|dir| dir.stat).ok_or_else(|| gone(&options.upper))?;
        let index = Index::load(&options.index, &options.base, &options.head, &root);
        let trust = trust && index.valid;
        if let Some(path) = looked {
            self.looked = Looked::load(path, &root);
        }
        let mapped = Mapped { shown: &self.mapped, lower: options.lower };
        let mut patience = Patience::new(options.freezer);
        let mut cache = Cache::new();
        let mut report = Report::default();
        let linked_place = options.work.join("index");
        let (mut plan, linked) = loop {
            settle(&mut scan, &scan_options, &mut patience)?;
            let linked = linked(&linked_place, &scan_options)?;
            let listing = linked.as_ref().and_then(|linked| linked.dirs.get(&b""[..]));
            let (mut plan, wanted, more) = Plan::new(&scan, listing, &index, trust, &mapped);
            let mut torn = Torn::default();
            self.read(&scan, wanted, &mut plan, &mut cache, &mut report, &mut torn)?;
            if let Some(linked) = &linked {
                self.read(linked, more, &mut plan, &mut cache, &mut report, &mut torn)?;
            }
            let Some((what, path)) = torn.first() else { break (plan, linked.is_some()) };
            patience.again(what, &path)?;
            cache = plan.facts().map(|facts| (facts.stat.ino, facts)).collect();
            drop(plan);
            scan.read_again(torn.folders, &scan_options)?;
        };
        drop(cache);
        patience.freeze.thaw()?;
        log::debug!("captured {} folders, index of hard links: {linked}", plan.dirs.len());
        check(self.progress)?;

        let objects: &dyn Objects = &self.writer;
        let base = TreeView::new(objects, self.base.record.root);
        let head = TreeView::new(objects, self.head.record.root);
        let from = if trust { &self.head } else { &self.base };
        let trees = Trees { base, head, from: TreeView::new(objects, from.record.root), ids: options.lower };
        let mut keys = Keys::new(base, head, &index, &options.workspace, &options.base, options.seed)?;
        plan.identify(&trees, &index, &mut keys)?;
        let links = Links::new(&plan, &trees, &index)?;
        if links.reverted && trust {
            return Ok(None);
        }
        let edits = edits(&plan, &links, trees, objects, &mut keys)?;
        let record = &from.record;
        let (mut tree, mut content, mut summary) = (record.root, record.content, record.summary);
        if !edits.is_empty() {
            tree = edit(&self.writer, Some(record.root), edits)?;
            let old = Some((record.root, record.content, record.summary));
            (content, summary) = ContentSum::update(objects, old, tree)?;
        }
        if let Some(path) = looked.filter(|_| report.read_files > 0)
            && let Err(error) = Looked::save(path, &root, &plan, self.start, &self.writer)
        {
            // A look needs no place to write to; the next one reads again.
            log::debug!("{error}");
        }
        let records = records(&plan, &mapped, self.start);
        let pending = PendingIndex {
            bytes: index::encode(&options.base, &root, keys.random(), records, &index),
            path: options.index.clone(),
        };
        report.files = summary.files + summary.others;
        report.dirs = summary.dirs;
        report.unchanged = plan.files.iter().filter(|file| file.facts.is_none()).count() as u64;
        report.changed = tree != self.head.record.root && objects.hash(tree)? != self.head.tree;
        let notes = Notes {
            passes: patience.passes,
            frozen: patience.freeze.used,
            mapped: plan.files.iter().filter(|file| mapped.has(file.stat.ino, file.key)).count() as u64,
            index_used: trust,
        };
        drop(plan);
        let captured =
            Captured { root: tree, content, summary, writer: self.writer, report, meta: BTreeMap::new() };
        Ok(Some(OverlayCaptured { captured, index: pending, notes }))
    }

    fn source<'b>(&'b self, scan: &'b Scan) -> Source<'b> {
        Source { root: scan.root.as_fd(), shown: &scan.folder, writer: &self.writer, looked: &self.looked }
    }

    /// Reads what is wanted, but for what the cache has in the same state.
    fn read(
        &self,
        scan: &Scan,
        wanted: Wishes,
        plan: &mut Plan<'_>,
        cache: &mut Cache,
        report: &mut Report,
        torn: &mut Torn,
    ) -> Result<()> {
        let mut wishes = Vec::with_capacity(wanted.len());
        let mut targets = Vec::with_capacity(wanted.len());
        for (wish, target) in wanted {
            match cache.remove(&wish.stat.ino) {
                Some(facts) if facts.stat.same_state(&wish.stat) => plan.give(target, facts),
                _ => {
                    wishes.push(wish);
                    targets.push(target);
                }
            }
        }
        let reads = read(&self.source(scan), &wishes, self.threads, self.progress)?;
        report.read_files += reads.files;
        report.read_bytes += reads.bytes;
        for (facts, target) in reads.facts.into_iter().zip(targets) {
            if let Some(facts) = facts {
                plan.give(target, facts);
            }
        }
        torn.folders.extend(reads.torn);
        torn.files.extend(reads.restless);
        Ok(())
    }
}

/// What makes another pass necessary.
#[derive(Default)]
struct Torn {
    folders: BTreeSet<Box<[u8]>>,
    files: Vec<Vec<u8>>,
}

impl Torn {
    fn first(&self) -> Option<(&'static str, Vec<u8>)> {
        let folder = self.folders.first().map(|path| ("folder", path.to_vec()));
        folder.or_else(|| self.files.first().map(|path| ("file", path.clone())))
    }
}

/// The inode numbers, as the overlay shows them, of its files that are mapped shared and writable.
fn mapped(mountpoint: Option<&Path>) -> Result<HashSet<u64>> {
    let Some(mountpoint) = mountpoint else { return Ok(HashSet::new()) };
    let stat = rustix::fs::stat(mountpoint)
        .map_err(|error| Error::io("look at the workspace's mount point", mountpoint, error.into()))?;
    Ok(maps::writable_shared(stat.st_dev)?.into_iter().map(|(_, ino)| ino).collect())
}

/// The listing of the index folder: inherited files with several names that were copied up.
fn linked(place: &Path, options: &ScanOptions<'_>) -> Result<Option<Scan>> {
    match Scan::new(place, options) {
        Ok(scan) => Ok(Some(scan)),
        Err(error) if error.code == Code::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn gone(upper: &Path) -> Error {
    let text = format!("The workspace's upper folder {} is gone.", upper.display());
    Error::new(Code::NotFound, text)
}
