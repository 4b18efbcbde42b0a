//! Compression of frames.

use std::cell::RefCell;

use zstd::zstd_safe::{self, CCtx, CParameter, DCtx, InBuffer, OutBuffer};

use super::format::{Coding, Frame};
use crate::{Error, Result};

/// zstd's level for groups. Measured with 100,000 files of 4 KiB of text, reading and hashing included: level 1
/// takes 2.5 CPU seconds and 160 MB, level 2 2.8 and 150 MB, level 3 3.2 and 148 MB; 6,000 Rust sources: 15.8, 15.1,
/// 15.0 MB. People wait for an import.
const LEVEL: i32 = 1;
/// And for deltas, which are small and written once.
const DELTA_LEVEL: i32 = 3;

fn zstd_error(doing: &str, code: usize) -> Error {
    Error::new(crate::Code::Io, format!("atoll could not {doing}: {}.", zstd_safe::get_error_name(code)))
}

/// Compresses groups; each thread has its own.
pub(crate) struct Compressor(CCtx<'static>);

impl Compressor {
    pub(crate) fn new() -> Compressor {
        let mut context = CCtx::create();
        // Neither can fail: both values are within zstd's bounds.
        let _ = context.set_parameter(CParameter::CompressionLevel(LEVEL));
        let _ = context.set_parameter(CParameter::ContentSizeFlag(false));
        Compressor(context)
    }

    /// The stored form of a group, and how it is coded: what does not shrink stays as it is.
    pub(crate) fn compress(&mut self, raw: &[u8]) -> Result<(Coding, Vec<u8>)> {
        let mut out = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
        self.0.compress2(&mut out, raw).map_err(|code| zstd_error("compress a group", code))?;
        if out.len() >= raw.len() {
            return Ok((Coding::Raw, raw.to_vec()));
        }
        Ok((Coding::Zstd, out))
    }
}

/// `raw` as a delta on `base`.
pub(crate) fn delta(base: &[u8], raw: &[u8]) -> Result<Vec<u8>> {
    let failed = |code| zstd_error("compress a delta", code);
    let mut context = CCtx::create();
    context.set_parameter(CParameter::CompressionLevel(DELTA_LEVEL)).map_err(failed)?;
    context.set_parameter(CParameter::ContentSizeFlag(false)).map_err(failed)?;
    context.ref_prefix(base).map_err(failed)?;
    let mut out = Vec::with_capacity(zstd_safe::compress_bound(raw.len()));
    context.compress2(&mut out, raw).map_err(failed)?;
    Ok(out)
}

thread_local! {
    /// Making a context takes as long as decompressing a small group.
    static CONTEXT: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// What can still be had of a damaged frame's raw bytes: all that comes before the damage, and perhaps more. Any of it
/// may be wrong; whoever uses it compares hashes.
pub(crate) fn salvage(frame: &Frame, stored: &[u8]) -> Vec<u8> {
    /// zstd tells what it wrote only when nothing went wrong, so it gets a little at a time.
    const STEP: usize = 16;
    if frame.coding != Coding::Zstd {
        return if frame.coding == Coding::Raw { stored.to_vec() } else { Vec::new() };
    }
    let mut raw = vec![0; frame.raw as usize];
    let mut context = DCtx::create();
    let (mut read, mut written) = (0, 0);
    while read < stored.len() && written < raw.len() {
        let mut input = InBuffer { src: &stored[read..stored.len().min(read + STEP)], pos: 0 };
        let mut output = OutBuffer::around_pos(&mut raw[..], written);
        let left = context.decompress_stream(&mut output, &mut input);
        let made = output.pos();
        if left.is_err() || (input.pos == 0 && made == written) {
            break;
        }
        read += input.pos;
        written = made;
        if left == Ok(0) {
            break;
        }
    }
    raw.truncate(written);
    raw
}

/// A frame's raw bytes from its stored ones; `base` is the raw form of the object a delta stands on.
///
/// # Errors
/// The reason as a text, for the caller to say which pack it was.
pub(crate) fn decode(
    frame: &Frame,
    stored: &[u8],
    base: Option<&[u8]>,
) -> std::result::Result<Vec<u8>, String> {
    if stored.len() != frame.stored as usize || xxhash_rust::xxh3::xxh3_64(stored) != frame.checksum {
        return Err("its bytes do not match their checksum".to_owned());
    }
    let mut raw = Vec::with_capacity(frame.raw as usize);
    let result = match frame.coding {
        Coding::Raw => {
            raw.extend_from_slice(stored);
            Ok(raw.len())
        }
        Coding::Zstd => CONTEXT.with_borrow_mut(|context| context.decompress(&mut raw, stored)),
        Coding::Delta => {
            let base = base.ok_or("it is a delta, and what it stands on is missing")?;
            let mut context = DCtx::create();
            context.ref_prefix(base).and_then(|_| context.decompress(&mut raw, stored))
        }
    };
    result.map_err(|code| format!("it cannot be decompressed ({})", zstd_safe::get_error_name(code)))?;
    if raw.len() != frame.raw as usize {
        return Err(format!("it holds {} bytes instead of {}", raw.len(), frame.raw));
    }
    Ok(raw)
}
