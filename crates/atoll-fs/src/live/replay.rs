//! Reads a journal back: the state that it describes, and where it goes on.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use atoll_store::{Code, Error, Ino, Result};

use super::content::{Freed, Place};
use super::journal::{self, Head, Journal, RECORD, VERSION, checksum};
use super::op::Op;
use super::state::{Base, State};

/// What a journal says.
pub struct Replayed {
    pub state: State,
    pub journal: Journal,
    /// The last requests that were answered, oldest first.
    pub requests: Vec<(u64, Op)>,
    /// The journal was written before the machine started: what comes now must not stand behind it, where only what
    /// was synced counts.
    pub is_old: bool,
    /// What could not be kept, for people.
    pub lost: Option<Lost>,
}

/// A journal's end that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// Changes that were read and left out: after a power cut, those that were never synced.
    pub changes: u64,
    /// Where bytes that are no change were put, if there were any.
    pub aside: Option<PathBuf>,
}

/// One segment, read.
struct Segment {
    head: Head,
    bytes: Vec<u8>,
    /// Its good records.
    records: Vec<Record>,
    /// Where the last of them (or the head) ends, and its checksum.
    end: usize,
    check: u64,
}

#[derive(Clone, Copy)]
struct Record {
    request: u64,
    /// Where the change begins, where it ends and its bytes begin, and where those end.
    change: usize,
    bytes: usize,
    end: usize,
    check: u64,
}

/// How many answered requests are remembered. Those that the kernel sends again after a crash were being answered
/// then: at most one for each thread.
pub const REMEMBERED: usize = 256;

/// Reads the journal in `folder` and makes ready to go on with it; `None` when there is none. `base` gives the tree
/// of a commit, `boot` is the present start of the machine.
///
/// # Errors
/// `NewerFormat`, `Damaged` when its beginning cannot be read, and those of reading the base.
pub fn replay(
    folder: &Path,
    boot: &str,
    base: impl FnOnce(&[u8; 32]) -> Result<Base>,
) -> Result<Option<Replayed>> {
    let Some(read) = read(folder, boot, None, base)? else { return Ok(None) };
    let last = read.segments.last().expect("there is a first one");
    let aside = if last.bytes[last.end..].iter().all(|byte| *byte == 0) {
        None
    } else {
        let aside = folder.join(format!("{}.cut", journal::name(last.head.segment)));
        std::fs::write(&aside, &last.bytes[last.end..])
            .map_err(|error| Error::io("keep the damaged end of the journal in", &aside, error))?;
        Some(aside)
    };
    let lost = (read.left_out > 0 || aside.is_some()).then_some(Lost { changes: read.left_out, aside });
    let open = |segment: &Segment| {
        let path = folder.join(journal::name(segment.head.segment));
        let file = File::options().read(true).write(true).open(&path);
        file.map(Arc::new).map_err(|error| Error::io("open the workspace's journal", &path, error))
    };
    let files = read.segments.iter().map(open).collect::<Result<Vec<_>>>()?;
    let journal =
        Journal::resume(folder, last.head.clone(), files, last.check, last.end as u64, read.changes);
    let is_old = !read.same_boot;
    Ok(Some(Replayed { state: read.state, journal, requests: read.requests, is_old, lost }))
}

/// A journal as it stands.
pub struct Read {
    pub state: State,
    /// The commit that the state is based on.
    pub base: [u8; 32],
    /// How many changes led to the state, and how many more were there.
    pub changes: u64,
    pub left_out: u64,
    requests: Vec<(u64, Op)>,
    segments: Vec<Segment>,
    same_boot: bool,
}

/// Reads a journal and touches nothing; `limit`: no more than so many changes, however many there are by now.
///
/// # Errors
/// Those of [`replay`].
pub fn read(
    folder: &Path,
    boot: &str,
    limit: Option<u64>,
    base: impl FnOnce(&[u8; 32]) -> Result<Base>,
) -> Result<Option<Read>> {
    let segments = segments(folder)?;
    let Some(first) = segments.first() else { return Ok(None) };
    let before = first.head.changes;
    if limit.is_some_and(|limit| limit < before) {
        let message = "The workspace got a new base while it was read; try again.";
        return Err(Error::new(Code::Changed, message));
    }
    let commit = first.head.base;
    let same_boot = segments.iter().all(|segment| segment.head.boot == boot);
    // Every change, in order, with the segment it stands in.
    let mut changes = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        for record in &segment.records {
            let op: Op = postcard::from_bytes(&segment.bytes[record.change..record.bytes])
                .map_err(|_| malformed(folder, segment.head.segment))?;
            changes.push((at, *record, op));
        }
    }
    let marks = changes.iter().filter_map(|(_, _, op)| match op {
        Op::Mark { changes } => Some(*changes),
        _ => None,
    });
    let durable = marks.max().unwrap_or(before);
    let there = changes.len() as u64;
    let sound = if same_boot { there } else { durable.saturating_sub(before).min(there) };
    let keep = limit.map_or(sound, |limit| sound.min(limit.saturating_sub(before)));

    let first_ino = Ino::new(first.head.random, first.head.fresh);
    let mut state = State::new(base(&commit)?, first_ino);
    let mut freed: Vec<Freed> = Vec::new();
    let mut requests = Vec::new();
    for (at, record, op) in &changes[..keep as usize] {
        let head = &segments[*at].head;
        let place = Place { file: head.segment, offset: record.bytes as u64 };
        state.next = state.next.max(head.next);
        state.apply(op, Some(place), &mut freed)?;
        if record.request != 0 {
            requests.push((record.request, op.clone()));
        }
    }
    requests.drain(..requests.len().saturating_sub(REMEMBERED));
    let (changes, left_out) = (before + keep, there - keep);
    Ok(Some(Read { state, base: commit, changes, left_out, requests, segments, same_boot }))
}

/// The segments that the state is in: from the last that begins a journal on, as far as they follow each other.
fn segments(folder: &Path) -> Result<Vec<Segment>> {
    let listed = std::fs::read_dir(folder)
        .map_err(|error| Error::io("read the workspace's journal", folder, error))?;
    let mut numbers = Vec::new();
    for entry in listed {
        let entry = entry.map_err(|error| Error::io("read the workspace's journal", folder, error))?;
        let number = entry.file_name().to_str().and_then(|text| text.parse::<u32>().ok());
        numbers.extend(number.filter(|number| entry.file_name() == *journal::name(*number)));
    }
    numbers.sort_unstable();
    let mut found: Vec<Segment> = Vec::new();
    for number in numbers.into_iter().rev() {
        let Some(segment) = read_segment(folder, number)? else { continue };
        let begins = segment.head.begins;
        found.push(segment);
        if begins {
            break;
        }
    }
    found.reverse();
    if found.first().is_some_and(|first| !first.head.begins) {
        return Err(malformed(folder, found[0].head.segment));
    }
    // A segment counts only when all before it is there: a power cut may keep a later one and lose an earlier end.
    let mut follows = 0;
    let mut changes = found.first().map_or(0, |first| first.head.changes);
    for segment in &found {
        if segment.head.changes != changes {
            break;
        }
        changes += segment.records.len() as u64;
        follows += 1;
    }
    found.truncate(follows);
    Ok(found)
}

/// A segment with its good records; `None` when not even its head is good (its name is on the disk, it is not).
fn read_segment(folder: &Path, number: u32) -> Result<Option<Segment>> {
    let path = folder.join(journal::name(number));
    let bytes =
        std::fs::read(&path).map_err(|error| Error::io("read the workspace's journal", &path, error))?;
    let Some(first) = record(&bytes, 0, 0) else { return Ok(None) };
    let Ok(head) = postcard::from_bytes::<Head>(&bytes[first.change..first.bytes]) else {
        return Err(malformed(folder, number));
    };
    if head.version > VERSION {
        return Err(Error::new(
            Code::NewerFormat,
            format!(
                "The workspace's journal {} was written by a newer atoll (format {}, this one reads {VERSION}); \
                 use that version.",
                path.display(),
                head.version
            ),
        ));
    }
    let mut records = Vec::new();
    let (mut at, mut check) = (first.end, first.check);
    while let Some(found) = record(&bytes, at, check) {
        (at, check) = (found.end, found.check);
        records.push(found);
    }
    Ok(Some(Segment { head, bytes, records, end: at, check }))
}

/// The record at an offset; `None` when what is there is none.
fn record(bytes: &[u8], at: usize, before: u64) -> Option<Record> {
    let head = bytes.get(at..at + RECORD)?;
    let number =
        |from: usize| u32::from_le_bytes(head[from..from + 4].try_into().expect("four bytes")) as usize;
    let change = at + RECORD;
    let end_of_change = change.checked_add(number(0))?;
    let end = end_of_change.checked_add(number(4))?;
    let body = bytes.get(change..end)?;
    let check = u64::from_le_bytes(head[16..].try_into().expect("eight bytes"));
    if number(0) == 0 || checksum(before, &head[..16], &[body]) != check {
        return None;
    }
    let request = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
    Some(Record { request, change, bytes: end_of_change, end, check })
}

fn malformed(folder: &Path, segment: u32) -> Error {
    Error::damaged(format!(
        "The workspace's journal {} cannot be read although its checksums are right; it is kept as it is.",
        folder.join(journal::name(segment)).display()
    ))
}
