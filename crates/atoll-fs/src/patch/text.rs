//! The difference of two texts, line by line, in unified form.

use std::io::{self, Write};
use std::ops::Range;

use imara_diff::{Algorithm, Diff, Hunk, InternedInput};

/// As git decides it: a zero byte near the start.
pub(super) fn is_binary(bytes: &[u8]) -> bool {
    bytes[..bytes.len().min(8000)].contains(&0)
}

pub(super) struct LineDiff<'a> {
    input: InternedInput<&'a [u8]>,
    hunks: Vec<Hunk>,
}

impl<'a> LineDiff<'a> {
    pub fn new(before: &'a [u8], after: &'a [u8]) -> Self {
        let input = InternedInput::new(before, after);
        let mut diff = Diff::compute(Algorithm::Histogram, &input);
        diff.postprocess_lines(&input);
        let hunks = diff.hunks().collect();
        LineDiff { input, hunks }
    }

    /// Lines added, lines taken away.
    pub fn counts(&self) -> (u64, u64) {
        let sum =
            |range: fn(&Hunk) -> &Range<u32>| self.hunks.iter().map(|hunk| range(hunk).len() as u64).sum();
        (sum(|hunk| &hunk.after), sum(|hunk| &hunk.before))
    }

    /// How much of the larger side is in both, in percent.
    pub fn similarity(&self) -> u64 {
        let bytes =
            |range: Range<usize>, old: bool| range.map(|at| self.line(at, old).len() as u64).sum::<u64>();
        let before = bytes(0..self.input.before.len(), true);
        let after = bytes(0..self.input.after.len(), false);
        let gone: u64 = self.hunks.iter().map(|hunk| bytes(usizes(&hunk.before), true)).sum();
        match before.max(after) {
            0 => 100,
            larger => (before - gone) * 100 / larger,
        }
    }

    fn line(&self, at: usize, old: bool) -> &'a [u8] {
        let tokens = if old { &self.input.before } else { &self.input.after };
        self.input.interner[tokens[at]]
    }

    /// Writes the hunks; those whose contexts touch are one.
    pub fn write(&self, context: usize, out: &mut dyn Write) -> io::Result<()> {
        let mut start = 0;
        let mut heading = Heading::default();
        while start < self.hunks.len() {
            let mut end = start + 1;
            let gap = |end: usize| self.hunks[end].before.start - self.hunks[end - 1].before.end;
            while end < self.hunks.len() && gap(end) as usize <= 2 * context {
                end += 1;
            }
            self.write_group(&self.hunks[start..end], context, &mut heading, out)?;
            start = end;
        }
        Ok(())
    }

    fn write_group(
        &self,
        hunks: &[Hunk],
        context: usize,
        heading: &mut Heading<'a>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let (first, last) = (&hunks[0], &hunks[hunks.len() - 1]);
        let lead = context.min(first.before.start as usize);
        let tail = context.min(self.input.before.len() - last.before.end as usize);
        let before = first.before.start as usize - lead..last.before.end as usize + tail;
        let after = first.after.start as usize - lead..last.after.end as usize + tail;
        let heading = heading.above(self, before.start);
        let mut head = format!("@@ -{} +{} @@", span(&before), span(&after)).into_bytes();
        if let Some(text) = heading {
            head.push(b' ');
            head.extend_from_slice(text);
        }
        head.push(b'\n');
        out.write_all(&head)?;
        let mut at = before.start;
        for hunk in hunks {
            self.write_lines(b' ', at..hunk.before.start as usize, true, out)?;
            self.write_lines(b'-', usizes(&hunk.before), true, out)?;
            self.write_lines(b'+', usizes(&hunk.after), false, out)?;
            at = hunk.before.end as usize;
        }
        self.write_lines(b' ', at..before.end, true, out)
    }

    fn write_lines(&self, sign: u8, lines: Range<usize>, old: bool, out: &mut dyn Write) -> io::Result<()> {
        for at in lines {
            let line = self.line(at, old);
            out.write_all(&[sign])?;
            out.write_all(line)?;
            if !line.ends_with(b"\n") {
                out.write_all(b"\n\\ No newline at end of file\n")?;
            }
        }
        Ok(())
    }
}

fn usizes(range: &Range<u32>) -> Range<usize> {
    range.start as usize..range.end as usize
}

/// Line numbers count from 1; an empty range names the line before it.
fn span(lines: &Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        len => format!("{},{len}", lines.start + 1),
    }
}

/// The last line above a hunk that looks like the start of a function, as git shows it behind `@@`.
#[derive(Default)]
struct Heading<'a> {
    seen: usize,
    found: Option<&'a [u8]>,
}

impl<'a> Heading<'a> {
    fn above(&mut self, diff: &LineDiff<'a>, line: usize) -> Option<&'a [u8]> {
        let looks = |text: &&[u8]| matches!(text.first(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$'));
        if let Some(text) = (self.seen..line).rev().map(|at| diff.line(at, true)).find(looks) {
            self.found = Some(text[..text.len().min(80)].trim_ascii_end());
        }
        self.seen = line;
        self.found
    }
}
