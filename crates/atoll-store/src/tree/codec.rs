//! The bytes of single items: variable-length integers, values, and the two codings of a reference to
//! another object. [`super::node`] puts them together; the exact bytes are written down there.

use crate::tree::{Dirent, Extent, FileType, Inode, Time, Value};
use crate::{BirthId, Hash, Ino, Num, Objects, Result};

/// Reads from untrusted bytes; `None` means they end too early or are not in the one form that is written.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { bytes }
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len()
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.bytes.split_first()?;
        self.bytes = rest;
        Some(*first)
    }

    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(taken)
    }

    pub fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// LEB128, at most 64 bits, the shortest form only: one number has one form, so a node has one too.
    pub fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 || shift > 0 && byte == 0 {
                return None;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub fn signed(&mut self) -> Option<i64> {
        let coded = self.varint()?;
        Some((coded >> 1) as i64 ^ -((coded & 1) as i64))
    }

    fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.varint()?).ok()
    }
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_varint(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// How a reference to another object is written.
pub(crate) trait PutRef {
    fn put(&mut self, out: &mut Vec<u8>, num: Num) -> Result<()>;
}

/// How a reference is read. `Ok(None)`: the bytes end too early.
pub(crate) trait GetRef {
    fn get(&mut self, from: &mut Reader<'_>) -> Result<Option<Num>>;
}

/// Stored form: the number, as the difference from the one before it in this node (new files' chunks come one
/// after the other, so most differences are 1).
#[derive(Default)]
pub(crate) struct LocalRefs(u64);

impl PutRef for LocalRefs {
    fn put(&mut self, out: &mut Vec<u8>, num: Num) -> Result<()> {
        put_signed(out, num.0.wrapping_sub(self.0) as i64);
        self.0 = num.0;
        Ok(())
    }
}

impl GetRef for LocalRefs {
    fn get(&mut self, from: &mut Reader<'_>) -> Result<Option<Num>> {
        let Some(step) = from.signed() else { return Ok(None) };
        self.0 = self.0.wrapping_add(step as u64);
        Ok(Some(Num(self.0)))
    }
}

/// Canonical form: the hash.
pub(crate) struct HashRefs<'a>(pub &'a dyn Objects);

impl PutRef for HashRefs<'_> {
    fn put(&mut self, out: &mut Vec<u8>, num: Num) -> Result<()> {
        out.extend_from_slice(&self.0.hash(num)?.0);
        Ok(())
    }
}

/// Canonical form as it comes from elsewhere: the caller knows (or makes) a number for each hash.
pub(crate) struct FoundRefs<F>(pub F);

impl<F: FnMut(Hash) -> Result<Num>> GetRef for FoundRefs<F> {
    fn get(&mut self, from: &mut Reader<'_>) -> Result<Option<Num>> {
        match from.take(32).and_then(|bytes| bytes.try_into().ok()) {
            Some(bytes) => Ok(Some((self.0)(Hash(bytes))?)),
            None => Ok(None),
        }
    }
}

/// In memory a value is kept in a form that needs no neighbours: as in the canonical form, but a reference is
/// the number in 8 bytes, a folder entry holds its numbers whole, attributes and inline contents have no length.
pub(crate) fn put_value(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Inode(inode) => put_inode(out, inode),
        Value::Parent => {}
        Value::Xattr(bytes) => out.extend_from_slice(bytes),
        Value::Dirent(dirent) => {
            out.extend_from_slice(&dirent.ino.key().to_le_bytes());
            out.extend_from_slice(&dirent.cookie.to_le_bytes());
            out.push(dirent.kind as u8);
        }
        Value::Extent(Extent::Inline(bytes)) => {
            out.push(INLINE);
            out.extend_from_slice(bytes);
        }
        Value::Extent(Extent::Chunk { num, len }) => {
            out.push(CHUNK);
            out.extend_from_slice(&num.0.to_le_bytes());
            out.extend_from_slice(&len.to_le_bytes());
        }
    }
}

const CHUNK: u8 = 0;
const INLINE: u8 = 1;

/// What a value adds to its node's size in the boundary rule: independent of local numbers.
pub(crate) fn weight(kind: ValueKind, raw: &[u8]) -> usize {
    match kind {
        ValueKind::Extent if raw.first() == Some(&CHUNK) => 36,
        _ => raw.len(),
    }
}

/// Which variant of [`Value`] a key's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    Inode = 1,
    Parent,
    Xattr,
    Dirent,
    Extent,
}

impl ValueKind {
    /// By the key's kind byte.
    pub fn of_key(key: &[u8]) -> Option<Self> {
        use ValueKind::*;
        [Inode, Parent, Xattr, Dirent, Extent].into_iter().find(|kind| key.get(8) == Some(&(*kind as u8)))
    }

    pub fn of_value(value: &Value) -> Self {
        match value {
            Value::Inode(_) => ValueKind::Inode,
            Value::Parent => ValueKind::Parent,
            Value::Xattr(_) => ValueKind::Xattr,
            Value::Dirent(_) => ValueKind::Dirent,
            Value::Extent(_) => ValueKind::Extent,
        }
    }
}

/// A value from its form in memory.
pub(crate) fn get_value(kind: ValueKind, raw: &[u8]) -> Option<Value> {
    Some(match kind {
        ValueKind::Inode => Value::Inode(get_inode(&mut Reader::new(raw))?),
        ValueKind::Parent => Value::Parent,
        ValueKind::Xattr => Value::Xattr(raw.into()),
        ValueKind::Dirent => Value::Dirent(get_dirent(raw)?),
        ValueKind::Extent => Value::Extent(match raw.split_first()? {
            (&INLINE, bytes) => Extent::Inline(bytes.into()),
            _ => {
                let (num, len) = get_chunk(raw)?;
                Extent::Chunk { num, len }
            }
        }),
    })
}

/// The chunk that an extent's form in memory names.
pub(crate) fn get_chunk(raw: &[u8]) -> Option<(Num, u32)> {
    let (&CHUNK, rest) = raw.split_first()? else { return None };
    let (num, len) = rest.split_first_chunk::<8>()?;
    Some((Num(u64::from_le_bytes(*num)), u32::from_le_bytes(len.try_into().ok()?)))
}

fn get_dirent(raw: &[u8]) -> Option<Dirent> {
    let mut from = Reader::new(raw);
    let ino = Ino::from_key(from.u64()?)?;
    let cookie = from.u64()?;
    let kind = FileType::from_number(from.byte()?)?;
    Some(Dirent { ino, kind, cookie })
}

/// Turns values from memory into a node's bytes. Folder entries are written as steps from the entry before.
pub(crate) struct ValueWriter<R> {
    refs: R,
    last: (u64, u64),
}

impl<R: PutRef> ValueWriter<R> {
    pub fn new(refs: R) -> Self {
        ValueWriter { refs, last: (0, 0) }
    }

    pub fn put_ref(&mut self, out: &mut Vec<u8>, num: Num) -> Result<()> {
        self.refs.put(out, num)
    }

    /// `raw` is a valid form in memory.
    pub fn put(&mut self, out: &mut Vec<u8>, kind: ValueKind, raw: &[u8]) -> Result<()> {
        match kind {
            ValueKind::Inode => out.extend_from_slice(raw),
            ValueKind::Parent => {}
            ValueKind::Xattr => {
                put_varint(out, raw.len() as u64);
                out.extend_from_slice(raw);
            }
            ValueKind::Dirent => {
                let mut from = Reader::new(raw);
                let (ino, cookie) = (from.u64().unwrap_or(0), from.u64().unwrap_or(0));
                out.extend_from_slice(&raw[16..]);
                put_signed(out, ino.wrapping_sub(self.last.0) as i64);
                put_signed(out, cookie.wrapping_sub(self.last.1) as i64);
                self.last = (ino, cookie);
            }
            ValueKind::Extent => match get_chunk(raw) {
                Some((num, len)) => {
                    out.push(0);
                    put_varint(out, u64::from(len));
                    self.refs.put(out, num)?;
                }
                None => {
                    put_varint(out, raw.len() as u64 - 1);
                    out.extend_from_slice(&raw[1..]);
                }
            },
        }
        Ok(())
    }
}

/// The inverse of [`ValueWriter`], safe on any bytes.
pub(crate) struct ValueReader<R> {
    refs: R,
    last: (u64, u64),
}

impl<R: GetRef> ValueReader<R> {
    pub fn new(refs: R) -> Self {
        ValueReader { refs, last: (0, 0) }
    }

    pub fn get_ref(&mut self, from: &mut Reader<'_>) -> Result<Option<Num>> {
        self.refs.get(from)
    }

    /// Appends the form in memory to `out`. `Ok(None)`: the bytes are not a value.
    pub fn get(&mut self, from: &mut Reader<'_>, kind: ValueKind, out: &mut Vec<u8>) -> Result<Option<()>> {
        if kind == ValueKind::Extent {
            let Some(len) = from.varint() else { return Ok(None) };
            if len == 0 {
                let Some(len) = from.small::<u32>().filter(|len| *len > 0) else { return Ok(None) };
                let Some(num) = self.refs.get(from)? else { return Ok(None) };
                put_value(out, &Value::Extent(Extent::Chunk { num, len }));
                return Ok(Some(()));
            }
            out.push(INLINE);
            return Ok(usize::try_from(len)
                .ok()
                .and_then(|len| from.take(len))
                .map(|b| out.extend_from_slice(b)));
        }
        Ok(self.get_plain(from, kind, out))
    }

    fn get_plain(&mut self, from: &mut Reader<'_>, kind: ValueKind, out: &mut Vec<u8>) -> Option<()> {
        match kind {
            ValueKind::Inode => {
                let start = from.bytes;
                get_inode(from)?;
                out.extend_from_slice(&start[..start.len() - from.remaining()]);
            }
            ValueKind::Xattr => {
                let len = from.small::<usize>()?;
                out.extend_from_slice(from.take(len)?);
            }
            ValueKind::Dirent => {
                let kind = FileType::from_number(from.byte()?)?;
                let ino = Ino::from_key(self.last.0.wrapping_add(from.signed()? as u64))?;
                let cookie = self.last.1.wrapping_add(from.signed()? as u64);
                if cookie == 0 {
                    return None;
                }
                self.last = (ino.key(), cookie);
                put_value(out, &Value::Dirent(Dirent { ino, kind, cookie }));
            }
            ValueKind::Parent | ValueKind::Extent => {}
        }
        Some(())
    }
}

// The bits of an inode record's first byte, above the three of the file type.
const SAME_CTIME: u8 = 1 << 3;
const SAME_BTIME: u8 = 1 << 4;
const USUAL_NLINK: u8 = 1 << 5;
const HAS_RDEV: u8 = 1 << 6;

fn usual_nlink(kind: FileType) -> u32 {
    if kind == FileType::Dir { 2 } else { 1 }
}

fn put_inode(out: &mut Vec<u8>, inode: &Inode) {
    let mut first = inode.kind as u8;
    let mut flag = |set: bool, bit: u8| first |= if set { bit } else { 0 };
    flag(inode.ctime == inode.mtime, SAME_CTIME);
    flag(inode.btime == inode.ctime, SAME_BTIME);
    flag(inode.nlink == usual_nlink(inode.kind), USUAL_NLINK);
    flag(inode.rdev != 0, HAS_RDEV);
    out.push(first);
    put_varint(out, u64::from(inode.mode));
    put_varint(out, u64::from(inode.uid));
    put_varint(out, u64::from(inode.gid));
    put_varint(out, inode.size);
    if first & USUAL_NLINK == 0 {
        put_varint(out, u64::from(inode.nlink));
    }
    if first & HAS_RDEV != 0 {
        put_varint(out, inode.rdev);
    }
    put_signed(out, inode.mtime.sec);
    put_varint(out, u64::from(inode.mtime.nsec));
    if first & SAME_CTIME == 0 {
        put_time(out, inode.ctime, inode.mtime);
    }
    if first & SAME_BTIME == 0 {
        put_time(out, inode.btime, inode.ctime);
    }
    out.extend_from_slice(&inode.birth.0.to_le_bytes());
}

/// As the difference from another time: seconds, then nanoseconds, each signed.
fn put_time(out: &mut Vec<u8>, time: Time, from: Time) {
    put_signed(out, time.sec.wrapping_sub(from.sec));
    put_signed(out, i64::from(time.nsec) - i64::from(from.nsec));
}

fn get_time(from: &mut Reader<'_>, base: Time) -> Option<Time> {
    let sec = base.sec.wrapping_add(from.signed()?);
    let nsec = u32::try_from(i64::from(base.nsec).checked_add(from.signed()?)?).ok()?;
    let time = Time { sec, nsec };
    (time.nsec < 1_000_000_000 && time != base).then_some(time)
}

fn get_inode(from: &mut Reader<'_>) -> Option<Inode> {
    let first = from.byte()?;
    let kind = FileType::from_number(first & 7)?;
    let mode = from.small::<u16>().filter(|mode| *mode <= 0o7777)?;
    let (uid, gid, size) = (from.small()?, from.small()?, from.varint()?);
    let nlink = match first & USUAL_NLINK {
        0 => from.small().filter(|nlink| *nlink != usual_nlink(kind))?,
        _ => usual_nlink(kind),
    };
    let rdev = if first & HAS_RDEV != 0 { from.varint().filter(|rdev| *rdev != 0)? } else { 0 };
    let mtime = Time { sec: from.signed()?, nsec: from.small().filter(|nsec| *nsec < 1_000_000_000)? };
    let ctime = if first & SAME_CTIME != 0 { mtime } else { get_time(from, mtime)? };
    let btime = if first & SAME_BTIME != 0 { ctime } else { get_time(from, ctime)? };
    let birth = BirthId(from.u64()?);
    (first & 0x80 == 0).then_some(Inode {
        birth,
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

/// Whether a value can be written and read back as it is.
pub(crate) fn is_valid(value: &Value) -> bool {
    let time = |time: &Time| time.nsec < 1_000_000_000;
    match value {
        Value::Inode(inode) => {
            inode.mode <= 0o7777 && time(&inode.mtime) && time(&inode.ctime) && time(&inode.btime)
        }
        Value::Dirent(dirent) => dirent.cookie != 0,
        Value::Extent(Extent::Inline(bytes)) => !bytes.is_empty(),
        Value::Extent(Extent::Chunk { len, .. }) => *len != 0,
        Value::Parent | Value::Xattr(_) => true,
    }
}
