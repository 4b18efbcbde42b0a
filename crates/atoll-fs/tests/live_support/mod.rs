//! A workspace beside a model of it in plain maps, driven by the same operations.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use atoll_fs::ingest::contents::Ingest;
use atoll_fs::live::{Attrs, Base, Frozen, Having, Live, Lost, New, Options, Part, RenameMode, Who};
use atoll_store::tree::{FileType, Inode, Key, Time, Value, edit};
use atoll_store::{BirthId, Hash, Ino, MemObjects, Num};
use proptest::prelude::*;
use rustix::io::Errno;

/// Objects and the trees made of them, named as commits are.
#[derive(Default)]
pub struct Trees {
    pub objects: Arc<MemObjects>,
    roots: parking_lot::Mutex<BTreeMap<Hash, Num>>,
}

impl Trees {
    /// A tree with an empty root folder.
    pub fn empty(&self) -> Hash {
        let root = Inode {
            birth: BirthId(1),
            kind: FileType::Dir,
            mode: 0o755,
            uid: 0,
            gid: 0,
            size: 0,
            nlink: 2,
            rdev: 0,
            mtime: Time::default(),
            ctime: Time::default(),
            btime: Time::default(),
        };
        let edits = [(Key::Inode(Ino::ROOT).to_vec(), Some(Value::Inode(root)))];
        self.add(edit(&*self.objects, None, edits).unwrap())
    }

    pub fn add(&self, root: Num) -> Hash {
        let name = Hash::of(&root.0.to_le_bytes());
        self.roots.lock().insert(name, root);
        name
    }

    pub fn base(&self, commit: &Hash) -> Base {
        Base { objects: self.objects.clone(), root: self.roots.lock()[commit] }
    }

    /// Makes a commit of a frozen workspace that is based on `base`; and how many bytes were read for it.
    pub fn commit(&self, base: &Hash, frozen: &Frozen) -> (Hash, u64) {
        let mut ingest = Ingest::into_sink(&*self.objects);
        let edits = frozen.edits(&mut ingest).unwrap();
        let read = ingest.bytes;
        ingest.finish().unwrap();
        (self.add(edit(&*self.objects, Some(self.base(base).root), edits).unwrap()), read)
    }

    /// Opens a workspace as one whose machine started for the `boot`-th time.
    pub fn open(&self, folder: &Path, commit: &Hash, boot: u32) -> (Live, Option<Lost>) {
        static TICK: AtomicU64 = AtomicU64::new(1);
        let tick = || TICK.fetch_add(1, Ordering::Relaxed);
        let options = Options {
            clock: Box::new(move || Time { sec: 1_700_000_000, nsec: tick() as u32 }),
            random: Box::new(move || {
                Hash::of(&tick().to_le_bytes()).0[..8].try_into().map(u64::from_le_bytes).unwrap()
            }),
            boot: format!("start {boot}"),
            durable: true,
            taken_over: false,
        };
        Live::open(folder, commit, |commit| Ok(self.base(commit)), options).unwrap()
    }
}

/// A file of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    pub kind: FileType,
    pub mode: u16,
    pub nlink: u32,
    pub data: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    pub names: BTreeMap<Vec<u8>, usize>,
}

/// A file system in plain maps; files are numbered in the order that they came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Model {
    pub files: BTreeMap<usize, File>,
    next: usize,
}

/// Folders and names are taken from what there is.
#[derive(Debug, Clone)]
pub enum Step {
    Create(usize, u8, FileType),
    Link(usize, usize, u8),
    Remove(usize, u8, bool),
    Rename(usize, u8, usize, u8, RenameMode),
    Write(usize, u64, usize, u8),
    Truncate(usize, u64),
    Punch(usize, u64, u64),
    Mode(usize, u16),
    Xattr(usize, u8, Option<u8>),
}

pub fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        5 => Just(FileType::File),
        4 => Just(FileType::Dir),
        1 => Just(FileType::Symlink),
        1 => Just(FileType::Fifo),
    ];
    let mode =
        prop_oneof![Just(RenameMode::Replace), Just(RenameMode::NoReplace), Just(RenameMode::Exchange)];
    let length = prop_oneof![4 => 1usize..5_000, 1 => 60_000usize..300_000];
    let offset = prop_oneof![3 => 0u64..6_000, 1 => 0u64..600_000];
    let (at, name) = (0usize..1000, 0u8..6);
    prop_oneof![
        6 => (at.clone(), name.clone(), kind).prop_map(|(a, b, c)| Step::Create(a, b, c)),
        2 => (at.clone(), at.clone(), name.clone()).prop_map(|(a, b, c)| Step::Link(a, b, c)),
        4 => (at.clone(), name.clone(), any::<bool>()).prop_map(|(a, b, c)| Step::Remove(a, b, c)),
        4 => (at.clone(), name.clone(), at.clone(), name, mode)
            .prop_map(|(a, b, c, d, e)| Step::Rename(a, b, c, d, e)),
        8 => (at.clone(), offset.clone(), length, any::<u8>()).prop_map(|(a, b, c, d)| Step::Write(a, b, c, d)),
        2 => (at.clone(), offset.clone()).prop_map(|(a, b)| Step::Truncate(a, b)),
        2 => (at.clone(), offset, 1u64..100_000).prop_map(|(a, b, c)| Step::Punch(a, b, c)),
        1 => (at.clone(), 0u16..0o777).prop_map(|(a, b)| Step::Mode(a, b)),
        2 => (at, 0u8..3, proptest::option::of(any::<u8>())).prop_map(|(a, b, c)| Step::Xattr(a, b, c)),
    ]
}

impl Default for Model {
    fn default() -> Self {
        let root = File {
            kind: FileType::Dir,
            mode: 0o755,
            nlink: 2,
            data: Vec::new(),
            xattrs: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        Model { files: [(0, root)].into(), next: 1 }
    }
}

impl Model {
    fn some(&self, at: usize, wanted: impl Fn(&File) -> bool) -> Option<usize> {
        let found: Vec<usize> =
            self.files.iter().filter(|(_, file)| wanted(file)).map(|(id, _)| *id).collect();
        (!found.is_empty()).then(|| found[at % found.len()])
    }

    fn folder(&self, at: usize) -> usize {
        self.some(at, |file| file.kind == FileType::Dir).expect("there is a root")
    }

    fn is_dir(&self, id: usize) -> bool {
        self.files[&id].kind == FileType::Dir
    }

    fn inside(&self, outer: usize, inner: usize) -> bool {
        outer == inner
            || self.files[&outer]
                .names
                .values()
                .any(|child| self.is_dir(*child) && self.inside(*child, inner))
    }

    fn drop_name(&mut self, dir: usize, name: &[u8]) {
        let id = self.files.get_mut(&dir).unwrap().names.remove(name).unwrap();
        let is_dir = self.is_dir(id);
        if is_dir {
            self.files.get_mut(&dir).unwrap().nlink -= 1;
        }
        let file = self.files.get_mut(&id).unwrap();
        file.nlink -= 1;
        if is_dir || file.nlink == 0 {
            self.files.remove(&id);
        }
    }

    fn give_name(&mut self, dir: usize, name: &[u8], id: usize) {
        let is_dir = self.is_dir(id);
        let folder = self.files.get_mut(&dir).unwrap();
        folder.names.insert(name.to_vec(), id);
        folder.nlink += u32::from(is_dir);
    }

    fn may_go(&self, id: usize, folder: bool) -> Result<(), Errno> {
        match (self.is_dir(id), folder) {
            (true, false) => Err(Errno::ISDIR),
            (false, true) => Err(Errno::NOTDIR),
            (true, true) if !self.files[&id].names.is_empty() => Err(Errno::NOTEMPTY),
            _ => Ok(()),
        }
    }
}

/// A workspace and its model.
pub struct Pair {
    pub live: Live,
    pub model: Model,
    /// The workspace's number of each of the model's files.
    pub inos: BTreeMap<usize, Ino>,
}

impl Pair {
    pub fn new(live: Live) -> Self {
        Pair { live, model: Model::default(), inos: [(0, Ino::ROOT)].into() }
    }

    /// Does a step on both; they have to agree on whether it works, and on why not.
    pub fn step(&mut self, step: &Step) {
        static REQUEST: AtomicU64 = AtomicU64::new(1);
        let who = Who { request: REQUEST.fetch_add(1, Ordering::Relaxed), uid: 1000, gid: 1000 };
        let (expected, seen) = self.both(step, who);
        assert_eq!(seen, expected, "{step:?}");
        // A change is remembered, and what was refused is not.
        assert!(self.live.done(who.request).is_none() || expected.is_ok(), "{step:?}");
    }

    fn both(&mut self, step: &Step, who: Who) -> (Result<(), Errno>, Result<(), Errno>) {
        let model = &mut self.model;
        let inos = &mut self.inos;
        let live = &self.live;
        let name = |number: u8| format!("name {number}").into_bytes();
        match *step {
            Step::Create(at, number, kind) => {
                let (dir, name) = (model.folder(at), name(number));
                let target: &[u8] = if kind == FileType::Symlink { b"to/where" } else { b"" };
                let new = New { kind, mode: 0o640, rdev: 0, target };
                let seen = live.create(who, inos[&dir], Some(&name), new);
                if model.files[&dir].names.contains_key(&name) {
                    return (Err(Errno::EXIST), seen.map(drop));
                }
                let file = File {
                    kind,
                    mode: 0o640,
                    nlink: 1 + u32::from(kind == FileType::Dir),
                    data: target.to_vec(),
                    xattrs: BTreeMap::new(),
                    names: BTreeMap::new(),
                };
                let id = model.next;
                model.next += 1;
                model.files.insert(id, file);
                model.give_name(dir, &name, id);
                (
                    Ok(()),
                    seen.map(|stat| {
                        inos.insert(id, stat.ino);
                    }),
                )
            }
            Step::Link(what, at, number) => {
                let (dir, name) = (model.folder(at), name(number));
                let Some(id) = model.some(what, |_| true) else { return (Ok(()), Ok(())) };
                let seen = live.link(who, inos[&id], inos[&dir], &name).map(drop);
                if model.is_dir(id) {
                    return (Err(Errno::PERM), seen);
                }
                if model.files[&dir].names.contains_key(&name) {
                    return (Err(Errno::EXIST), seen);
                }
                model.files.get_mut(&id).unwrap().nlink += 1;
                model.give_name(dir, &name, id);
                (Ok(()), seen)
            }
            Step::Remove(at, number, folder) => {
                let (dir, name) = (model.folder(at), name(number));
                let seen = live.remove(who, inos[&dir], &name, folder);
                let Some(&id) = model.files[&dir].names.get(&name) else { return (Err(Errno::NOENT), seen) };
                let expected = model.may_go(id, folder);
                if expected.is_ok() {
                    model.drop_name(dir, &name);
                }
                (expected, seen)
            }
            Step::Rename(at, number, to, as_number, mode) => {
                let (dir, to) = (model.folder(at), model.folder(to));
                let (name, as_name) = (name(number), name(as_number));
                let seen = live.rename(who, (inos[&dir], &name), (inos[&to], &as_name), mode);
                (rename(model, (dir, &name), (to, &as_name), mode), seen)
            }
            Step::Write(what, offset, len, byte) => {
                let Some(id) = model.some(what, |file| file.kind == FileType::File) else {
                    return (Ok(()), Ok(()));
                };
                let bytes: Vec<u8> = (0..len).map(|at| byte.wrapping_add((at / 7) as u8)).collect();
                let data = &mut model.files.get_mut(&id).unwrap().data;
                let end = offset as usize + len;
                if data.len() < end {
                    data.resize(end, 0);
                }
                data[offset as usize..end].copy_from_slice(&bytes);
                let written = live.write(who, inos[&id], offset, &bytes, false);
                (Ok(()), written.map(|written| assert_eq!(written, len)))
            }
            Step::Truncate(what, size) => {
                let Some(id) = model.some(what, |file| file.kind == FileType::File) else {
                    return (Ok(()), Ok(()));
                };
                model.files.get_mut(&id).unwrap().data.resize(size as usize, 0);
                let attrs = Attrs { size: Some(size), ..Attrs::default() };
                (Ok(()), live.set(who, inos[&id], attrs, false).map(drop))
            }
            Step::Punch(what, offset, len) => {
                let Some(id) = model.some(what, |file| file.kind == FileType::File) else {
                    return (Ok(()), Ok(()));
                };
                let data = &mut model.files.get_mut(&id).unwrap().data;
                let end = data.len().min((offset + len) as usize);
                if (offset as usize) < end {
                    data[offset as usize..end].fill(0);
                }
                (Ok(()), live.fallocate(who, inos[&id], offset..offset + len, true, true))
            }
            Step::Mode(what, mode) => {
                let id = model.some(what, |_| true).expect("there is a root");
                model.files.get_mut(&id).unwrap().mode = mode;
                let attrs = Attrs { mode: Some(mode), ..Attrs::default() };
                (Ok(()), live.set(who, inos[&id], attrs, false).map(drop))
            }
            Step::Xattr(what, number, value) => {
                let id = model.some(what, |_| true).expect("there is a root");
                let name = format!("user.{number}").into_bytes();
                let xattrs = &mut model.files.get_mut(&id).unwrap().xattrs;
                match value {
                    Some(byte) => {
                        xattrs.insert(name.clone(), vec![byte; 10]);
                        (Ok(()), live.set_xattr(who, inos[&id], &name, &[byte; 10], Having::Any))
                    }
                    None => {
                        let expected = xattrs.remove(&name).map(drop).ok_or(Errno::NODATA);
                        (expected, live.remove_xattr(who, inos[&id], &name))
                    }
                }
            }
        }
    }

    /// Everything in the workspace is as in the model.
    pub fn compare(&self) {
        self.compare_with(&self.model);
    }

    pub fn compare_with(&self, model: &Model) {
        let mut seen = BTreeMap::new();
        self.compare_file(model, 0, Ino::ROOT, &mut seen);
        assert_eq!(seen.len(), model.files.len());
    }

    fn compare_file(&self, model: &Model, id: usize, ino: Ino, seen: &mut BTreeMap<usize, Ino>) {
        if let Some(before) = seen.insert(id, ino) {
            assert_eq!(before, ino, "two names of one file");
            return;
        }
        let file = &model.files[&id];
        let stat = self.live.stat(ino).unwrap();
        let inode = stat.inode;
        assert_eq!((inode.kind, inode.mode, inode.nlink), (file.kind, file.mode, file.nlink), "file {id}");
        let mut xattrs = BTreeMap::new();
        for name in self.live.xattrs(ino).unwrap().split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            xattrs.insert(name.to_vec(), self.live.xattr(ino, name).unwrap().to_vec());
        }
        assert_eq!(xattrs, file.xattrs, "file {id}");
        match file.kind {
            FileType::File => {
                assert_eq!(inode.size, file.data.len() as u64, "file {id}");
                assert!(contents(&self.live, ino, 0, inode.size + 10) == file.data, "file {id}");
                let (from, to) = (inode.size / 3, inode.size / 2);
                let part = contents(&self.live, ino, from, to - from);
                assert!(part == file.data[from as usize..to as usize], "file {id}");
            }
            FileType::Symlink => assert_eq!(self.live.readlink(ino).unwrap(), file.data),
            FileType::Dir => {
                let mut listed = BTreeMap::new();
                let mut from = 0;
                loop {
                    let step = self.live.list(ino, from, 3).unwrap();
                    let Some(last) = step.last() else { break };
                    assert!(step.is_sorted_by_key(|name| name.cookie) && step[0].cookie >= from);
                    from = last.cookie + 1;
                    for name in step {
                        let found = self.live.lookup(ino, &name.name).unwrap().expect("it is listed");
                        assert_eq!((found.ino, found.inode.kind), (name.ino, name.kind));
                        assert!(
                            listed.insert(name.name.to_vec(), name.ino).is_none(),
                            "a name is listed once"
                        );
                    }
                }
                let names: Vec<&Vec<u8>> = listed.keys().collect();
                assert_eq!(names, file.names.keys().collect::<Vec<_>>(), "folder {id}");
                for (name, child) in &file.names {
                    if file.kind == FileType::Dir && model.is_dir(*child) {
                        assert_eq!(self.live.parent(listed[name]).unwrap(), ino);
                    }
                    self.compare_file(model, *child, listed[name], seen);
                }
            }
            _ => {}
        }
    }

    /// The numbers of the model's files, found by their names: for a workspace opened anew.
    pub fn find_inos(&mut self) {
        let mut inos = BTreeMap::from([(0, Ino::ROOT)]);
        let mut look = vec![0];
        while let Some(id) = look.pop() {
            for (name, child) in &self.model.files[&id].names {
                let found = self.live.lookup(inos[&id], name).unwrap().expect("the model has it");
                inos.insert(*child, found.ino);
                if self.model.is_dir(*child) {
                    look.push(*child);
                }
            }
        }
        self.inos = inos;
    }
}

fn rename(
    model: &mut Model,
    (dir, name): (usize, &[u8]),
    (to, as_name): (usize, &[u8]),
    mode: RenameMode,
) -> Result<(), Errno> {
    let moved = *model.files[&dir].names.get(name).ok_or(Errno::NOENT)?;
    let there = model.files[&to].names.get(as_name).copied();
    if model.is_dir(moved) && dir != to && model.inside(moved, to) {
        return Err(Errno::INVAL);
    }
    match (mode, there) {
        (RenameMode::NoReplace, Some(_)) => return Err(Errno::EXIST),
        (RenameMode::Exchange, None) => return Err(Errno::NOENT),
        (RenameMode::Exchange, Some(there)) => {
            if model.is_dir(there) && dir != to && model.inside(there, dir) {
                return Err(Errno::INVAL);
            }
            for (folder, gone, name, come) in [(dir, moved, name, there), (to, there, as_name, moved)] {
                let change = i64::from(model.is_dir(come)) - i64::from(model.is_dir(gone));
                let folder = model.files.get_mut(&folder).unwrap();
                folder.nlink = (i64::from(folder.nlink) + change) as u32;
                folder.names.insert(name.to_vec(), come);
            }
            return Ok(());
        }
        (_, Some(there)) if there == moved => return Ok(()),
        (_, Some(there)) => {
            model.may_go(there, model.is_dir(moved))?;
            model.drop_name(to, as_name);
        }
        (_, None) => {}
    }
    let is_dir = u32::from(model.is_dir(moved));
    let folder = model.files.get_mut(&dir).unwrap();
    folder.names.remove(name);
    folder.nlink -= is_dir;
    model.give_name(to, as_name, moved);
    Ok(())
}

/// A part of a file.
pub fn contents(live: &Live, ino: Ino, offset: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in live.read(ino, offset, len, &|| {}).unwrap() {
        match part {
            Part::Bytes(part) => bytes.extend_from_slice(&part),
            Part::Zeros(count) => bytes.resize(bytes.len() + count as usize, 0),
        }
    }
    bytes
}
