//! One reply on its way to the kernel; a thread keeps one and uses it again.

use std::io::IoSlice;

use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::abi::OutHeader;
use crate::filesystem::{Data, Errno};

const HEADER: usize = size_of::<OutHeader>();

/// A reply: the header's room, the body, and the shared bytes of a READ.
pub struct ReplyBuffer {
    pub(crate) head: Vec<u8>,
    pub(crate) data: Data,
    error: i32,
}

impl Default for ReplyBuffer {
    fn default() -> Self {
        ReplyBuffer { head: Vec::with_capacity(8192), data: Data::default(), error: 0 }
    }
}

impl ReplyBuffer {
    pub(crate) fn clear(&mut self) {
        self.head.clear();
        self.head.extend_from_slice(OutHeader::new_zeroed().as_bytes());
        self.data.clear();
        self.error = 0;
    }

    pub(crate) fn put<T: IntoBytes + Immutable>(&mut self, body: &T) {
        self.head.extend_from_slice(body.as_bytes());
    }

    pub(crate) fn error(&mut self, errno: Errno) {
        self.head.truncate(HEADER);
        self.data.clear();
        self.error = -errno.0;
    }

    /// Writes the header; after it the reply is complete.
    pub(crate) fn seal(&mut self, unique: u64) {
        let len = (self.head.len() + self.data.len()) as u32;
        let header = OutHeader { len, error: self.error, unique };
        self.head[..HEADER].copy_from_slice(header.as_bytes());
    }

    /// The bytes after the header: those here, and those shared.
    pub(crate) fn body(&self) -> (&[u8], &Data) {
        (&self.head[HEADER..], &self.data)
    }

    pub(crate) fn header(&self) -> &[u8] {
        &self.head[..HEADER]
    }

    pub(crate) fn slices<'a>(&'a self, out: &mut Vec<IoSlice<'a>>) {
        out.push(IoSlice::new(&self.head));
        out.extend(self.data.parts.iter().map(|part| IoSlice::new(part)));
    }
}
