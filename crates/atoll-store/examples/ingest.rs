//! Times the store's own part of an import: `ingest FOLDER STORE [THREADS]` reads the files directly in FOLDER,
//! stores them in a store (made if it is not there) and prints the milliseconds of each step.

use std::path::{Path, PathBuf};
use std::time::Instant;

use atoll_store::store::{NewOperation, Profile, RefChange, RefName, RefState};
use atoll_store::tree::{self, ContentSum, Dirent, Extent, FileType, Inode, Key, Time, Value};
use atoll_store::{BirthId, Hash, Ino, NewCommit, Num, Objects, Result, Store, Summary};

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(dir)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: ingest FOLDER STORE [THREADS]");
        std::process::exit(2);
    };
    let threads: usize = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(2);
    let start = Instant::now();
    let mut last = start;
    let mut lap = |what: &str| {
        println!("{what}: {} ms", last.elapsed().as_millis());
        last = Instant::now();
    };
    let store = Store::open(Path::new(&dir)).or_else(|_| Store::create(Path::new(&dir), Profile::Full))?;
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(&folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    paths.sort();
    let writer = store.writer()?;
    lap("open and list");
    let per_thread = paths.len().div_ceil(threads).max(1);
    let chunks: Vec<(Num, u64)> = std::thread::scope(|scope| {
        let parts: Vec<_> =
            paths.chunks(per_thread).map(|part| scope.spawn(|| read(&writer, part))).collect();
        parts.into_iter().map(|part| part.join().expect("a reader panicked")).collect::<Result<Vec<_>>>()
    })?
    .concat();
    lap("read, hash, group, compress");
    let time = Time { sec: 1_700_000_000, nsec: 0 };
    let mut edits = Vec::with_capacity(paths.len() * 4);
    let inode = |kind, size, birth| Inode {
        birth: BirthId(birth),
        kind,
        mode: 0o644,
        uid: 0,
        gid: 0,
        size,
        nlink: 1,
        rdev: 0,
        mtime: time,
        ctime: time,
        btime: time,
    };
    edits.push((Key::Inode(Ino::ROOT).to_vec(), Some(Value::Inode(inode(FileType::Dir, 0, 1)))));
    for (index, (path, (num, len))) in paths.iter().zip(&chunks).enumerate() {
        let name = path.file_name().expect("a listed file has a name").as_encoded_bytes();
        let ino = Ino::new(3, 1000 + index as u32);
        let dirent = Dirent { ino, kind: FileType::File, cookie: index as u64 + 1 };
        let birth = (index as u64 + 2).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        edits.push((Key::Dirent(Ino::ROOT, name).to_vec(), Some(Value::Dirent(dirent))));
        edits.push((Key::Inode(ino).to_vec(), Some(Value::Inode(inode(FileType::File, *len, birth)))));
        edits.push((Key::Parent(ino, Ino::ROOT, name).to_vec(), Some(Value::Parent)));
        let extent = Extent::Chunk { num: *num, len: *len as u32 };
        edits.push((Key::Extent(ino, 0).to_vec(), Some(Value::Extent(extent))));
    }
    edits.sort_by(|a, b| a.0.cmp(&b.0));
    lap("edits");
    let root = tree::edit(&writer, None, edits)?;
    lap("tree");
    let name = RefName::Branch("main".to_owned());
    let old = store.get_ref(&name)?;
    let commit = NewCommit {
        root,
        content: ContentSum::default(),
        summary: Summary::default(),
        parents: old.iter().map(|state| state.commit).collect(),
        author: "ingest".to_owned(),
        time,
        utc_offset: 0,
        message: String::new(),
        meta: Default::default(),
    };
    let id = Hash::of_commit(&commit.encode(&writer.hash(root)?));
    let new = Some(RefState { commit: id, base: id, folder: None });
    let changes = vec![RefChange { name, old, new }];
    let published = store.publish(
        writer,
        NewOperation { kind: "ingest".to_owned(), commits: vec![commit], changes, ..Default::default() },
    )?;
    lap("publish");
    println!("whole: {} ms, {} bytes stored", start.elapsed().as_millis(), published.stored_bytes);
    let mut forks: Vec<u128> = Vec::new();
    for number in 0..101 {
        let start = Instant::now();
        let new = Some(RefState { commit: id, base: id, folder: None });
        let name = RefName::Branch(format!("fork-{}-{number}", published.seq));
        let changes = vec![RefChange { name, old: None, new }];
        store.publish(
            store.writer()?,
            NewOperation { kind: "fork".to_owned(), changes, ..Default::default() },
        )?;
        forks.push(start.elapsed().as_micros());
    }
    forks.sort_unstable();
    println!("fork: median {} us, slowest {} us", forks[50], forks[100]);
    Ok(())
}

fn read(writer: &atoll_store::Writer, paths: &[PathBuf]) -> Result<Vec<(Num, u64)>> {
    let mut batch = writer.batch();
    let mut chunks = Vec::with_capacity(paths.len());
    for path in paths {
        let bytes = std::fs::read(path)?;
        chunks.push((batch.put(&bytes)?, bytes.len() as u64));
    }
    batch.finish()?;
    Ok(chunks)
}
