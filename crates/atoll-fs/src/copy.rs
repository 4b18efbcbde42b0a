//! The `copy` driver: a plain folder as a workspace, captured by comparing stat data as git's index does.

mod index;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use atoll_store::tree::{Time, TreeView};
use atoll_store::{Commit, Error, Hash, Ino, Result, Store};

use crate::export::{ExportOptions, ExportReport, write_tree};
use crate::import::{Captured, captured};
use crate::ingest::Target;
use crate::ingest::base::{Base, BaseFile, Known, Recorded};
use crate::ingest::folder::{FolderOptions, read_folder};
use crate::progress::Progress;
use crate::scan::{HostStat, Scan, ScanOptions, coarse_now, join, threads};
use index::Index;

/// Writes a commit's tree to `dir` (which must not exist or be empty) and records what the host made of it in
/// the index file. Nothing is shared with the store: its chunks are compressed, so there is nothing to reflink.
///
/// # Errors
/// `Exists` when `dir` has something in it; `NoSpace`.
pub fn materialise(
    store: &Store,
    commit: &Hash,
    dir: &Path,
    index: &Path,
    progress: &dyn Progress,
) -> Result<ExportReport> {
    let tree = TreeView::new(store, store.commit(commit)?.record.root);
    let written = write_tree(tree, Ino::ROOT, dir, &ExportOptions::default(), progress)?;
    let how = ScanOptions {
        ignores: None,
        skip_unreadable: true,
        skip_stores: false,
        threads: threads(0),
        progress,
    };
    let scan = Scan::new(dir, &how)?;
    let mut lost = written.lost_xattrs;
    let mut files = HashMap::new();
    let mut newest = Time { sec: i64::MIN, nsec: 0 };
    let mut note = |ino: Ino, stat: &HostStat| {
        newest = newest.max(stat.ctime);
        let lost_xattrs = lost.remove(&ino).unwrap_or_default();
        files.entry(ino).or_insert(Known { recorded: Recorded::of_host(stat), lost_xattrs });
    };
    let mut open = vec![(Vec::new(), Ino::ROOT)];
    while let Some((path, ino)) = open.pop() {
        let Some(scanned) = scan.dirs.get(&path[..]) else { continue };
        note(ino, &scanned.stat);
        for (name, dirent) in tree.readdir(ino)? {
            let Ok(at) = scanned.entries.binary_search_by(|entry| entry.name.cmp(&name)) else { continue };
            let path = join(&path, &name);
            if scan.dirs.contains_key(&path[..]) {
                open.push((path, dirent.ino));
            } else {
                note(dirent.ino, &scanned.entries[at].stat);
            }
        }
    }
    // What a command writes from now on has a later ctime than anything recorded here.
    let clean_before = after(newest);
    let index_data = Index { clean_before, files, absent: written.absent, mapped: Default::default() };
    index::save(index, commit, &index_data.encode())?;
    Ok(written.report)
}

/// Returns when all that is in the folder would survive a power cut. It writes out the whole file system, as the
/// kernel does when an overlay is unmounted.
///
/// # Errors
/// The system's.
pub fn sync(dir: &Path) -> Result<()> {
    let failed = |error| Error::io("sync", dir, error);
    let folder = std::fs::File::open(dir).map_err(failed)?;
    rustix::fs::syncfs(&folder).map_err(|error| failed(error.into()))
}

/// Waits until the file systems' clock is past `time`, and returns it. A time in the future (a clock that was set
/// back) is not waited for: such files are simply read at the next capture.
fn after(time: Time) -> Time {
    let mut now = coarse_now();
    while now <= time && time.sec - now.sec <= 1 {
        std::thread::sleep(std::time::Duration::from_millis(1));
        now = coarse_now();
    }
    now
}

/// What to capture.
#[derive(Debug, Clone)]
pub struct CopyCapture {
    /// The workspace's folder.
    pub dir: PathBuf,
    /// Its index file.
    pub index: PathBuf,
    /// Whether unchanged stat data vouch for contents: not after the machine went down, when the disk may have the
    /// one without the other.
    pub trust_index: bool,
    /// The commit that the folder was last known to equal (the workspace's head).
    pub head: Hash,
    /// How many threads; 0 means one for each processor.
    pub threads: usize,
    /// Where inode numbers and birth ids come from; `None` means the system.
    pub seed: Option<u64>,
}

/// The stat data that goes with a captured tree, to be saved once its commit is published.
pub struct PendingIndex {
    bytes: Vec<u8>,
    path: PathBuf,
}

impl PendingIndex {
    /// Binds the index to the commit and replaces the file. Losing it (a crash before) costs a full read at the
    /// next capture, nothing else.
    ///
    /// # Errors
    /// `NoSpace` and other failures to write the file.
    pub fn save(self, commit: &Hash) -> Result<()> {
        index::save(&self.path, commit, &self.bytes)
    }
}

/// The head's tree with what the index knows about the host's files.
fn load_base(store: &Store, head: &Commit, known: Option<&(Hash, Index)>, trust: bool) -> Result<Base> {
    let clean_before = known.filter(|_| trust).map_or(Base::NEVER, |(_, index)| index.clean_before);
    let mut base = Base::load(store, head.record.root, clean_before)?;
    let Some((commit, index)) = known else {
        base.index(HashMap::new());
        return Ok(base);
    };
    base.absent = index.absent.clone();
    base.unclean = index.mapped.clone();
    if *commit != head.id {
        // The index was not saved after the last capture (a crash): it vouches only for what that left alone.
        let older = match store.commit(commit) {
            Ok(commit) => Base::load(store, commit.record.root, clean_before)?,
            Err(_) => Base::empty(),
        };
        let same =
            |ino: &Ino, file: &BaseFile| older.files.get(ino).is_some_and(|old| old.inode == file.inode);
        base.unclean.extend(base.files.iter().filter(|(ino, file)| !same(ino, file)).map(|(ino, _)| *ino));
    }
    base.index(index.files.clone());
    Ok(base)
}

/// Reads what changed in the folder since its index was written into a new writer. The tree is the folder's
/// state; what an ordinary user could not make of the head's tree (owners, devices, attributes) is kept.
///
/// # Errors
/// `Changed` naming a folder or file that did not keep still; `NotFound` when the folder is gone.
pub fn capture(
    store: &Store,
    options: &CopyCapture,
    progress: &dyn Progress,
) -> Result<(Captured, PendingIndex)> {
    let before = store.commit(&options.head)?;
    let known = Index::load(&options.index);
    let base = || load_base(store, &before, known.as_ref(), options.trust_index);
    let mut lost: HashMap<Ino, Vec<Box<[u8]>>> = HashMap::new();
    for (ino, file) in known.iter().flat_map(|(_, index)| &index.files) {
        if !file.lost_xattrs.is_empty() {
            lost.insert(*ino, file.lost_xattrs.clone());
        }
    }
    let how = FolderOptions {
        scan: ScanOptions {
            ignores: None,
            skip_unreadable: false,
            skip_stores: false,
            threads: threads(options.threads),
            progress,
        },
        prepare: &|_| Ok(BTreeMap::new()),
        seed: options.seed,
    };
    let writer = store.writer()?;
    let tree = read_folder(&Target::Writer(&writer), &base, &options.dir, &how)?;
    let files = tree.recorded.iter().map(|(ino, recorded)| {
        (*ino, Known { recorded: *recorded, lost_xattrs: lost.remove(ino).unwrap_or_default() })
    });
    let next = Index {
        clean_before: tree.started,
        files: files.collect(),
        absent: tree.kept.iter().copied().collect(),
        mapped: tree.mapped.iter().copied().collect(),
    };
    let captured = captured(Some(&before), writer, tree.root, tree.report, BTreeMap::new(), progress)?;
    Ok((captured, PendingIndex { bytes: next.encode(), path: options.index.clone() }))
}
