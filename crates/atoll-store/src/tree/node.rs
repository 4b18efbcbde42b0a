//! A node: its canonical form (with hashes, the same in every store; hashed by [`Hash::of_node`] it is the node's name), its
//! stored form (with store-local numbers), and the decoded form that everything else works on.
//!
//! # Bytes
//!
//! Both forms are the same but for references. Numbers are unsigned LEB128 of at most 64 bits in their
//! shortest form (*varint*), or that of the zigzag-coded signed number (*signed*).
//!
//! ```text
//! node      = 1 (format), level (1 byte; 0: leaf), count (varint), count items
//! item      = shared (varint), length (varint), length bytes of key, value
//! value     = reference                                  in an inner node: the child that starts with this key
//!           | by the key's kind                          in a leaf:
//!   INODE   = flags (1 byte), mode, uid, gid, size (varints), [nlink], [rdev] (varints),
//!             mtime seconds (signed), mtime nanoseconds (varint), [ctime], [btime], birth id (8 bytes, little-endian)
//!   PARENT  = nothing
//!   XATTR   = length (varint), bytes
//!   DIRENT  = file type (1 byte), inode number, cookie (signed differences from the entry before in this node, at first from 0)
//!   EXTENT  = length (varint, not 0), bytes                                     inline
//!           | 0, length (varint, not 0), reference                              chunk
//! reference = canonical: 32 bytes of hash; stored: signed difference from the reference before in this node, at first from 0
//! ```
//!
//! A key is coded against the key before it in the node (at first against the empty key): `shared` is the length
//! of their longest common prefix, the bytes are the rest. An inode's flags: bits 0 to 2 the file type; 3: ctime
//! equals mtime; 4: btime equals ctime; 5: nlink is the usual one (2 for a folder, else 1); 6: rdev is there (it
//! is not 0). What a flag makes needless is absent. ctime is coded as signed differences of seconds and of
//! nanoseconds from mtime, btime as those from ctime.

use crate::tree::codec::{
    FoundRefs, GetRef, HashRefs, LocalRefs, PutRef, Reader, ValueKind, ValueReader, ValueWriter, get_chunk,
    get_value, put_value, put_varint,
};
use crate::tree::{Key, Value};
use crate::{Error, Hash, Num, Objects, Result};

/// The first byte of every node.
const FORMAT: u8 = 1;
/// No tree is higher: 6 items a node at least, so that is more items than there are inode numbers.
pub(crate) const MAX_LEVEL: u8 = 24;

/// A decoded node. A leaf (level 0) maps keys to values, an inner node maps the first key of each child to the
/// child. Items are in ascending order of their keys.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Node {
    level: u8,
    keys: Vec<u8>,
    key_ends: Vec<u32>,
    values: Vec<u8>,
    value_ends: Vec<u32>,
    children: Vec<Num>,
}

impl Node {
    /// An empty node; level 0 is a leaf.
    pub fn new(level: u8) -> Self {
        Node { level, ..Node::default() }
    }

    /// Its height over the leaves; a leaf's is 0.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// How many items it has.
    pub fn len(&self) -> usize {
        self.key_ends.len()
    }

    /// Whether it has none: only the empty tree's root.
    pub fn is_empty(&self) -> bool {
        self.key_ends.is_empty()
    }

    /// The encoded key of item `at`.
    pub fn key(&self, at: usize) -> &[u8] {
        span(&self.keys, &self.key_ends, at)
    }

    /// The value of item `at` of a leaf.
    pub fn value(&self, at: usize) -> Value {
        let kind = self.kind(at);
        get_value(kind, self.raw(at)).expect("values are checked when they enter a node")
    }

    /// The child at `at` of an inner node.
    pub fn child(&self, at: usize) -> Num {
        self.children[at]
    }

    /// The place of a key, or where it would have to stand.
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low.midpoint(high);
            match self.key(middle).cmp(key) {
                std::cmp::Ordering::Equal => return Ok(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Which child of an inner node covers a key: the last one that does not start after it, else the first.
    pub fn covering(&self, key: &[u8]) -> usize {
        match self.search(key) {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        }
    }

    /// The child nodes it names (empty for a leaf).
    pub fn children(&self) -> Vec<Num> {
        self.children.clone()
    }

    /// The chunks it names (empty for an inner node).
    pub fn chunks(&self) -> Vec<Num> {
        let extents = (0..self.value_ends.len()).filter(|&at| self.kind(at) == ValueKind::Extent);
        extents.filter_map(|at| get_chunk(self.raw(at))).map(|(num, _)| num).collect()
    }

    /// Bytes of memory it takes, for caches.
    pub fn memory(&self) -> usize {
        let offsets = self.key_ends.capacity() + self.value_ends.capacity();
        let bytes = self.keys.capacity() + self.values.capacity();
        size_of::<Node>() + bytes + 4 * offsets + 8 * self.children.capacity()
    }

    /// Appends an item to a leaf. Keys must ascend; the key and the value must fit each other and be valid.
    pub(crate) fn push(&mut self, key: &[u8], value: &Value) {
        debug_assert!(self.level == 0 && ValueKind::of_key(key) == Some(ValueKind::of_value(value)));
        self.push_key(key);
        put_value(&mut self.values, value);
        self.value_ends.push(self.values.len() as u32);
    }

    /// Appends an item of another leaf.
    pub(crate) fn push_raw(&mut self, key: &[u8], raw: &[u8]) {
        self.push_key(key);
        self.values.extend_from_slice(raw);
        self.value_ends.push(self.values.len() as u32);
    }

    /// Appends a child to an inner node.
    pub(crate) fn push_child(&mut self, key: &[u8], child: Num) {
        debug_assert!(self.level > 0);
        self.push_key(key);
        self.children.push(child);
    }

    fn push_key(&mut self, key: &[u8]) {
        debug_assert!(self.is_empty() || self.key(self.len() - 1) < key);
        self.keys.extend_from_slice(key);
        self.key_ends.push(self.keys.len() as u32);
    }

    /// The form of a value in memory.
    pub(crate) fn raw(&self, at: usize) -> &[u8] {
        span(&self.values, &self.value_ends, at)
    }

    pub(crate) fn kind(&self, at: usize) -> ValueKind {
        ValueKind::of_key(self.key(at)).expect("keys are checked when they enter a node")
    }

    /// The canonical form; asks `objects` for the hashes of the children and chunks it names.
    ///
    /// # Errors
    /// Those of [`Objects::hash`].
    pub fn canonical(&self, objects: &dyn Objects) -> Result<Vec<u8>> {
        self.write(HashRefs(objects), 32)
    }

    /// The stored form, before compression.
    pub fn stored(&self) -> Vec<u8> {
        self.write(LocalRefs::default(), 2).expect("local references cannot fail")
    }

    /// From the stored form. Safe on any bytes.
    ///
    /// # Errors
    /// `Damaged` when the bytes are not a node.
    pub fn from_stored(bytes: &[u8]) -> Result<Node> {
        Self::read(bytes, LocalRefs::default())
    }

    /// From the canonical form; `find` gives the number for each hash it names. Safe on any bytes; bytes that
    /// are accepted give themselves back as [`Node::canonical`].
    ///
    /// # Errors
    /// `Damaged` when the bytes are not a node; what `find` returns.
    pub fn from_canonical(bytes: &[u8], find: impl FnMut(Hash) -> Result<Num>) -> Result<Node> {
        Self::read(bytes, FoundRefs(find))
    }

    fn write(&self, refs: impl PutRef, reference: usize) -> Result<Vec<u8>> {
        let room = self.keys.len() + self.values.len() + self.len() * (4 + reference) + 8;
        let mut out = Vec::with_capacity(room);
        let mut values = ValueWriter::new(refs);
        out.extend_from_slice(&[FORMAT, self.level]);
        put_varint(&mut out, self.len() as u64);
        let mut before: &[u8] = &[];
        for at in 0..self.len() {
            let key = self.key(at);
            let shared = common_prefix(before, key);
            put_varint(&mut out, shared as u64);
            put_varint(&mut out, (key.len() - shared) as u64);
            out.extend_from_slice(&key[shared..]);
            match self.level {
                0 => values.put(&mut out, self.kind(at), self.raw(at))?,
                _ => values.put_ref(&mut out, self.children[at])?,
            }
            before = key;
        }
        Ok(out)
    }

    fn read(bytes: &[u8], refs: impl GetRef) -> Result<Node> {
        let bad = || Error::damaged(format!("A tree node of {} bytes is malformed.", bytes.len()));
        let mut from = Reader::new(bytes);
        if from.byte() != Some(FORMAT) {
            return Err(bad());
        }
        let level = from.byte().filter(|level| *level <= MAX_LEVEL).ok_or_else(bad)?;
        // An item has two bytes at least, so a count cannot make this allocate more than the bytes deserve.
        let count =
            from.varint().filter(|count| *count <= from.remaining() as u64 / 2).ok_or_else(bad)? as usize;
        if count == 0 && level > 0 {
            return Err(bad());
        }
        let mut node = Node::new(level);
        node.key_ends.reserve_exact(count);
        node.keys.reserve(count * 24);
        if level == 0 {
            node.value_ends.reserve_exact(count);
            node.values.reserve(bytes.len());
        } else {
            node.children.reserve_exact(count);
        }
        let mut values = ValueReader::new(refs);
        for _ in 0..count {
            node.read_key(&mut from).ok_or_else(bad)?;
            if level > 0 {
                let child = values.get_ref(&mut from)?.ok_or_else(bad)?;
                node.children.push(child);
                continue;
            }
            let kind = ValueKind::of_key(node.key(node.len() - 1)).ok_or_else(bad)?;
            values.get(&mut from, kind, &mut node.values)?.ok_or_else(bad)?;
            node.value_ends.push(u32::try_from(node.values.len()).map_err(|_| bad())?);
        }
        if !from.is_empty() {
            return Err(bad());
        }
        node.keys.shrink_to_fit();
        node.values.shrink_to_fit();
        Ok(node)
    }

    /// Reads a key; `None` when it is no key, does not ascend, or is not coded in the one right way.
    fn read_key(&mut self, from: &mut Reader<'_>) -> Option<()> {
        let shared = usize::try_from(from.varint()?).ok()?;
        let rest = usize::try_from(from.varint()?).ok().and_then(|len| from.take(len))?;
        let before = self.key_ends.len().checked_sub(1).map(|at| self.key(at)).unwrap_or_default();
        if shared > before.len() || before.get(shared) >= rest.first() {
            return None;
        }
        let start = self.keys.len() - before.len();
        self.keys.extend_from_within(start..start + shared);
        self.keys.extend_from_slice(rest);
        self.key_ends.push(u32::try_from(self.keys.len()).ok()?);
        Key::decode(self.key(self.len() - 1)).is_ok().then_some(())
    }
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let items = (0..self.len()).map(|at| {
            let value = if self.level == 0 {
                format!("{:?}", self.value(at))
            } else {
                format!("{:?}", self.child(at))
            };
            (Key::decode(self.key(at)), value)
        });
        write!(f, "level {} ", self.level)?;
        f.debug_map().entries(items).finish()
    }
}

fn span<'a>(bytes: &'a [u8], ends: &[u32], at: usize) -> &'a [u8] {
    let start = if at == 0 { 0 } else { ends[at - 1] as usize };
    &bytes[start..ends[at] as usize]
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}
