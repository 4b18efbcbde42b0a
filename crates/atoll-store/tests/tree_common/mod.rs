//! Maps and file systems for the tests of trees.
#![allow(dead_code)]

pub mod model;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use atoll_store::tree::{Dirent, Extent, FileType, Inode, Key, Node, Time, Value, scan};
use atoll_store::{BirthId, Hash, Ino, Num, Objects, Result, Sink};
use bytes::Bytes;
use proptest::prelude::*;

pub type Map = BTreeMap<Vec<u8>, Value>;

pub fn ino(number: u64) -> Ino {
    Ino::from_key(number).unwrap()
}

pub fn inode(kind: FileType, number: u64) -> Inode {
    let time = Time { sec: 1_700_000_000 + number as i64, nsec: (number % 1_000_000_000) as u32 };
    Inode {
        birth: BirthId(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        kind,
        mode: if kind == FileType::Dir { 0o755 } else { 0o644 },
        uid: 1000,
        gid: 1000,
        size: 0,
        nlink: if kind == FileType::Dir { 2 } else { 1 },
        rdev: 0,
        mtime: time,
        ctime: time,
        btime: time,
    }
}

pub fn time() -> impl Strategy<Value = Time> {
    let sec = prop_oneof![1_699_999_000i64..1_700_001_000, any::<i64>()];
    (sec, 0u32..1_000_000_000).prop_map(|(sec, nsec)| Time { sec, nsec })
}

pub fn file_type() -> impl Strategy<Value = FileType> {
    (1u8..=7).prop_map(|number| FileType::from_number(number).unwrap())
}

pub fn any_inode() -> impl Strategy<Value = Inode> {
    let owner = prop_oneof![Just(0u32), Just(1000), any::<u32>()];
    let times = prop_oneof![
        time().prop_map(|time| [time; 3]),
        [time(), time(), time()],
        (time(), time()).prop_map(|(a, b)| [a, b, b]),
    ];
    (
        (any::<u64>(), file_type(), 0u16..=0o7777, owner, any::<u32>()),
        (
            any::<u64>(),
            prop_oneof![Just(1u32), Just(2), any::<u32>()],
            prop_oneof![Just(0u64), any::<u64>()],
            times,
        ),
    )
        .prop_map(|((birth, kind, mode, uid, gid), (size, nlink, rdev, [mtime, ctime, btime]))| Inode {
            birth: BirthId(birth),
            kind,
            mode,
            uid,
            gid,
            size,
            nlink,
            rdev,
            mtime,
            ctime,
            btime,
        })
}

pub fn any_ino() -> impl Strategy<Value = Ino> {
    prop_oneof![1u64..40, 1u64..1 << 50].prop_map(ino)
}

pub fn name() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop_oneof![
        proptest::collection::vec(1u8..=255, 1..12),
        proptest::collection::vec(b'a'..=b'c', 1..255)
    ];
    bytes.prop_filter("a name", |name| atoll_store::tree::key::is_name(name))
}

/// Any entry that a tree can hold, biased to small keys so that edits meet old items.
pub fn entry() -> impl Strategy<Value = (Vec<u8>, Value)> {
    let bytes =
        prop_oneof![9 => 1usize..200, 1 => 1usize..70_000].prop_map(|len| vec![7u8; len].into_boxed_slice());
    let extent = prop_oneof![
        bytes.clone().prop_map(Extent::Inline),
        (1u64..1 << 40, 1u32..).prop_map(|(num, len)| Extent::Chunk { num: Num(num), len }),
    ];
    prop_oneof![
        (any_ino(), any_inode()).prop_map(|(ino, inode)| (Key::Inode(ino).to_vec(), Value::Inode(inode))),
        (any_ino(), any_ino(), name())
            .prop_map(|(ino, dir, name)| (Key::Parent(ino, dir, &name).to_vec(), Value::Parent)),
        (any_ino(), name(), bytes)
            .prop_map(|(ino, name, bytes)| (Key::Xattr(ino, &name).to_vec(), Value::Xattr(bytes))),
        (any_ino(), name(), any_ino(), file_type(), 1u64..).prop_map(|(dir, name, ino, kind, cookie)| (
            Key::Dirent(dir, &name).to_vec(),
            Value::Dirent(Dirent { ino, kind, cookie })
        )),
        (any_ino(), prop_oneof![Just(0u64), any::<u64>()], extent)
            .prop_map(|(ino, offset, extent)| (Key::Extent(ino, offset).to_vec(), Value::Extent(extent))),
    ]
}

/// The keys and values of `files` files in folders of 100, each with a chunk, as an import makes them.
pub fn plain_tree(files: u64) -> Map {
    let mut map = Map::new();
    let mut put = |key: Key<'_>, value: Value| {
        map.insert(key.to_vec(), value);
    };
    put(Key::Inode(Ino::ROOT), Value::Inode(inode(FileType::Dir, 1)));
    for number in 0..files {
        let dir = ino(1_000_000 + number / 100 * 101);
        if number % 100 == 0 {
            let name = format!("folder-{}", number / 100);
            let entry = Dirent { ino: dir, kind: FileType::Dir, cookie: number / 100 + 1 };
            put(Key::Dirent(Ino::ROOT, name.as_bytes()), Value::Dirent(entry));
            put(Key::Inode(dir), Value::Inode(inode(FileType::Dir, number)));
            put(Key::Parent(dir, Ino::ROOT, name.as_bytes()), Value::Parent);
        }
        let file = ino(dir.key() + 1 + number % 100);
        let name = format!("file-{number}.txt");
        let entry = Dirent { ino: file, kind: FileType::File, cookie: number % 100 + 1 };
        put(Key::Dirent(dir, name.as_bytes()), Value::Dirent(entry));
        put(Key::Inode(file), Value::Inode(Inode { size: 4096, ..inode(FileType::File, number) }));
        put(Key::Parent(file, dir, name.as_bytes()), Value::Parent);
        put(Key::Extent(file, 0), Value::Extent(Extent::Chunk { num: Num(number + 1), len: 4096 }));
    }
    map
}

pub fn edits(map: &Map) -> impl Iterator<Item = (Vec<u8>, Option<Value>)> + '_ {
    map.iter().map(|(key, value)| (key.clone(), Some(value.clone())))
}

pub fn collect(objects: &dyn Objects, root: Num) -> Map {
    scan(objects, root, &[], None).map(Result::unwrap).collect()
}

/// Nodes in memory; any number below [`NODES`] is a chunk that exists by name only. Every node that is stored is
/// checked to survive both codings, and counted.
#[derive(Default)]
pub struct Nodes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    nodes: Vec<(Hash, Arc<Node>)>,
    by_hash: HashMap<Hash, Num>,
    read: Vec<Num>,
    put: Vec<Option<Num>>,
}

pub const NODES: u64 = 1 << 42;

impl Nodes {
    /// The nodes read and what the nodes written replaced, since the last time.
    pub fn take_counts(&self) -> (Vec<Num>, Vec<Option<Num>>) {
        let mut state = self.state.lock().unwrap();
        (std::mem::take(&mut state.read), std::mem::take(&mut state.put))
    }

    /// Puts another node in a node's place: damage.
    pub fn replace(&self, num: Num, node: Arc<Node>) {
        self.state.lock().unwrap().nodes[(num.0 - NODES) as usize].1 = node;
    }
}

impl Objects for Nodes {
    fn node(&self, num: Num) -> Result<Arc<Node>> {
        let mut state = self.state.lock().unwrap();
        state.read.push(num);
        Ok(state.nodes[(num.0 - NODES) as usize].1.clone())
    }
    fn chunk(&self, num: Num) -> Result<Bytes> {
        Ok(Bytes::from(num.0.to_le_bytes().to_vec()))
    }
    fn hash(&self, num: Num) -> Result<Hash> {
        if num.0 < NODES {
            return Ok(Hash::of(&(num.0 % TWINS).to_le_bytes()));
        }
        Ok(self.state.lock().unwrap().nodes[(num.0 - NODES) as usize].0)
    }
    fn find(&self, hash: &Hash) -> Result<Option<Num>> {
        Ok(self.state.lock().unwrap().by_hash.get(hash).copied())
    }
}

/// Chunks whose numbers differ by this have one hash, as when two processes stored the same bytes at once.
pub const TWINS: u64 = 1 << 41;

impl Sink for Nodes {
    fn put_node(&self, node: Node, replaces: Option<Num>) -> Result<Num> {
        assert_eq!(Node::from_stored(&node.stored())?, node);
        let canonical = node.canonical(self)?;
        let mut named = if node.level() == 0 { node.chunks() } else { node.children() }.into_iter();
        let found = Node::from_canonical(&canonical, |_| Ok(named.next().expect("as many as it names")))?;
        assert_eq!(found, node);
        let hash = Hash::of_node(&canonical);
        let mut state = self.state.lock().unwrap();
        state.put.push(replaces);
        if let Some(num) = state.by_hash.get(&hash) {
            return Ok(*num);
        }
        let num = Num(NODES + state.nodes.len() as u64);
        state.nodes.push((hash, Arc::new(node)));
        state.by_hash.insert(hash, num);
        Ok(num)
    }
    fn put_chunk(&self, bytes: &[u8]) -> Result<Num> {
        Ok(Num(u64::from_le_bytes(bytes[..8].try_into().unwrap())))
    }
}

/// How many cases a property is tried with: `PROPTEST_CASES`, or as many as are quick enough.
pub fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}
