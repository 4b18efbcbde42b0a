//! Where a file has data: what is no hole.

use std::ops::Range;

use atoll_store::{Ino, Result};

use super::content::{Content, Source};
use super::state::Base;

/// Data come in blocks, as on any disk: a hole is a whole one that nobody wrote to. So a file has the same holes here
/// as anywhere, and a commit of it the same extents.
const BLOCK: u64 = 4096;

/// The runs of data of a file of `size` bytes that begin or end in `range`, or reach over it: ascending, as long as
/// they go inside of it, in whole blocks but for the file's end.
///
/// # Errors
/// Those of reading the base.
pub fn runs(
    base: &Base,
    ino: Ino,
    content: &Content,
    size: u64,
    range: Range<u64>,
) -> Result<Vec<Range<u64>>> {
    let range = range.start / BLOCK * BLOCK..range.end.min(size);
    let mut found: Vec<Range<u64>> = Vec::new();
    let mut add = |run: Range<u64>| {
        let run = run.start / BLOCK * BLOCK..run.end.next_multiple_of(BLOCK).min(size);
        match found.last_mut() {
            Some(last) if last.end >= run.start => last.end = last.end.max(run.end),
            _ => found.push(run),
        }
    };
    if range.start >= range.end {
        return Ok(found);
    }
    for (part, source) in content.sources(range) {
        match source {
            Source::Hole => {}
            Source::At(_) => add(part),
            Source::Base => {
                for (at, extent) in base.view().extents(ino, part.clone())? {
                    add(part.start.max(at)..part.end.min(at + extent.len()));
                }
            }
        }
    }
    Ok(found)
}
