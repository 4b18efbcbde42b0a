//! Compares a folder with a tree, byte for byte.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use atoll_store::tree::{Extent, FileType, Inode, TreeView};
use atoll_store::{Error, Ino, Result};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::ingest::xattrs;
use crate::progress::{Phase, Progress, check};
use crate::scan::host::{open_dir, open_file};
use crate::scan::{HostStat, Scan, ScanOptions, join, parent, threads};

/// One way in which a folder differs from a tree: the path, and what (`contents`, `mode`, `missing`, …).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mismatch {
    /// Relative to the folder.
    pub path: Vec<u8>,
    /// What differs, in words.
    pub what: String,
}

/// What [`compare_folder`] looks at beside names, kinds, contents, targets and permission bits.
#[derive(Debug, Clone, Copy)]
pub struct CompareOptions {
    /// Owner and group.
    pub owner: bool,
    /// Modification times (never a folder's when `dir_times` is false).
    pub mtime: bool,
    /// Modification times of folders.
    pub dir_times: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// Which names share an inode.
    pub links: bool,
    /// Where the holes are: the folder must not have data where the tree has a hole (up to a block).
    pub holes: bool,
    /// Stop after this many.
    pub limit: usize,
}

impl Default for CompareOptions {
    fn default() -> Self {
        CompareOptions {
            owner: true,
            mtime: true,
            dir_times: true,
            xattrs: true,
            links: true,
            holes: false,
            limit: 100,
        }
    }
}

/// Compares a folder with the tree's folder at `path`, every byte; the result is empty when they are equal.
pub fn compare_folder(
    tree: TreeView<'_>,
    path: &[u8],
    dir: &Path,
    options: &CompareOptions,
    progress: &dyn Progress,
) -> Result<Vec<Mismatch>> {
    let root = super::folder(tree, path)?;
    let how = ScanOptions {
        ignores: None,
        skip_unreadable: false,
        skip_stores: false,
        threads: threads(0),
        progress,
    };
    let scan = Scan::new(dir, &how)?;
    let compare = Compare { tree, scan: &scan, options, progress, found: Mutex::default() };
    let files = compare.names(root)?;
    compare.files(&files)?;
    let mut found = compare.found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    found.sort();
    found.truncate(options.limit);
    Ok(found)
}

struct Compare<'a> {
    tree: TreeView<'a>,
    scan: &'a Scan,
    options: &'a CompareOptions,
    progress: &'a dyn Progress,
    found: Mutex<Vec<Mismatch>>,
}

/// A path that both sides have.
struct Both {
    path: Vec<u8>,
    ino: Ino,
    stat: HostStat,
}

impl Compare<'_> {
    fn say(&self, path: &[u8], what: impl Into<String>) {
        if let Ok(mut found) = self.found.lock() {
            found.push(Mismatch { path: path.to_vec(), what: what.into() });
        }
    }

    fn enough(&self) -> bool {
        self.found.lock().is_ok_and(|found| found.len() >= self.options.limit)
    }

    /// Compares names; what both sides have is returned.
    fn names(&self, root: Ino) -> Result<Vec<Both>> {
        let mut both = Vec::new();
        let mut links: HashMap<Ino, u64> = HashMap::new();
        let mut open = vec![(Vec::new(), root)];
        while let Some((path, ino)) = open.pop() {
            check(self.progress)?;
            let Some(dir) = self.scan.dirs.get(&path[..]) else { continue };
            both.push(Both { path: path.clone(), ino, stat: dir.stat });
            let mut host = dir.entries.iter().peekable();
            for (name, dirent) in self.tree.readdir(ino)? {
                while let Some(extra) = host.next_if(|entry| entry.name < name) {
                    self.say(&join(&path, &extra.name), "not in the tree");
                }
                let path = join(&path, &name);
                let Some(entry) = host.next_if(|entry| entry.name == name) else {
                    self.say(&path, "missing");
                    continue;
                };
                if entry.stat.kind != dirent.kind {
                    self.say(&path, format!("kind ({:?} instead of {:?})", entry.stat.kind, dirent.kind));
                } else if dirent.kind == FileType::Dir {
                    open.push((path, dirent.ino));
                } else {
                    if self.options.links
                        && *links.entry(dirent.ino).or_insert(entry.stat.ino) != entry.stat.ino
                    {
                        self.say(&path, "hard link");
                    }
                    both.push(Both { path, ino: dirent.ino, stat: entry.stat });
                }
            }
            for extra in host {
                self.say(&join(&path, &extra.name), "not in the tree");
            }
        }
        Ok(both)
    }

    fn files(&self, both: &[Both]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failed: Mutex<Option<Error>> = Mutex::new(None);
        let one = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(file) = both.get(at).filter(|_| !self.enough()) else { break };
                if let Err(error) = check(self.progress).and_then(|()| self.file(file)) {
                    next.store(both.len(), Ordering::Relaxed);
                    if let Ok(mut failed) = failed.lock() {
                        failed.get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads(0) {
                scope.spawn(one);
            }
            one();
        });
        failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()).map_or(Ok(()), Err)
    }

    fn file(&self, both: &Both) -> Result<()> {
        let Both { path, ino, stat } = both;
        let failed = |error: io::Error| Error::io("read", &self.scan.host_path(path), error);
        let inode = self.tree.inode(*ino)?.ok_or_else(|| {
            Error::damaged(format!("The tree names file {} but does not hold it.", ino.key()))
        })?;
        self.record(path, stat, &inode);
        let dir = open_dir(self.scan.root.as_fd(), parent(path)).map_err(|error| failed(error.into()))?;
        let name = match &path[parent(path).len()..] {
            [] => &b"."[..],
            [b'/', name @ ..] => name,
            name => name,
        };
        if self.options.xattrs {
            let host = xattrs::read_at(&dir, name).map_err(|error| failed(error.into()))?;
            if host != self.tree.xattrs(*ino)? {
                self.say(path, "extended attributes");
            }
        }
        if inode.kind == FileType::Symlink {
            let target =
                rustix::fs::readlinkat(&dir, name, Vec::new()).map_err(|error| failed(error.into()))?;
            if target.to_bytes() != &self.tree.readlink(*ino)?[..] {
                self.say(path, "target");
            }
        }
        if inode.kind == FileType::File && inode.size == stat.size {
            let file = open_file(&dir, name).map_err(|error| failed(error.into()))?;
            self.contents(path, &file, *ino, &inode).map_err(|error| match error {
                Failure::Host(error) => failed(error),
                Failure::Store(error) => error,
            })?;
        }
        self.progress.advance(Phase::Compare, 1, inode.size);
        Ok(())
    }

    fn record(&self, path: &[u8], stat: &HostStat, inode: &Inode) {
        let is_dir = inode.kind == FileType::Dir;
        if !is_dir && inode.size != stat.size && matches!(inode.kind, FileType::File | FileType::Symlink) {
            self.say(path, format!("size ({} instead of {})", stat.size, inode.size));
        }
        if inode.mode != stat.mode && inode.kind != FileType::Symlink {
            self.say(path, format!("mode ({:o} instead of {:o})", stat.mode, inode.mode));
        }
        if inode.rdev != stat.rdev {
            self.say(path, "device number");
        }
        if self.options.owner && (inode.uid, inode.gid) != (stat.uid, stat.gid) {
            self.say(
                path,
                format!("owner ({}:{} instead of {}:{})", stat.uid, stat.gid, inode.uid, inode.gid),
            );
        }
        if self.options.mtime && (!is_dir || self.options.dir_times) && inode.mtime != stat.mtime {
            self.say(path, format!("mtime ({:?} instead of {:?})", stat.mtime, inode.mtime));
        }
        if self.options.links && !is_dir && inode.nlink != stat.nlink {
            self.say(path, format!("link count ({} instead of {})", stat.nlink, inode.nlink));
        }
    }

    fn contents(&self, path: &[u8], file: &File, ino: Ino, inode: &Inode) -> Result<(), Failure> {
        let extents = self.tree.extents(ino, 0..inode.size)?;
        let mut buffer = vec![0; 256 << 10];
        let mut at = 0;
        for (offset, extent) in &extents {
            self.zeros(path, file, at..*offset, &mut buffer)?;
            let chunk;
            let data = match extent {
                Extent::Inline(data) => &data[..],
                Extent::Chunk { num, .. } => {
                    chunk = self.tree.objects.chunk(*num)?;
                    &chunk[..]
                }
            };
            let host = buffer.get_mut(..data.len()).ok_or_else(|| {
                Error::damaged(format!("A chunk of file {} is larger than any chunk can be.", ino.key()))
            })?;
            file.read_exact_at(host, *offset).map_err(Failure::Host)?;
            if host != data {
                self.say(path, format!("contents (in the {} bytes from {offset})", data.len()));
                return Ok(());
            }
            at = offset + data.len() as u64;
        }
        self.zeros(path, file, at..inode.size, &mut buffer)
    }

    /// The tree has a hole here.
    fn zeros(
        &self,
        path: &[u8],
        file: &File,
        hole: std::ops::Range<u64>,
        buffer: &mut [u8],
    ) -> Result<(), Failure> {
        const BLOCK: u64 = 4096;
        if self.options.holes && hole.end > hole.start {
            let from = hole.start.next_multiple_of(BLOCK);
            let data = rustix::fs::seek(file, SeekFrom::Data(from)).unwrap_or(u64::MAX);
            if data < hole.end / BLOCK * BLOCK {
                self.say(path, format!("data at {data} where the tree has a hole"));
            }
        }
        let mut at = hole.start;
        while at < hole.end {
            // What the host has as a hole too needs no look.
            at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => break,
                Err(_) => at,
            };
            if at >= hole.end {
                break;
            }
            let length = (hole.end - at).min(buffer.len() as u64) as usize;
            file.read_exact_at(&mut buffer[..length], at).map_err(Failure::Host)?;
            if buffer[..length].iter().any(|&byte| byte != 0) {
                self.say(path, format!("contents (a hole at {at} has data)"));
                return Ok(());
            }
            at += length as u64;
        }
        Ok(())
    }
}

enum Failure {
    Host(io::Error),
    Store(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}
