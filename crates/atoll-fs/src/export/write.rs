//! Writes a tree to the host: folders first, then files by several threads, then further names, then the
//! folders' own data from the deepest up (each entry made in a folder changes its times).

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use atoll_store::tree::{Dirent, Extent, FileType, Inode, TreeView};
use atoll_store::{Code, Error, Ino, Result};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::meta::{self, Lost};
use super::{ExportOptions, ExportReport};
use crate::progress::{Phase, Progress, check};
use crate::scan::host::open_dir;
use crate::scan::{join, threads};

/// What was written, for whoever has to know it file by file.
pub(crate) struct Written {
    /// For people.
    pub report: ExportReport,
    /// Files that could not be made.
    pub absent: HashSet<Ino>,
    /// Attributes that could not be set.
    pub lost_xattrs: HashMap<Ino, Vec<Box<[u8]>>>,
}

/// One name that is to be written.
struct Entry {
    /// Index into the folders.
    dir: usize,
    name: Box<[u8]>,
    ino: Ino,
}

struct Folder {
    path: Vec<u8>,
    ino: Ino,
}

/// Everything below a folder of the tree, put in order.
#[derive(Default)]
struct Plan {
    folders: Vec<Folder>,
    /// The first name of each file.
    files: Vec<Entry>,
    /// Further names, with the index of the first one in `files`.
    links: Vec<(Entry, usize)>,
}

/// Writes the tree's folder `root` to `dir`.
pub(crate) fn write_tree(
    tree: TreeView<'_>,
    root: Ino,
    dir: &Path,
    options: &ExportOptions,
    progress: &dyn Progress,
) -> Result<Written> {
    let plan = plan(tree, root, progress)?;
    let top = open_target(dir, options)?;
    let writer = Writer { tree, plan: &plan, top: &top, dir, replace: options.into_existing, progress };
    writer.folders()?;
    let mut done = writer.files(threads(options.threads))?;
    writer.links(&mut done)?;
    writer.folder_data(&mut done)?;
    if options.durable {
        sync(dir, &top)?;
    }
    let mut report = ExportReport {
        files: plan.files.len() as u64 - done.absent.len() as u64,
        dirs: plan.folders.len() as u64,
        bytes: done.bytes,
        lost: done.lost,
    };
    report.lost.sort();
    Ok(Written { report, absent: done.absent, lost_xattrs: done.lost_xattrs })
}

fn plan(tree: TreeView<'_>, root: Ino, progress: &dyn Progress) -> Result<Plan> {
    let mut plan = Plan { folders: vec![Folder { path: Vec::new(), ino: root }], ..Plan::default() };
    let mut seen: HashSet<Ino> = HashSet::from([root]);
    let mut first: HashMap<Ino, usize> = HashMap::new();
    let mut at = 0;
    while at < plan.folders.len() {
        check(progress)?;
        for (name, Dirent { ino, kind, .. }) in tree.readdir(plan.folders[at].ino)? {
            check_name(&name)?;
            if kind == FileType::Dir {
                // A folder with two names would be written for ever.
                if !seen.insert(ino) {
                    let path = join(&plan.folders[at].path, &name);
                    let shown = String::from_utf8_lossy(&path);
                    return Err(Error::damaged(format!("The tree has the folder '{shown}' in two places.")));
                }
                plan.folders.push(Folder { path: join(&plan.folders[at].path, &name), ino });
                continue;
            }
            let entry = Entry { dir: at, name, ino };
            match first.get(&ino) {
                Some(&first) => plan.links.push((entry, first)),
                None => {
                    first.insert(ino, plan.files.len());
                    plan.files.push(entry);
                }
            }
        }
        at += 1;
    }
    Ok(plan)
}

/// A tree that came from elsewhere must not write outside of the folder.
fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
        let shown = String::from_utf8_lossy(name);
        return Err(Error::damaged(format!(
            "The tree has a file named '{shown}', which no file can be called."
        )));
    }
    Ok(())
}

fn open_target(dir: &Path, options: &ExportOptions) -> Result<OwnedFd> {
    let failed = |error: std::io::Error| Error::io("make the folder", dir, error);
    std::fs::create_dir_all(dir).map_err(failed)?;
    if !options.into_existing && std::fs::read_dir(dir).map_err(failed)?.next().is_some() {
        let place = dir.display();
        return Err(Error::new(
            Code::Exists,
            format!("{place} is not empty; choose a folder that is new or empty."),
        ));
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(dir, flags, Mode::empty()).map_err(|error| failed(error.into()))
}

fn sync(dir: &Path, top: &OwnedFd) -> Result<()> {
    let failed = |error: Errno| Error::io("sync", dir, error.into());
    rustix::fs::syncfs(top).map_err(failed)?;
    let Some(above) = dir.parent() else { return Ok(()) };
    let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = rustix::fs::open(above, flags, Mode::empty()).map_err(failed)?;
    rustix::fs::fsync(above).map_err(failed)
}

#[derive(Default)]
struct Done {
    bytes: u64,
    lost: Vec<(Vec<u8>, String)>,
    absent: HashSet<Ino>,
    lost_xattrs: HashMap<Ino, Vec<Box<[u8]>>>,
}

impl Done {
    fn note(&mut self, path: Vec<u8>, ino: Ino, lost: Vec<Lost>) {
        for lost in lost {
            self.lost.push((path.clone(), lost.to_string()));
            match lost {
                Lost::Xattr(name) => self.lost_xattrs.entry(ino).or_default().push(name),
                Lost::Device => drop(self.absent.insert(ino)),
                Lost::Owner | Lost::Mode => {}
            }
        }
    }

    fn merge(&mut self, other: Done) {
        self.bytes += other.bytes;
        self.lost.extend(other.lost);
        self.absent.extend(other.absent);
        self.lost_xattrs.extend(other.lost_xattrs);
    }
}

struct Writer<'a> {
    tree: TreeView<'a>,
    plan: &'a Plan,
    top: &'a OwnedFd,
    dir: &'a Path,
    replace: bool,
    progress: &'a dyn Progress,
}

/// Neighbours are written by one thread: they share folders and groups of chunks.
const RUN: usize = 32;

impl Writer<'_> {
    fn failed(&self, doing: &str, path: &[u8], error: Errno) -> Error {
        use std::os::unix::ffi::OsStrExt;
        Error::io(doing, &self.dir.join(std::ffi::OsStr::from_bytes(path)), error.into())
    }

    fn open(&self, path: &[u8]) -> Result<OwnedFd> {
        open_dir(self.top.as_fd(), path).map_err(|error| self.failed("open", path, error))
    }

    fn inode(&self, ino: Ino) -> Result<Inode> {
        self.tree
            .inode(ino)?
            .ok_or_else(|| Error::damaged(format!("The tree names file {} but does not hold it.", ino.key())))
    }

    /// Makes the folders, private for now: a folder's own bits could forbid to write in it.
    fn folders(&self) -> Result<()> {
        let mut above: Option<(Vec<u8>, OwnedFd)> = None;
        for folder in &self.plan.folders[1..] {
            let parent = crate::scan::parent(&folder.path);
            let name = &folder.path[if parent.is_empty() { 0 } else { parent.len() + 1 }..];
            let dir = match above.take() {
                Some((path, dir)) if path == parent => dir,
                _ => self.open(parent)?,
            };
            match rustix::fs::mkdirat(&dir, name, Mode::from_raw_mode(0o700)) {
                Err(Errno::EXIST) if self.replace => self.reuse(&dir, name, &folder.path)?,
                other => other.map_err(|error| self.failed("make the folder", &folder.path, error))?,
            }
            above = Some((parent.to_vec(), dir));
        }
        Ok(())
    }

    /// What is there is a folder already, or gives way.
    fn reuse(&self, dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<()> {
        let failed = |error| self.failed("replace", path, error);
        let stat = crate::scan::HostStat::at(dir, name).map_err(failed)?;
        if stat.kind != FileType::Dir {
            rustix::fs::unlinkat(dir, name, AtFlags::empty()).map_err(failed)?;
            rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(0o700)).map_err(failed)?;
        }
        Ok(())
    }

    fn files(&self, threads: usize) -> Result<Done> {
        let files = &self.plan.files;
        let next = AtomicUsize::new(0);
        let stop = AtomicBool::new(false);
        let all: Mutex<(Done, Option<Error>)> = Mutex::default();
        let one = || {
            let mut done = Done::default();
            let mut open: Option<(usize, OwnedFd)> = None;
            let mut failed = None;
            while !stop.load(Ordering::Relaxed) && failed.is_none() {
                let from = next.fetch_add(RUN, Ordering::Relaxed);
                let Some(run) = files.get(from..files.len().min(from + RUN)).filter(|run| !run.is_empty())
                else {
                    break;
                };
                failed = run.iter().try_for_each(|entry| self.file(entry, &mut open, &mut done)).err();
            }
            if failed.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
            if let Ok(mut all) = all.lock() {
                all.0.merge(done);
                all.1 = all.1.take().or(failed);
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(one);
            }
            one();
        });
        match all.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            (_, Some(error)) => Err(error),
            (done, None) => Ok(done),
        }
    }

    fn file(&self, entry: &Entry, open: &mut Option<(usize, OwnedFd)>, done: &mut Done) -> Result<()> {
        check(self.progress)?;
        let dir = match open.take() {
            Some((at, dir)) if at == entry.dir => dir,
            _ => self.open(&self.plan.folders[entry.dir].path)?,
        };
        let path = join(&self.plan.folders[entry.dir].path, &entry.name);
        let inode = self.inode(entry.ino)?;
        let temporary = temporary(&entry.name);
        // A name that is taken gets its new file in one step; what is new is made where it belongs.
        let name =
            if self.replace && self.in_the_way(&dir, &entry.name, &path)? { &temporary } else { &entry.name };
        let (bytes, lost) = self.make(&dir, name, &path, entry.ino, &inode)?;
        if std::ptr::eq(name, &temporary) && !lost.contains(&Lost::Device) {
            rustix::fs::renameat(&dir, &name[..], &dir, &entry.name[..])
                .map_err(|error| self.failed("replace", &path, error))?;
        }
        done.bytes += bytes;
        self.progress.advance(Phase::Write, 1, bytes);
        done.note(path, entry.ino, lost);
        *open = Some((entry.dir, dir));
        Ok(())
    }

    fn in_the_way(&self, dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<bool> {
        match crate::scan::HostStat::at(dir, name) {
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed("read the stat data of", path, error)),
            Ok(stat) if stat.kind == FileType::Dir => {
                use std::os::unix::ffi::OsStrExt;
                let place = self.dir.join(std::ffi::OsStr::from_bytes(path));
                let message =
                    format!("{} is a folder where the tree has a file; move it away first.", place.display());
                Err(Error::new(Code::Conflict, message))
            }
            Ok(_) => Ok(true),
        }
    }

    /// Makes one file with all that belongs to it; the bytes written, and what could not be restored.
    fn make(
        &self,
        dir: &OwnedFd,
        name: &[u8],
        path: &[u8],
        ino: Ino,
        inode: &Inode,
    ) -> Result<(u64, Vec<Lost>)> {
        let failed = |error| self.failed("write", path, error);
        let xattrs = self.tree.xattrs(ino)?;
        if inode.kind == FileType::File {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = rustix::fs::openat(dir, name, flags, Mode::from_raw_mode(0o600)).map_err(failed)?;
            let file = File::from(file);
            let bytes = self.contents(&file, path, ino, inode.size)?;
            let lost = meta::restore_open(&file, inode, &xattrs).map_err(failed)?;
            return Ok((bytes, lost));
        }
        let mode = Mode::from_raw_mode(0o600);
        let special = match inode.kind {
            FileType::Symlink => {
                let target = self.tree.readlink(ino)?;
                rustix::fs::symlinkat(&target[..], dir, name).map_err(failed)?;
                None
            }
            FileType::Fifo => Some(rustix::fs::FileType::Fifo),
            FileType::Socket => Some(rustix::fs::FileType::Socket),
            FileType::Char => Some(rustix::fs::FileType::CharacterDevice),
            _ => Some(rustix::fs::FileType::BlockDevice),
        };
        if let Some(kind) = special {
            match rustix::fs::mknodat(dir, name, kind, mode, inode.rdev) {
                Err(Errno::PERM | Errno::ACCESS)
                    if matches!(inode.kind, FileType::Char | FileType::Block) =>
                {
                    return Ok((0, vec![Lost::Device]));
                }
                other => other.map_err(failed)?,
            }
        }
        let lost = meta::restore_at(dir, name, inode, &xattrs).map_err(failed)?;
        Ok((0, lost))
    }

    fn contents(&self, file: &File, path: &[u8], ino: Ino, size: u64) -> Result<u64> {
        let mut bytes = 0;
        let failed = |error: std::io::Error| {
            self.failed("write", path, Errno::from_io_error(&error).unwrap_or(Errno::IO))
        };
        let mut end = 0;
        for (offset, extent) in self.tree.extents(ino, 0..size)? {
            let chunk;
            let data = match &extent {
                Extent::Inline(data) => &data[..],
                Extent::Chunk { num, .. } => {
                    chunk = self.tree.objects.chunk(*num)?;
                    &chunk[..]
                }
            };
            let data = &data[..data.len().min(size.saturating_sub(offset) as usize)];
            file.write_all_at(data, offset).map_err(failed)?;
            bytes += data.len() as u64;
            end = offset + data.len() as u64;
        }
        if end < size {
            file.set_len(size).map_err(failed)?;
        }
        Ok(bytes)
    }

    fn links(&self, done: &mut Done) -> Result<()> {
        for (entry, first) in &self.plan.links {
            let first = &self.plan.files[*first];
            if done.absent.contains(&first.ino) {
                continue;
            }
            let from = self.open(&self.plan.folders[first.dir].path)?;
            let dir = self.open(&self.plan.folders[entry.dir].path)?;
            let path = join(&self.plan.folders[entry.dir].path, &entry.name);
            let failed = |error| self.failed("link", &path, error);
            if self.replace && self.in_the_way(&dir, &entry.name, &path)? {
                let temporary = temporary(&entry.name);
                rustix::fs::linkat(&from, &first.name[..], &dir, &temporary[..], AtFlags::empty())
                    .map_err(failed)?;
                rustix::fs::renameat(&dir, &temporary[..], &dir, &entry.name[..]).map_err(failed)?;
                // Two names of one file: rename does nothing then, and leaves the temporary one.
                match rustix::fs::unlinkat(&dir, &temporary[..], AtFlags::empty()) {
                    Ok(()) | Err(Errno::NOENT) => {}
                    Err(error) => return Err(failed(error)),
                }
                continue;
            }
            rustix::fs::linkat(&from, &first.name[..], &dir, &entry.name[..], AtFlags::empty())
                .map_err(failed)?;
        }
        Ok(())
    }

    fn folder_data(&self, done: &mut Done) -> Result<()> {
        for folder in self.plan.folders.iter().rev() {
            check(self.progress)?;
            let inode = self.inode(folder.ino)?;
            let dir = File::from(self.open(&folder.path)?);
            let xattrs = self.tree.xattrs(folder.ino)?;
            let lost = meta::restore_open(&dir, &inode, &xattrs)
                .map_err(|error| self.failed("set the attributes of", &folder.path, error))?;
            done.note(folder.path.clone(), folder.ino, lost);
        }
        Ok(())
    }
}

/// A name that nothing else has and that fits a folder.
fn temporary(name: &[u8]) -> Box<[u8]> {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut temporary = format!(".atoll-{}-{count}-", std::process::id()).into_bytes();
    temporary.extend_from_slice(&name[..name.len().min(200)]);
    temporary.into()
}
