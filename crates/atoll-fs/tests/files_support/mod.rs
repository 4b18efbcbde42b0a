//! A folder's state in memory: becomes a tree, becomes a real folder, is read back from one.
#![allow(dead_code)]

pub mod ops;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use atoll_store::tree::{Dirent, Extent, FileType, INLINE_MAX, Inode, Key, Time, Value, edit};
use atoll_store::{BirthId, Ino, Num, Sink};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Dir,
    File(Vec<u8>),
    Symlink(Vec<u8>),
    Fifo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Identity in the tree; names with one number are hard links.
    pub ino: u64,
    pub kind: Kind,
    pub mode: u16,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What people see of a path: the last is the first path of the same file.
pub type Seen = (Kind, u16, BTreeMap<Vec<u8>, Vec<u8>>, String);

/// Paths of a folder; the folder itself is not among them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    pub entries: BTreeMap<Vec<u8>, Entry>,
    pub next: u64,
}

impl Files {
    pub fn add(&mut self, path: &[u8], kind: Kind, mode: u16) -> &mut Self {
        self.next += 1;
        let entry = Entry { ino: self.next + 1, kind, mode, xattrs: BTreeMap::new() };
        self.entries.insert(path.to_vec(), entry);
        self
    }

    pub fn file(&mut self, path: &str, text: &[u8]) -> &mut Self {
        self.add(path.as_bytes(), Kind::File(text.to_vec()), 0o644)
    }

    pub fn dir(&mut self, path: &str) -> &mut Self {
        self.add(path.as_bytes(), Kind::Dir, 0o755)
    }

    pub fn symlink(&mut self, path: &str, target: &str) -> &mut Self {
        self.add(path.as_bytes(), Kind::Symlink(target.into()), 0o777)
    }

    pub fn link(&mut self, old: &str, new: &str) -> &mut Self {
        let entry = self.entries[old.as_bytes()].clone();
        self.entries.insert(new.into(), entry);
        self
    }

    pub fn set(&mut self, path: &str, text: &[u8]) -> &mut Self {
        let ino = self.entries[path.as_bytes()].ino;
        self.entries.values_mut().filter(|e| e.ino == ino).for_each(|e| e.kind = Kind::File(text.to_vec()));
        self
    }

    pub fn chmod(&mut self, path: &str, mode: u16) -> &mut Self {
        let ino = self.entries[path.as_bytes()].ino;
        self.entries.values_mut().filter(|e| e.ino == ino).for_each(|e| e.mode = mode);
        self
    }

    /// Takes a path away, with what is below it.
    pub fn remove(&mut self, path: &[u8]) -> &mut Self {
        self.entries.retain(|of, _| !is_below(of, path));
        self
    }

    /// Moves a path, with what is below it.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> &mut Self {
        let moved: Vec<_> = self
            .entries
            .iter()
            .filter(|(of, _)| is_below(of, from))
            .map(|(of, e)| (of.clone(), e.clone()))
            .collect();
        self.remove(from).remove(to);
        for (of, entry) in moved {
            self.entries.insert([to, &of[from.len()..]].concat(), entry);
        }
        self
    }

    /// The tree, owned by whoever runs the test.
    pub fn tree(&self, sink: &dyn Sink) -> Num {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let mut map = BTreeMap::new();
        let number = |ino: u64| Ino::from_key(ino).unwrap();
        let time = Time { sec: 1_700_000_000, nsec: 5 };
        let root = Entry { ino: 1, kind: Kind::Dir, mode: 0o755, xattrs: BTreeMap::new() };
        let mut links: BTreeMap<u64, u32> = BTreeMap::new();
        self.entries.values().for_each(|entry| *links.entry(entry.ino).or_default() += 1);
        for (cookie, (path, entry)) in std::iter::once((&Vec::new(), &root)).chain(&self.entries).enumerate()
        {
            let ino = number(entry.ino);
            let (kind, bytes) = match &entry.kind {
                Kind::Dir => (FileType::Dir, None),
                Kind::File(bytes) => (FileType::File, Some(bytes)),
                Kind::Symlink(bytes) => (FileType::Symlink, Some(bytes)),
                Kind::Fifo => (FileType::Fifo, None),
            };
            let inode = Inode {
                birth: BirthId(entry.ino * 77),
                kind,
                mode: entry.mode,
                uid,
                gid,
                size: bytes.map_or(0, |bytes| bytes.len() as u64),
                nlink: if kind == FileType::Dir { 2 } else { links[&entry.ino] },
                rdev: 0,
                mtime: time,
                ctime: time,
                btime: time,
            };
            map.insert(Key::Inode(ino).to_vec(), Value::Inode(inode));
            for (name, value) in &entry.xattrs {
                map.insert(Key::Xattr(ino, name).to_vec(), Value::Xattr(value.clone().into()));
            }
            if let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) {
                if bytes.len() <= INLINE_MAX || kind == FileType::Symlink {
                    map.insert(
                        Key::Extent(ino, 0).to_vec(),
                        Value::Extent(Extent::Inline(bytes.clone().into())),
                    );
                } else {
                    for (at, chunk) in bytes.chunks(5000).enumerate() {
                        let num = sink.put_chunk(chunk).unwrap();
                        let extent = Extent::Chunk { num, len: chunk.len() as u32 };
                        map.insert(Key::Extent(ino, at as u64 * 5000).to_vec(), Value::Extent(extent));
                    }
                }
            }
            if !path.is_empty() {
                let (above, name) = split(path);
                let dir = if above.is_empty() { Ino::ROOT } else { number(self.entries[above].ino) };
                map.insert(Key::Parent(ino, dir, name).to_vec(), Value::Parent);
                let entry = Dirent { ino, kind, cookie: cookie as u64 };
                map.insert(Key::Dirent(dir, name).to_vec(), Value::Dirent(entry));
            }
        }
        edit(sink, None, map.into_iter().map(|(key, value)| (key, Some(value)))).unwrap()
    }

    /// Makes the folder for real, in an empty one.
    pub fn write(&self, dir: &Path) {
        let mut made: BTreeMap<u64, PathBuf> = BTreeMap::new();
        for (path, entry) in &self.entries {
            let to = at(dir, path);
            if let Some(first) = made.get(&entry.ino) {
                fs::hard_link(first, &to).unwrap();
                continue;
            }
            match &entry.kind {
                Kind::Dir => fs::create_dir(&to).unwrap(),
                Kind::File(bytes) => fs::write(&to, bytes).unwrap(),
                Kind::Symlink(target) => std::os::unix::fs::symlink(OsStr::from_bytes(target), &to).unwrap(),
                Kind::Fifo => {
                    rustix::fs::mknodat(rustix::fs::CWD, &to, rustix::fs::FileType::Fifo, 0o600.into(), 0)
                        .unwrap()
                }
            }
            if !matches!(entry.kind, Kind::Symlink(_)) {
                fs::set_permissions(&to, fs::Permissions::from_mode(entry.mode.into())).unwrap();
            }
            for (name, value) in &entry.xattrs {
                rustix::fs::lsetxattr(&to, OsStr::from_bytes(name), value, rustix::fs::XattrFlags::empty())
                    .unwrap();
            }
            made.insert(entry.ino, to);
        }
    }

    /// Reads a folder back; the numbers are the host's. `skip` names at the top are left out.
    pub fn read(dir: &Path, skip: &[&str]) -> Files {
        let mut files = Files::default();
        files.read_below(dir, b"", skip);
        files
    }

    fn read_below(&mut self, dir: &Path, path: &[u8], skip: &[&str]) {
        for entry in fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_vec();
            if path.is_empty() && skip.iter().any(|skip| skip.as_bytes() == name) {
                continue;
            }
            let path = if path.is_empty() { name } else { [path, &name].join(&b'/') };
            let (from, meta) = (entry.path(), entry.path().symlink_metadata().unwrap());
            let kind = if meta.is_dir() {
                self.read_below(&from, &path, skip);
                Kind::Dir
            } else if meta.is_symlink() {
                Kind::Symlink(fs::read_link(&from).unwrap().into_os_string().into_vec())
            } else if meta.is_file() {
                Kind::File(fs::read(&from).unwrap())
            } else {
                Kind::Fifo
            };
            let mut list = vec![0; 4096];
            let len = rustix::fs::llistxattr(&from, &mut list[..]).unwrap_or(0);
            let mut xattrs = BTreeMap::new();
            for name in list[..len].split(|byte| *byte == 0).filter(|name| name.starts_with(b"user.")) {
                let mut value = vec![0; 4096];
                let len = rustix::fs::lgetxattr(&from, OsStr::from_bytes(name), &mut value[..]).unwrap();
                xattrs.insert(name.to_vec(), value[..len].to_vec());
            }
            self.entries
                .insert(path, Entry { ino: meta.ino(), kind, mode: (meta.mode() & 0o7777) as u16, xattrs });
        }
    }

    /// Without identities: hard links by the first path of each file.
    pub fn seen(&self) -> BTreeMap<String, Seen> {
        let mut first: BTreeMap<u64, String> = BTreeMap::new();
        let text = |path: &[u8]| path.escape_ascii().to_string();
        self.entries
            .iter()
            .map(|(path, e)| {
                let link = first.entry(e.ino).or_insert_with(|| text(path)).clone();
                (text(path), (e.kind.clone(), e.mode, e.xattrs.clone(), link))
            })
            .collect()
    }
}

pub fn is_below(path: &[u8], of: &[u8]) -> bool {
    path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

pub fn at(dir: &Path, path: &[u8]) -> PathBuf {
    dir.join(OsStr::from_bytes(path))
}

/// How many cases a property is tried with: `PROPTEST_CASES`, or as many as are quick enough.
pub fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
