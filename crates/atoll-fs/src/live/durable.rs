//! What makes changes durable, keeps the journal short, and brings a workspace back.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_store::tree::{Cursor, Key, Time};
use atoll_store::{Code, Error, Hash, Ino, Result};
use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::area::{self, AREA, Area};
use super::content::{Freed, Place};
use super::journal::{self, Head, Journal, VERSION};
use super::op::Op;
use super::replay::{Lost, Replayed, replay};
use super::state::{Base, State};
use super::{Inner, Live, Reply, area_path, refused};

/// The journal is written anew when so many bytes of it are of no use any more, and more than are of use.
const GARBAGE: u64 = 64 << 20;
/// Space that is kept for writing a journal anew on a full disk.
const SPARE: u64 = 1 << 20;

/// What a workspace needs from outside.
pub struct Options {
    /// The time of a change.
    pub clock: Box<dyn Fn() -> Time + Send + Sync>,
    /// Random bits, for identities and numbers.
    pub random: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Which start of the machine this is.
    pub boot: String,
    /// Whether a sync is to reach a disk; not where the workspace is in memory.
    pub durable: bool,
    /// The kernel still knows files, which may have no name: another process served them and died.
    pub taken_over: bool,
}

impl Live {
    /// Opens the workspace in `folder`, which has to be there; a new one begins at `commit`. `base` gives the tree
    /// of a commit. Nobody else may have it open: that is the caller's to make sure.
    ///
    /// # Errors
    /// `NewerFormat`, `Damaged`, those of the file system, of `base` and of reading its tree.
    pub fn open(
        folder: &Path,
        commit: &Hash,
        base: impl Fn(&Hash) -> Result<Base>,
        options: Options,
    ) -> Result<(Live, Option<Lost>)> {
        let path = area_path(folder);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|error| Error::io("open the workspace's data", &path, error))?;
        let read = replay(folder, &options.boot, |commit| base(&Hash(*commit)))?;
        let (state, journal, requests, is_old, lost) = match read {
            Some(Replayed { state, journal, requests, is_old, lost }) => {
                (state, journal, requests, is_old, lost)
            }
            None => {
                let base = base(commit)?;
                let first = first_ino(&base, &options)?;
                let state = State::new(base, first);
                let journal = begin(folder, 1, commit.0, &state, 0, &options.boot, options.durable)?;
                (state, journal, Vec::new(), false, None)
            }
        };
        let mut inner = Inner {
            area: Area::new(file, Vec::new()).map_err(|error| Error::io("look at", &path, error))?.0,
            files: HashMap::new(),
            freed: Vec::new(),
            unsynced: Vec::new(),
            used: HashMap::new(),
            held: HashMap::new(),
            requests: requests.into(),
            pins: Arc::new(()),
            orphans_stay: options.taken_over,
            durable: options.durable,
            boot: options.boot.clone(),
            last_change: journal.changes,
            broken: false,
            state,
            journal,
        };
        inner.find_places(folder)?;
        inner.keep_spare();
        let live = Live {
            inner: Mutex::new(inner),
            syncing: Mutex::new(()),
            durable: AtomicU64::new(0),
            listings: Default::default(),
            options,
        };
        let mut inner = live.inner.lock();
        if !live.options.taken_over {
            let orphans: Vec<Ino> = inner
                .state
                .nodes
                .iter()
                .filter(|(_, node)| node.inode.nlink == 0)
                .map(|(ino, _)| *ino)
                .collect();
            for ino in orphans {
                inner.make(0, Op::Reap { ino }, &[], true).map_err(|error| no_journal(folder, error))?;
            }
        }
        // What was cut off must not be read as going on behind what comes now.
        if is_old || lost.is_some() {
            let commit = inner.journal.head().base;
            inner.begin_anew(commit)?;
        }
        drop(inner);
        Ok((live, lost))
    }

    /// Makes all changes up to now durable.
    ///
    /// # Errors
    /// EIO when the host's disk refused: from then on the workspace can only be read.
    pub fn sync(&self) -> Reply<()> {
        let wanted = self.inner.lock().last_change;
        if self.durable.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        let _alone = self.syncing.lock();
        if self.durable.load(Ordering::Acquire) >= wanted {
            return Ok(());
        }
        // Bytes first, then what says that they are there.
        let (area, target) = {
            let mut inner = self.inner.lock();
            if inner.broken {
                return Err(Errno::IO);
            }
            let freed = std::mem::take(&mut inner.freed);
            inner.unsynced.extend(freed);
            let dirty = std::mem::take(&mut inner.area.dirty);
            (dirty.then(|| inner.area.file().clone()), inner.last_change)
        };
        if self.options.durable {
            if let Some(area) = area {
                area.sync_data().map_err(|error| self.broke(error))?;
            }
            let unsynced = {
                let mut inner = self.inner.lock();
                let mark = Op::Mark { changes: target };
                inner.journal.append(0, &mark, &[], true).map_err(refused)?;
                inner.journal.unsynced()
            };
            unsynced.sync().map_err(|error| self.broke(error))?;
        }
        self.durable.fetch_max(target, Ordering::AcqRel);
        self.inner.lock().recycle_unsynced();
        Ok(())
    }

    /// To be called now and then: makes durable what nobody asked to be, so that a power cut takes seconds of work
    /// at most, and writes a journal anew that has become too long.
    ///
    /// # Errors
    /// Those of [`Live::sync`] and of writing a journal; the old one goes on then.
    pub fn tend(&self) -> Result<()> {
        self.sync().map_err(|error| no_journal(Path::new("the workspace"), error))?;
        let _alone = self.syncing.lock();
        let mut inner = self.inner.lock();
        // A frozen state is read out of this journal.
        if Arc::strong_count(&inner.pins) > 1 {
            return Ok(());
        }
        let used: u64 = inner.used.values().sum();
        let garbage = inner.journal.written().saturating_sub(used);
        if garbage < GARBAGE || garbage < used {
            return Ok(());
        }
        let commit = inner.journal.head().base;
        inner.begin_anew(commit)
    }

    /// What a disk refused once may be lost although it says nothing the next time.
    fn broke(&self, error: std::io::Error) -> Errno {
        log::error!("The workspace could not be made durable, and takes no more changes: {error}.");
        self.inner.lock().broken = true;
        Errno::IO
    }
}

impl Inner {
    /// Finds where bytes are, after the state was read back.
    fn find_places(&mut self, folder: &Path) -> Result<()> {
        let mut runs = Vec::new();
        for node in self.state.nodes.values() {
            for Freed { place, len } in node.places() {
                if place.file == AREA {
                    runs.push((place.offset, len));
                } else {
                    *self.used.entry(place.file).or_insert(0) += len;
                }
            }
        }
        let file = self.area.file().try_clone().map_err(Error::from)?;
        let (area, gaps) = Area::new(file, runs).map_err(Error::from)?;
        self.area = area;
        let free = |(offset, len)| Freed { place: Place { file: AREA, offset }, len };
        self.freed.extend(gaps.into_iter().map(free));
        for &segment in self.used.keys() {
            let path = folder.join(journal::name(segment));
            let file = File::open(&path).map_err(|error| Error::io("open the journal", &path, error))?;
            self.files.insert(segment, Arc::new(file));
        }
        let (number, file) = self.journal.file();
        self.files.insert(number, file.clone());
        Ok(())
    }

    /// Writes a journal that begins with the present state, based on this commit, and lets go of what only the old
    /// one needed.
    pub(super) fn begin_anew(&mut self, commit: [u8; 32]) -> Result<()> {
        let folder = self.journal.folder().to_owned();
        let failed = |error| Error::io("write a journal in", &folder, error);
        let number = last_segment(&folder)?.max(self.journal.head().segment) + 1;
        // The bytes that it names, in the area and in segments: it is not to be before they are.
        self.sync_bytes().map_err(failed)?;
        let next =
            begin(&folder, number, commit, &self.state, self.journal.changes, &self.boot, self.durable)?;
        self.last_change = next.changes;
        self.journal = next;
        let freed = std::mem::take(&mut self.freed);
        self.unsynced.extend(freed);
        self.recycle_unsynced();
        let (number, file) = self.journal.file();
        let file = file.clone();
        self.files.insert(number, file);
        self.forget_segments(&folder);
        Ok(())
    }

    /// The disk is full: what was let go is made free at once. Returns whether there is anything that may help.
    pub(super) fn reclaim(&mut self) -> bool {
        let freed = std::mem::take(&mut self.freed);
        self.unsynced.extend(freed);
        // A frozen state may need all of it.
        if self.broken || Arc::strong_count(&self.pins) > 1 {
            return false;
        }
        let mut helped = !self.unsynced.is_empty() && self.sync_alone().is_ok();
        if helped {
            self.recycle_unsynced();
        }
        // Space for a new journal, so that the old one's can go.
        let used: u64 = self.used.values().sum();
        if self.journal.written().saturating_sub(used) > 2 * SPARE {
            let (spare, commit) = (self.journal.folder().join("spare"), self.journal.head().base);
            let _ = std::fs::remove_file(&spare);
            match self.begin_anew(commit) {
                Ok(()) => helped = true,
                Err(error) => log::warn!("{error}"),
            }
            self.keep_spare();
        }
        helped
    }

    /// What [`Live::sync`] does, with everybody waiting.
    fn sync_alone(&mut self) -> std::io::Result<()> {
        self.sync_bytes()?;
        if self.durable {
            let mark = Op::Mark { changes: self.last_change };
            self.journal.append(0, &mark, &[], true)?;
        }
        self.sync_bytes()
    }

    /// Syncs the data area and what was written of the journal. A disk that refuses may have lost it although it says
    /// nothing the next time: nothing may follow then.
    fn sync_bytes(&mut self) -> std::io::Result<()> {
        if !self.durable {
            return Ok(());
        }
        let dirty = std::mem::take(&mut self.area.dirty);
        let area = if dirty { self.area.file().sync_data() } else { Ok(()) };
        let done = area.and_then(|()| self.journal.unsynced().sync());
        self.broken |= done.is_err();
        done
    }

    /// Takes a little space away from everybody, to have it when there is none. Without it a full disk may have to
    /// be helped from outside.
    fn keep_spare(&self) {
        let path = self.journal.folder().join("spare");
        if let Ok(file) = File::options().create(true).truncate(false).write(true).open(&path)
            && rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, SPARE).is_err()
        {
            let _ = std::fs::remove_file(&path);
        }
    }

    /// What was let go before the last sync is free, unless somebody still reads it.
    pub(super) fn recycle_unsynced(&mut self) {
        if Arc::strong_count(&self.pins) > 1 {
            return;
        }
        let freed = std::mem::take(&mut self.unsynced);
        self.recycle(freed);
    }

    /// Removes segments from before the journal's beginning that no file has bytes in, and gives back what is of no
    /// use in the others.
    fn forget_segments(&mut self, folder: &Path) {
        let current = self.journal.head().segment;
        let Ok(listed) = std::fs::read_dir(folder) else { return };
        let numbers = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        for number in numbers.filter(|number| *number < current).collect::<Vec<_>>() {
            if self.used.get(&number).is_none_or(|used| *used == 0) {
                self.used.remove(&number);
                self.files.remove(&number);
                // One that stays is looked at the next time.
                let _ = std::fs::remove_file(folder.join(journal::name(number)));
            }
        }
        // A frozen state may need what the present one does not.
        if Arc::strong_count(&self.pins) > 1 {
            return;
        }
        let mut runs: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        for Freed { place, len } in self.state.nodes.values().flat_map(|node| node.places()) {
            if place.file != AREA && place.file < current {
                runs.entry(place.file).or_default().push((place.offset, len));
            }
        }
        for (number, runs) in runs {
            let path = folder.join(journal::name(number));
            if let Ok(file) = File::options().write(true).open(path) {
                area::keep_only(&file, runs);
            }
        }
    }
}

/// A journal that begins with this state. It is whole, and on the disk, before it has its name.
fn begin(
    folder: &Path,
    segment: u32,
    base: [u8; 32],
    state: &State,
    changes: u64,
    boot: &str,
    durable: bool,
) -> Result<Journal> {
    let failed = |error| Error::io("write a journal in", folder, error);
    let head = Head {
        version: VERSION,
        segment,
        begins: true,
        changes,
        base,
        random: state.random,
        fresh: state.fresh,
        next: state.next,
        boot: boot.to_owned(),
    };
    let mut journal = Journal::create(folder, head).map_err(failed)?;
    for (ino, node) in &state.nodes {
        let op = Op::Put { ino: *ino, node: Box::new((**node).clone()) };
        journal.append(0, &op, &[], false).map_err(failed)?;
    }
    for ino in &state.dead {
        journal.append(0, &Op::Dead { ino: *ino }, &[], false).map_err(failed)?;
    }
    let mark = Op::Mark { changes: journal.changes };
    journal.append(0, &mark, &[], false).map_err(failed)?;
    journal.publish(durable).map_err(failed)?;
    Ok(journal)
}

/// The highest number that a file in the folder has.
fn last_segment(folder: &Path) -> Result<u32> {
    let listed = std::fs::read_dir(folder)
        .map_err(|error| Error::io("read the workspace's journal", folder, error))?;
    let numbers = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    Ok(numbers.max().unwrap_or(0))
}

/// Where the workspace's inode numbers begin: no file of the base has the same random bits and a number behind it.
fn first_ino(base: &Base, options: &Options) -> Result<Ino> {
    for _ in 0..1 << 10 {
        let bits = (options.random)();
        // Half of the numbers stay for the files to come.
        let first = Ino::new((bits >> 32) as u32, (bits as u32 >> 1).max(1));
        let cursor = Cursor::seek(&*base.objects, base.root, &Key::Inode(first).to_vec())?;
        let taken = match cursor.key() {
            Some(key) => Key::decode(key)?.ino().random() == first.random(),
            None => false,
        };
        if !taken {
            return Ok(first);
        }
    }
    Err(Error::new(Code::NoSpace, "There are no inode numbers left for a workspace of this tree."))
}

fn no_journal(folder: &Path, error: Errno) -> Error {
    Error::io("write the journal of", folder, error.into())
}
