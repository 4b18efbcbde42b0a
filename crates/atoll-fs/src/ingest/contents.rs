//! Cuts contents into chunks and stores them: the one place that decides where a file is cut.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::Range;

use atoll_store::tree::{Extent, INLINE_MAX};
use atoll_store::{Batch, Num, Result, Sink};
use fastcdc::v2020::FastCDC;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// A region of at most this many bytes is one chunk; no chunk is larger.
pub const CHUNK_MAX: usize = 256 << 10;
/// What FastCDC aims at.
pub const CHUNK_AVERAGE: usize = 64 << 10;
/// The smallest chunk that FastCDC cuts (the last of a region may be smaller).
pub const CHUNK_MIN: usize = 16 << 10;

/// Where contents are read into: a few of the largest chunks.
const WINDOW: usize = 2 << 20;

/// A file's extents by offset.
pub type Extents = Vec<(u64, Extent)>;

/// Takes chunks: a writer's batch, or (in tests) any sink.
pub trait PutChunk {
    /// Stores a chunk, or finds it.
    fn put(&mut self, bytes: &[u8]) -> Result<Num>;
    /// Writes what is left.
    fn finish(self: Box<Self>) -> Result<()>;
}

impl PutChunk for Batch<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<Num> {
        Batch::put(self, bytes)
    }
    fn finish(self: Box<Self>) -> Result<()> {
        Batch::finish(*self)
    }
}

struct SinkChunks<'a>(&'a dyn Sink);

impl PutChunk for SinkChunks<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<Num> {
        self.0.put_chunk(bytes)
    }
    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}

/// One thread's way of storing contents: a batch of chunks and a buffer.
pub struct Ingest<'a> {
    chunks: Box<dyn PutChunk + 'a>,
    window: Vec<u8>,
    /// How much of the window's start is the last file's, when it was read in one piece.
    head: usize,
    /// Bytes read from files so far.
    pub bytes: u64,
}

impl<'a> Ingest<'a> {
    /// Stores into a writer's batch.
    pub fn new(batch: Batch<'a>) -> Self {
        Self::over(Box::new(batch))
    }

    /// Stores into any sink, chunk by chunk.
    pub fn into_sink(sink: &'a dyn Sink) -> Self {
        Self::over(Box::new(SinkChunks(sink)))
    }

    fn over(chunks: Box<dyn PutChunk + 'a>) -> Self {
        Ingest { chunks, window: Vec::new(), head: 0, bytes: 0 }
    }

    /// Writes what is left of the batch; numbers given out before are good only then.
    pub fn finish(self) -> Result<()> {
        self.chunks.finish()
    }

    /// Stores contents that are in memory and have no holes.
    pub fn bytes(&mut self, contents: &[u8]) -> Result<Extents> {
        let mut input = contents;
        self.stream(&mut input, contents.len() as u64).map_err(StreamError::into_store)
    }

    /// Stores exactly `size` bytes of a stream, without holes.
    ///
    /// # Errors
    /// `StreamError::Short` when it ends before.
    pub fn stream(&mut self, input: &mut dyn Read, size: u64) -> Result<Extents, StreamError> {
        let mut extents = Extents::new();
        self.region(input, 0, size, size <= INLINE_MAX as u64, &mut extents)?;
        Ok(extents)
    }

    /// Stores `regions` (offset and length, ascending) of a file of `size` bytes, whose bytes the stream has one
    /// after the other: an archive's sparse file.
    pub fn regions(
        &mut self,
        input: &mut dyn Read,
        size: u64,
        regions: &[(u64, u64)],
    ) -> Result<Extents, StreamError> {
        let mut extents = Extents::new();
        for &(offset, length) in regions {
            self.region(input, offset, length, size <= INLINE_MAX as u64, &mut extents)?;
        }
        Ok(extents)
    }

    /// Stores one region (a run without holes) of a file of `size` bytes. Where the file's chunk at an offset is known
    /// already, `known` gives it, and it is not read; it has to be what cutting the region would give there.
    ///
    /// # Errors
    /// `StreamError::Read` when it cannot be read.
    pub fn region_with<R: Read + Seek>(
        &mut self,
        input: &mut R,
        region: Range<u64>,
        size: u64,
        known: impl Fn(u64) -> Option<Extent>,
        extents: &mut Extents,
    ) -> Result<(), StreamError> {
        let inline = size <= INLINE_MAX as u64;
        let mut at = region.start;
        while at < region.end {
            if let Some(extent) = known(at) {
                let len = extent.len();
                extents.push((at, extent));
                at += len;
                continue;
            }
            input.seek(io::SeekFrom::Start(at)).map_err(StreamError::Read)?;
            at = self.run(input, at..region.end, region.end - region.start, inline, &known, extents)?;
        }
        Ok(())
    }

    /// Stores the contents of an open regular file of `size` bytes of which the host has `allocated`. Its holes
    /// become holes. The caller compares the file's stat data before and after.
    ///
    /// # Errors
    /// `StreamError::Short` when the file is shorter by now, `StreamError::Read` when it cannot be read.
    pub fn file(&mut self, file: &File, size: u64, allocated: u64) -> Result<Extents, StreamError> {
        let mut extents = Extents::new();
        self.head = 0;
        let inline = size <= INLINE_MAX as u64;
        // One block is either there or not; lseek would only cost a call for each small file.
        if size <= 4096 && allocated > 0 {
            self.region(&mut At(file, 0), 0, size, inline, &mut extents)?;
            return Ok(extents);
        }
        let mut offset = 0;
        while offset < size {
            let start = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                Ok(start) => start.min(size),
                Err(Errno::NXIO) => break,
                // A file system without the call has no holes to tell of.
                Err(Errno::INVAL | Errno::NOTSUP) => offset,
                Err(error) => return Err(StreamError::Read(error.into())),
            };
            if start >= size {
                break;
            }
            let end = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
                Ok(end) => end.min(size),
                Err(Errno::NXIO) => return Err(StreamError::Short),
                Err(Errno::INVAL | Errno::NOTSUP) => size,
                Err(error) => return Err(StreamError::Read(error.into())),
            };
            if end <= start {
                return Err(StreamError::Short);
            }
            self.region(&mut At(file, start), start, end - start, inline, &mut extents)?;
            offset = end;
        }
        Ok(extents)
    }

    /// The first bytes of the file that was stored last; empty when it was large.
    pub fn head(&self) -> &[u8] {
        &self.window[..self.head]
    }

    fn region(
        &mut self,
        input: &mut dyn Read,
        offset: u64,
        length: u64,
        inline: bool,
        extents: &mut Extents,
    ) -> Result<(), StreamError> {
        self.run(input, offset..offset + length, length, inline, &|_| None, extents).map(drop)
    }

    /// Stores what is left (`rest`) of a region of `length` bytes, until a chunk begins that is known. Returns where.
    fn run(
        &mut self,
        input: &mut dyn Read,
        rest: Range<u64>,
        length: u64,
        inline: bool,
        known: &dyn Fn(u64) -> Option<Extent>,
        extents: &mut Extents,
    ) -> Result<u64, StreamError> {
        let (mut offset, end) = (rest.start, rest.end);
        if offset == end {
            return Ok(end);
        }
        let whole = length <= CHUNK_MAX as u64;
        self.head = if whole && offset == 0 { length as usize } else { 0 };
        let mut window = std::mem::take(&mut self.window);
        let capacity = if whole { length as usize } else { WINDOW };
        if window.len() < capacity {
            window.resize(capacity, 0);
        }
        let mut filled = 0;
        let mut left = end - offset;
        'read: while left > 0 || filled > 0 {
            let wanted = left.min((capacity - filled) as u64) as usize;
            read_exact(input, &mut window[filled..filled + wanted])?;
            self.bytes += wanted as u64;
            filled += wanted;
            left -= wanted as u64;
            let mut start = 0;
            while start < filled && (left == 0 || filled - start >= CHUNK_MAX) {
                let end = if whole { filled } else { cut(&window[start..filled]) + start };
                let piece = &window[start..end];
                let extent = if inline {
                    Extent::Inline(piece.into())
                } else {
                    Extent::Chunk { num: self.chunks.put(piece)?, len: piece.len() as u32 }
                };
                extents.push((offset, extent));
                offset += piece.len() as u64;
                start = end;
                if left > 0 && known(offset).is_some() {
                    break 'read;
                }
            }
            window.copy_within(start..filled, 0);
            filled -= start;
        }
        self.window = window;
        Ok(offset)
    }
}

/// Where the first chunk of these bytes ends; they are the rest of the region, or at least `CHUNK_MAX` of it.
fn cut(bytes: &[u8]) -> usize {
    FastCDC::new(bytes, CHUNK_MIN, CHUNK_AVERAGE, CHUNK_MAX).cut(0, bytes.len()).1
}

/// Why contents could not be stored.
#[derive(Debug)]
pub enum StreamError {
    /// The input ended before its announced size.
    Short,
    /// The input could not be read.
    Read(io::Error),
    /// The store refused.
    Store(atoll_store::Error),
}

impl StreamError {
    fn into_store(self) -> atoll_store::Error {
        match self {
            StreamError::Short => io::Error::from(io::ErrorKind::UnexpectedEof).into(),
            StreamError::Read(error) => error.into(),
            StreamError::Store(error) => error,
        }
    }
}

impl From<atoll_store::Error> for StreamError {
    fn from(error: atoll_store::Error) -> Self {
        StreamError::Store(error)
    }
}

fn read_exact(input: &mut dyn Read, buffer: &mut [u8]) -> Result<(), StreamError> {
    input.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => StreamError::Short,
        _ => StreamError::Read(error),
    })
}

/// A file read from an offset, whatever its own position.
struct At<'a>(&'a File, u64);

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = std::os::unix::fs::FileExt::read_at(self.0, buffer, self.1)?;
        self.1 += count as u64;
        Ok(count)
    }
}
