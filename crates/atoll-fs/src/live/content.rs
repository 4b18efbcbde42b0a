//! What a file holds: runs of bytes written since the base, over the base's own contents.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// A place in one of the files that a workspace keeps its bytes in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Which file: [`super::data::AREA`], or the number of a journal's segment.
    pub file: u32,
    /// Where in it.
    pub offset: u64,
}

/// A run that is not wanted any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freed {
    pub place: Place,
    pub len: u64,
}

/// A run of a file; `None` is a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    len: u64,
    place: Option<Place>,
}

/// Where the bytes of a part of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// In one of the workspace's files.
    At(Place),
    /// In the base, at the same offset of the same file.
    Base,
    /// Nowhere: they are zeros.
    Hole,
}

/// A file's contents as changes to the base's. It knows no size: what reads it stays below the inode's.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    /// By offset; they do not overlap, and none is empty.
    pieces: BTreeMap<u64, Piece>,
    /// Up to here the base shows where there is no piece; behind it there are holes.
    base_end: u64,
}

impl Content {
    /// The base's contents of so many bytes; 0 for a new file.
    pub fn of_base(size: u64) -> Self {
        Content { pieces: BTreeMap::new(), base_end: size }
    }

    /// Whether all is still as in the base, of so many bytes.
    pub fn is_base(&self, size: u64) -> bool {
        self.pieces.is_empty() && self.base_end == size
    }

    /// New bytes, at `place`; what they take the place of goes to `freed`.
    pub fn write(&mut self, range: Range<u64>, place: Place, freed: &mut Vec<Freed>) {
        if range.is_empty() {
            return;
        }
        self.carve(range.clone(), freed);
        // What is written piece by piece mostly stands in one piece.
        if let Some((&start, before)) = self.pieces.range_mut(..range.start).next_back()
            && let Some(there) = before.place
            && start + before.len == range.start
            && there.file == place.file
            && there.offset + before.len == place.offset
        {
            before.len += range.end - range.start;
            return;
        }
        self.pieces.insert(range.start, Piece { len: range.end - range.start, place: Some(place) });
    }

    /// A hole.
    pub fn punch(&mut self, range: Range<u64>, freed: &mut Vec<Freed>) {
        if range.is_empty() {
            return;
        }
        self.carve(range.clone(), freed);
        if range.start < self.base_end {
            let end = range.end.min(self.base_end);
            self.pieces.insert(range.start, Piece { len: end - range.start, place: None });
        }
    }

    /// Nothing is left from `size` on.
    pub fn truncate(&mut self, size: u64, freed: &mut Vec<Freed>) {
        self.carve(size..u64::MAX, freed);
        self.base_end = self.base_end.min(size);
    }

    /// The base goes: all that it showed is elsewhere by now.
    pub fn leave_base(&mut self) {
        self.base_end = 0;
    }

    /// All runs in the workspace's own files.
    pub fn places(&self) -> impl Iterator<Item = Freed> {
        self.pieces.values().filter_map(|piece| Some(Freed { place: piece.place?, len: piece.len }))
    }

    /// The runs that a range consists of, in order and without gaps.
    pub fn sources(&self, range: Range<u64>) -> Vec<(Range<u64>, Source)> {
        let mut found = Vec::with_capacity(1);
        let mut at = range.start;
        let first = self.pieces.range(..=at).next_back().map_or(at, |(start, _)| *start);
        for (&start, piece) in self.pieces.range(first..range.end) {
            let end = start + piece.len;
            if end <= at {
                continue;
            }
            self.gap(at..start, &mut found);
            let from = at.max(start);
            let source = piece.place.map_or(Source::Hole, |place| {
                Source::At(Place { offset: place.offset + (from - start), ..place })
            });
            at = end.min(range.end);
            found.push((from..at, source));
        }
        self.gap(at..range.end, &mut found);
        found
    }

    fn gap(&self, gap: Range<u64>, found: &mut Vec<(Range<u64>, Source)>) {
        let base = gap.start..gap.end.min(self.base_end);
        let hole = gap.start.max(self.base_end)..gap.end;
        for (part, source) in [(base, Source::Base), (hole, Source::Hole)] {
            if part.start < part.end {
                found.push((part, source));
            }
        }
    }

    /// Takes the pieces out of a range.
    fn carve(&mut self, range: Range<u64>, freed: &mut Vec<Freed>) {
        let first = self.pieces.range(..range.start).next_back().map_or(range.start, |(start, _)| *start);
        let touched: Vec<u64> = self.pieces.range(first..range.end).map(|(start, _)| *start).collect();
        for start in touched {
            let piece = self.pieces[&start];
            let end = start + piece.len;
            if end <= range.start {
                continue;
            }
            self.pieces.remove(&start);
            let mut keep = |part: Range<u64>| {
                if part.start < part.end {
                    let place = piece.place.map(|place| at(place, part.start - start));
                    self.pieces.insert(part.start, Piece { len: part.end - part.start, place });
                }
            };
            keep(start..range.start);
            keep(range.end..end);
            if let Some(place) = piece.place {
                let gone = start.max(range.start)..end.min(range.end);
                freed.push(Freed { place: at(place, gone.start - start), len: gone.end - gone.start });
            }
        }
    }
}

fn at(place: Place, further: u64) -> Place {
    Place { offset: place.offset + further, ..place }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Clone)]
    enum Step {
        Write(u64, u64),
        Punch(u64, u64),
        Truncate(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0u64..60, 1u64..20).prop_map(|(at, len)| Step::Write(at, len)),
            (0u64..60, 1u64..20).prop_map(|(at, len)| Step::Punch(at, len)),
            (0u64..60).prop_map(Step::Truncate),
        ]
    }

    proptest! {
        /// Byte by byte against a plain list, with each place written once, and every place that is lost freed
        /// exactly once.
        #[test]
        fn contents_are_those_of_a_plain_list(base in 0u64..50, steps in proptest::collection::vec(step(), 0..30)) {
            const LEN: usize = 100;
            let mut content = Content::of_base(base);
            let mut model: Vec<Source> = (0..LEN as u64).map(|at| if at < base { Source::Base } else { Source::Hole }).collect();
            let (mut next, mut total, mut freed) = (1000, 0, Vec::new());
            for step in steps {
                match step {
                    Step::Write(start, len) => {
                        for i in 0..len {
                            model[(start + i) as usize] = Source::At(Place { file: 7, offset: next + i });
                        }
                        content.write(start..start + len, Place { file: 7, offset: next }, &mut freed);
                        next += len + 1;
                        total += len as usize;
                    }
                    Step::Punch(start, len) => {
                        model[start as usize..(start + len) as usize].fill(Source::Hole);
                        content.punch(start..start + len, &mut freed);
                    }
                    Step::Truncate(size) => {
                        model[size as usize..].fill(Source::Hole);
                        content.truncate(size, &mut freed);
                    }
                }
            }
            let mut seen = Vec::new();
            for (range, source) in content.sources(0..LEN as u64) {
                prop_assert_eq!(range.start, seen.len() as u64);
                for i in 0..range.end - range.start {
                    seen.push(match source {
                        Source::At(place) => Source::At(at(place, i)),
                        other => other,
                    });
                }
            }
            prop_assert_eq!(&seen, &model);
            let mut all: Vec<u64> = freed.iter().copied().chain(content.places())
                .flat_map(|run| run.place.offset..run.place.offset + run.len).collect();
            all.sort_unstable();
            prop_assert_eq!(all.len(), total, "every place is freed once, or still used");
            all.dedup();
            prop_assert_eq!(all.len(), total);
        }
    }
}
