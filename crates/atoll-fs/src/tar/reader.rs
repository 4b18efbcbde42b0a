//! Reads an archive member by member: ustar, pax, GNU and old headers.

use std::io::{self, Read};

use atoll_store::tree::Time;
use atoll_store::{Code, Error, Result};
use tar::{EntryType, Header};

use super::pax;
use super::sparse::{self, Map};
use crate::ingest::xattrs::Xattrs;

/// One file of an archive.
pub struct Member {
    /// What it is.
    pub entry_type: EntryType,
    /// Its name as it stands in the archive.
    pub path: Vec<u8>,
    /// A link's target.
    pub link: Vec<u8>,
    /// 12 permission bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the contents.
    pub mtime: Time,
    /// A device's number.
    pub rdev: u64,
    /// Extended attributes, sorted.
    pub xattrs: Xattrs,
    /// Bytes of contents that are in the archive.
    pub stored: u64,
    /// Where they belong, when there are holes.
    pub sparse: Option<Map>,
}

/// An archive that is read from front to back.
pub struct Archive<'a> {
    input: &'a mut dyn Read,
    /// What of the current member is not read yet.
    left: u64,
    /// What fills its last block.
    fill: u64,
    position: u64,
    globals: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<'a> Archive<'a> {
    /// Over a stream of plain (not compressed) tar.
    pub fn new(input: &'a mut dyn Read) -> Self {
        Archive { input, left: 0, fill: 0, position: 0, globals: Vec::new() }
    }

    /// An error that says where.
    pub fn malformed(&self, what: &str) -> Error {
        Error::new(
            Code::Usage,
            format!("The tar archive is malformed at byte {}: {what}. Nothing was imported.", self.position),
        )
    }

    fn exactly(&mut self, buffer: &mut [u8]) -> Result<()> {
        self.input.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.malformed("it ends too early"),
            _ => {
                Error { message: format!("atoll could not read the archive: {error}"), ..Error::from(error) }
            }
        })?;
        self.position += buffer.len() as u64;
        Ok(())
    }

    fn skip(&mut self, mut length: u64) -> Result<()> {
        let mut buffer = [0; 32 << 10];
        while length > 0 {
            let piece = length.min(buffer.len() as u64) as usize;
            self.exactly(&mut buffer[..piece])?;
            length -= piece as u64;
        }
        Ok(())
    }

    fn block(&mut self) -> Result<[u8; 512]> {
        let mut block = [0; 512];
        self.exactly(&mut block)?;
        Ok(block)
    }

    /// The contents of a header that describes the next one.
    fn small(&mut self, size: u64) -> Result<Vec<u8>> {
        if size > pax::MAX {
            return Err(self.malformed("an extended header is larger than 32 MiB"));
        }
        let mut bytes = vec![0; size as usize];
        self.exactly(&mut bytes)?;
        self.skip(size.next_multiple_of(512) - size)?;
        Ok(bytes)
    }

    /// The next member; its contents are read with [`Archive::contents`] or passed over by the next call.
    pub fn next(&mut self) -> Result<Option<Member>> {
        let rest = self.left + self.fill;
        (self.left, self.fill) = (0, 0);
        self.skip(rest)?;
        let mut records: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let (mut long_name, mut long_link) = (None, None);
        loop {
            // Without its end marks an archive was cut off, also exactly between two members.
            let block = self.block()?;
            if block.iter().all(|&byte| byte == 0) {
                return Ok(None);
            }
            let header = Header::from_byte_slice(&block).clone();
            if !self.checksum_fits(&header) {
                return Err(self.malformed("a header's checksum does not fit"));
            }
            let size = or_zero(&header.as_old().size, header.entry_size())
                .ok_or_else(|| self.malformed("a size is no number"))?;
            match header.entry_type() {
                EntryType::XHeader => {
                    let bytes = self.small(size)?;
                    let parsed =
                        pax::records(&bytes).ok_or_else(|| self.malformed("an extended header is broken"))?;
                    records.extend(parsed.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
                }
                EntryType::XGlobalHeader => {
                    let bytes = self.small(size)?;
                    let parsed =
                        pax::records(&bytes).ok_or_else(|| self.malformed("an extended header is broken"))?;
                    self.globals
                        .extend(parsed.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
                }
                EntryType::GNULongName => long_name = Some(text(self.small(size)?)),
                EntryType::GNULongLink => long_link = Some(text(self.small(size)?)),
                _ => return self.member(&header, size, records, long_name, long_link).map(Some),
            }
        }
    }

    fn checksum_fits(&self, header: &Header) -> bool {
        let bytes = header.as_bytes();
        let sum = |byte: fn(u8) -> i64| -> i64 {
            let own = 148..156;
            bytes.iter().enumerate().map(|(at, &b)| if own.contains(&at) { 32 } else { byte(b) }).sum()
        };
        // Old writers summed signed bytes.
        header.cksum().is_ok_and(|wanted| {
            i64::from(wanted) == sum(i64::from) || i64::from(wanted) == sum(|byte| i64::from(byte as i8))
        })
    }

    fn member(
        &mut self,
        header: &Header,
        size: u64,
        records: Vec<(Vec<u8>, Vec<u8>)>,
        long_name: Option<Vec<u8>>,
        long_link: Option<Vec<u8>>,
    ) -> Result<Member> {
        let bad = |archive: &Self, what: &str| archive.malformed(&format!("{what} is no number"));
        let old = header.as_old();
        let mtime = or_zero(&old.mtime, header.mtime()).ok_or_else(|| bad(self, "a time"))?;
        let mode = or_zero(&old.mode, header.mode()).ok_or_else(|| bad(self, "a mode"))?;
        let mut member = Member {
            entry_type: header.entry_type(),
            path: long_name.unwrap_or_else(|| header.path_bytes().into_owned()),
            link: long_link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned()),
            mode: (mode & 0o7777) as u16,
            uid: or_zero(&old.uid, header.uid()).ok_or_else(|| bad(self, "an owner"))? as u32,
            gid: or_zero(&old.gid, header.gid()).ok_or_else(|| bad(self, "a group"))? as u32,
            // Times before 1970 stand as 64-bit two's complement.
            mtime: Time { sec: mtime as i64, nsec: 0 },
            rdev: device(header),
            xattrs: Vec::new(),
            stored: size,
            sparse: None,
        };
        let mut old_map = match header.entry_type().is_gnu_sparse() {
            true => Some(sparse::old(header, &mut || self.block())?),
            false => None,
        };
        let mut given = sparse::Given::default();
        let (mut major, mut minor) = (None, None);
        for (key, value) in self.globals.clone().iter().chain(&records) {
            let number = || std::str::from_utf8(value).ok().and_then(|text| text.parse::<u64>().ok());
            match &key[..] {
                b"path" => member.path.clone_from(value),
                b"linkpath" => member.link.clone_from(value),
                b"size" => member.stored = number().ok_or_else(|| bad(self, "a size"))?,
                b"uid" => member.uid = number().ok_or_else(|| bad(self, "an owner"))? as u32,
                b"gid" => member.gid = number().ok_or_else(|| bad(self, "a group"))? as u32,
                b"mtime" => member.mtime = pax::time(value).ok_or_else(|| bad(self, "a time"))?,
                b"SCHILY.devmajor" => major = number(),
                b"SCHILY.devminor" => minor = number(),
                key => {
                    if let Some(name) = key.strip_prefix(b"SCHILY.xattr.") {
                        member.xattrs.push((pax::unescape(name).into(), value[..].into()));
                    } else if let Some(name) = key.strip_prefix(b"GNU.sparse.") {
                        given.record(name, value);
                    }
                }
            }
        }
        if let (Some(major), Some(minor)) = (major, minor) {
            member.rdev = rustix::fs::makedev(major as u32, minor as u32);
        }
        member.xattrs.sort();
        member.xattrs.dedup_by(|later, first| later.0 == first.0);
        self.left = member.stored;
        self.fill =
            member.stored.checked_next_multiple_of(512).ok_or_else(|| bad(self, "a size"))? - member.stored;
        if let Some(name) = given.name.take() {
            member.path = name;
        }
        member.sparse = match old_map.take() {
            Some(map) => Some(map),
            None => given.map(&mut || self.map_block())?,
        };
        if let Some(map) = &member.sparse {
            member.stored = self.left;
            if !map.is_sound(self.left) {
                return Err(self.malformed("a sparse file's map does not fit its contents"));
            }
        }
        Ok(member)
    }

    /// One block of the map that stands before a sparse file's contents.
    fn map_block(&mut self) -> Result<[u8; 512]> {
        self.left =
            self.left.checked_sub(512).ok_or_else(|| self.malformed("a sparse file's map is cut off"))?;
        self.block()
    }

    /// The current member's bytes that are in the archive.
    pub fn contents(&mut self) -> Contents<'_, 'a> {
        Contents(self)
    }
}

/// Reads the current member to its end.
pub struct Contents<'m, 'a>(&'m mut Archive<'a>);

impl Read for Contents<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = self.0.left.min(buffer.len() as u64) as usize;
        let count = self.0.input.read(&mut buffer[..wanted])?;
        self.0.left -= count as u64;
        self.0.position += count as u64;
        Ok(count)
    }
}

/// Some writers leave fields empty that mean nothing for a member.
fn or_zero<T: Default>(field: &[u8], number: io::Result<T>) -> Option<T> {
    let empty = field.iter().all(|byte| matches!(byte, 0 | b' '));
    if empty { Some(T::default()) } else { number.ok() }
}

/// A long name ends with a zero.
fn text(mut bytes: Vec<u8>) -> Vec<u8> {
    if let Some(end) = bytes.iter().position(|&byte| byte == 0) {
        bytes.truncate(end);
    }
    bytes
}

fn device(header: &Header) -> u64 {
    if !matches!(header.entry_type(), EntryType::Char | EntryType::Block) {
        return 0;
    }
    let number = |value: io::Result<Option<u32>>| value.ok().flatten().unwrap_or(0);
    rustix::fs::makedev(number(header.device_major()), number(header.device_minor()))
}
