//! A small file system in memory that random operations work on, and the tree that it is.

use std::collections::{BTreeMap, BTreeSet};

use atoll_store::tree::{Dirent, Extent, FileType, Inode, Key, Value};
use atoll_store::{BirthId, Ino, Num};
use proptest::prelude::*;

use super::{Map, ino, inode};

#[derive(Debug, Clone)]
pub struct File {
    pub inode: Inode,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Contents as the number of a chunk; 0 is empty.
    pub content: u64,
    /// A folder's entries.
    pub entries: BTreeMap<Vec<u8>, (Ino, u64)>,
}

#[derive(Debug, Clone)]
pub struct Model {
    pub files: BTreeMap<Ino, File>,
    next: u64,
}

#[derive(Debug, Clone)]
pub enum Op {
    Create(usize, u8, u64),
    Mkdir(usize, u8),
    Symlink(usize, u8, u64),
    Write(usize, u64),
    /// Writes a new file and moves it over the old one; with the birth id of the old or not.
    Replace(usize, u64, bool),
    Chmod(usize, u16),
    Xattr(usize, u8),
    Touch(usize, u8),
    Rename(usize, usize, u8),
    Link(usize, usize, u8),
    Remove(usize),
    /// A folder is made again with what is in it: all numbers and births are new.
    Remake(usize),
}

pub fn op() -> impl Strategy<Value = Op> {
    let at = || 0usize..1000;
    let name = || 0u8..8;
    prop_oneof![
        3 => (at(), name(), 0u64..6).prop_map(|(dir, name, content)| Op::Create(dir, name, content)),
        3 => (at(), name()).prop_map(|(dir, name)| Op::Mkdir(dir, name)),
        1 => (at(), name(), 1u64..4).prop_map(|(dir, name, content)| Op::Symlink(dir, name, content)),
        2 => (at(), 0u64..6).prop_map(|(at, content)| Op::Write(at, content)),
        1 => (at(), 0u64..6, any::<bool>()).prop_map(|(at, content, keep)| Op::Replace(at, content, keep)),
        1 => (at(), 0u16..4).prop_map(|(at, mode)| Op::Chmod(at, 0o700 + mode)),
        1 => (at(), name()).prop_map(|(at, value)| Op::Xattr(at, value)),
        1 => (at(), name()).prop_map(|(at, time)| Op::Touch(at, time)),
        4 => (at(), at(), name()).prop_map(|(at, dir, name)| Op::Rename(at, dir, name)),
        2 => (at(), at(), name()).prop_map(|(at, dir, name)| Op::Link(at, dir, name)),
        2 => at().prop_map(Op::Remove),
        1 => at().prop_map(Op::Remake),
    ]
}

/// What people see of a path.
pub type Seen = (FileType, u16, BTreeMap<Vec<u8>, Vec<u8>>, u64, usize);

impl Default for Model {
    fn default() -> Self {
        let mut model = Model { files: BTreeMap::new(), next: 2 };
        model.files.insert(Ino::ROOT, file(FileType::Dir, 1, 0));
        model
    }
}

fn file(kind: FileType, number: u64, content: u64) -> File {
    let inode = Inode { size: if kind == FileType::Dir { 0 } else { content * 1000 }, ..inode(kind, number) };
    File { inode, xattrs: BTreeMap::new(), content, entries: BTreeMap::new() }
}

fn name(number: u8) -> Vec<u8> {
    vec![b'a' + number]
}

impl Model {
    /// Another file system with the same content: all numbers and times are different.
    pub fn twin(&self) -> Model {
        let mut twin = Model { files: BTreeMap::new(), next: self.next };
        let other = |of: Ino| if of == Ino::ROOT { of } else { ino(of.key() + 7_000_000) };
        for (of, file) in &self.files {
            let mut file = file.clone();
            file.inode.birth = BirthId(file.inode.birth.0 ^ 1);
            file.inode.mtime.sec += 5;
            file.inode.ctime.nsec ^= 1;
            file.entries =
                file.entries.iter().map(|(n, (to, cookie))| (n.clone(), (other(*to), cookie + 3))).collect();
            twin.files.insert(other(*of), file);
        }
        twin
    }

    fn pick(&self, at: usize, kind: impl Fn(FileType) -> bool) -> Option<Ino> {
        let fit: Vec<_> =
            self.files.iter().filter(|(_, file)| kind(file.inode.kind)).map(|(ino, _)| *ino).collect();
        (!fit.is_empty()).then(|| fit[at % fit.len()])
    }

    fn pick_name(&self, at: usize) -> Option<(Ino, Vec<u8>, Ino)> {
        let names: Vec<_> = self
            .files
            .iter()
            .flat_map(|(dir, file)| file.entries.iter().map(|(name, (ino, _))| (*dir, name.clone(), *ino)))
            .collect();
        (!names.is_empty()).then(|| names[at % names.len()].clone())
    }

    fn put(&mut self, dir: Ino, name: Vec<u8>, ino: Ino) {
        let entries = &mut self.files.get_mut(&dir).unwrap().entries;
        let cookie = entries.values().map(|(_, cookie)| *cookie).max().unwrap_or(0) + 1;
        entries.insert(name, (ino, cookie));
    }

    fn make(&mut self, file: File) -> Ino {
        let number = ino(self.next);
        self.next += 1;
        self.files
            .insert(number, File { inode: Inode { birth: BirthId(self.next * 31), ..file.inode }, ..file });
        number
    }

    fn below(&self, dir: Ino) -> BTreeSet<Ino> {
        let mut seen = BTreeSet::from([dir]);
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            for (ino, _) in self.files[&dir].entries.values() {
                if seen.insert(*ino) {
                    dirs.push(*ino);
                }
            }
        }
        seen
    }

    fn unlink(&mut self, dir: Ino, name: &[u8]) {
        self.files.get_mut(&dir).unwrap().entries.remove(name);
        let reached = self.below(Ino::ROOT);
        self.files.retain(|ino, _| reached.contains(ino));
    }

    pub fn apply(&mut self, op: &Op) {
        let dir = |kind| kind == FileType::Dir;
        match *op {
            Op::Create(at, number, content) => {
                let folder = self.pick(at, dir).unwrap();
                if !self.files[&folder].entries.contains_key(&name(number)) {
                    let made = self.make(file(FileType::File, self.next, content));
                    self.put(folder, name(number), made);
                }
            }
            Op::Mkdir(at, number) => {
                let folder = self.pick(at, dir).unwrap();
                if !self.files[&folder].entries.contains_key(&name(number)) {
                    let made = self.make(file(FileType::Dir, self.next, 0));
                    self.put(folder, name(number), made);
                }
            }
            Op::Symlink(at, number, content) => {
                let folder = self.pick(at, dir).unwrap();
                if !self.files[&folder].entries.contains_key(&name(number)) {
                    let made = self.make(file(FileType::Symlink, self.next, content));
                    self.put(folder, name(number), made);
                }
            }
            Op::Write(at, content) => {
                if let Some(ino) = self.pick(at, |kind| kind == FileType::File) {
                    let file = self.files.get_mut(&ino).unwrap();
                    (file.content, file.inode.size) = (content, content * 1000);
                    file.inode.mtime.sec += 1;
                }
            }
            Op::Replace(at, content, keep) => {
                let named =
                    self.pick_name(at).filter(|(.., ino)| self.files[ino].inode.kind != FileType::Dir);
                if let Some((folder, at, old)) = named {
                    let birth = self.files[&old].inode.birth;
                    self.unlink(folder, &at);
                    let made = self.make(file(FileType::File, self.next, content));
                    if keep && !self.files.contains_key(&old) {
                        self.files.entry(made).and_modify(|file| file.inode.birth = birth);
                    }
                    self.put(folder, at, made);
                }
            }
            Op::Chmod(at, mode) => {
                let ino = self.pick(at, |kind| kind != FileType::Symlink).unwrap();
                self.files.get_mut(&ino).unwrap().inode.mode = mode;
            }
            Op::Xattr(at, value) => {
                let ino = self.pick(at, |_| true).unwrap();
                self.files.get_mut(&ino).unwrap().xattrs.insert(b"user.x".to_vec(), vec![value]);
            }
            Op::Touch(at, time) => {
                let ino = self.pick(at, |_| true).unwrap();
                self.files.get_mut(&ino).unwrap().inode.mtime.sec += i64::from(time);
            }
            Op::Rename(at, to, number) => {
                let Some((from, old_name, moved)) = self.pick_name(at) else { return };
                let to = self.pick(to, dir).unwrap();
                let target = self.files[&to].entries.get(&name(number)).map(|(ino, _)| *ino);
                let is_dir = |ino: Ino| self.files[&ino].inode.kind == FileType::Dir;
                if is_dir(moved) && self.below(moved).contains(&to) || target == Some(moved) {
                    return;
                }
                match target {
                    Some(over) if is_dir(over) != is_dir(moved) => return,
                    Some(over) if is_dir(over) && !self.files[&over].entries.is_empty() => return,
                    _ => {}
                }
                self.files.get_mut(&from).unwrap().entries.remove(&old_name);
                self.put(to, name(number), moved);
                self.unlink(to, b"no such name");
            }
            Op::Link(at, to, number) => {
                let Some((_, _, linked)) = self.pick_name(at) else { return };
                let to = self.pick(to, dir).unwrap();
                if self.files[&linked].inode.kind != FileType::Dir
                    && !self.files[&to].entries.contains_key(&name(number))
                {
                    self.put(to, name(number), linked);
                }
            }
            Op::Remove(at) => {
                if let Some((dir, name, _)) = self.pick_name(at) {
                    self.unlink(dir, &name);
                }
            }
            Op::Remake(at) => {
                let named =
                    self.pick_name(at).filter(|(.., ino)| self.files[ino].inode.kind == FileType::Dir);
                let Some((parent, name, old)) = named else { return };
                let made = self.copy(old);
                self.put(parent, name, made);
                self.unlink(parent, b"no such name");
            }
        }
    }

    fn copy(&mut self, of: Ino) -> Ino {
        let mut file = self.files[&of].clone();
        let entries = std::mem::take(&mut file.entries);
        let made = self.make(file);
        for (name, (child, _)) in entries {
            let child = self.copy(child);
            self.put(made, name, child);
        }
        made
    }

    /// The tree, with link counts as they are.
    pub fn map(&self) -> Map {
        let mut map = Map::new();
        let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
        for file in self.files.values() {
            file.entries.values().for_each(|(ino, _)| *links.entry(*ino).or_default() += 1);
        }
        for (number, file) in &self.files {
            let dirs =
                file.entries.values().filter(|(ino, _)| self.files[ino].inode.kind == FileType::Dir).count();
            let nlink = if file.inode.kind == FileType::Dir { 2 + dirs as u32 } else { links[number] };
            map.insert(Key::Inode(*number).to_vec(), Value::Inode(Inode { nlink, ..file.inode }));
            for (name, value) in &file.xattrs {
                map.insert(Key::Xattr(*number, name).to_vec(), Value::Xattr(value.clone().into()));
            }
            if file.content != 0 {
                let extent = match file.inode.kind {
                    FileType::Symlink => Extent::Inline(vec![b'x'; file.content as usize * 1000].into()),
                    _ => Extent::Chunk { num: Num(file.content), len: file.content as u32 * 1000 },
                };
                map.insert(Key::Extent(*number, 0).to_vec(), Value::Extent(extent));
            }
            for (name, (child, cookie)) in &file.entries {
                let kind = self.files[child].inode.kind;
                let entry = Dirent { ino: *child, kind, cookie: *cookie };
                map.insert(Key::Dirent(*number, name).to_vec(), Value::Dirent(entry));
                map.insert(Key::Parent(*child, *number, name).to_vec(), Value::Parent);
            }
        }
        map
    }

    /// All paths.
    pub fn paths(&self) -> BTreeMap<Vec<u8>, Ino> {
        let mut paths = BTreeMap::from([(Vec::new(), Ino::ROOT)]);
        let mut dirs = vec![(Vec::new(), Ino::ROOT)];
        while let Some((path, dir)) = dirs.pop() {
            for (name, (child, _)) in &self.files[&dir].entries {
                let path = if path.is_empty() { name.clone() } else { [&path[..], name].join(&b'/') };
                paths.insert(path.clone(), *child);
                if self.files[child].inode.kind == FileType::Dir {
                    dirs.push((path, *child));
                }
            }
        }
        paths
    }

    pub fn seen(&self, with_links: bool) -> BTreeMap<Vec<u8>, Seen> {
        let paths = self.paths();
        let mut links: BTreeMap<Ino, usize> = BTreeMap::new();
        paths.values().for_each(|ino| *links.entry(*ino).or_default() += 1);
        let see = |ino: &Ino| {
            let file = &self.files[ino];
            let links = if with_links { links[ino] } else { 1 };
            (file.inode.kind, file.inode.mode, file.xattrs.clone(), file.content, links)
        };
        paths.iter().map(|(path, ino)| (path.clone(), see(ino))).collect()
    }
}
