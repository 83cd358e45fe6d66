//! From what the searcher reports about one file to batches of lines.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{Searcher, Sink, SinkContext, SinkFinish, SinkMatch};

use super::{Found, FoundLine, MAX_LINE_BYTES};

const BATCH_LINES: usize = 256;
const BATCH_BYTES: usize = 256 << 10;
/// As far as an expression may look past the end of a match over several lines, `\b` or `$` for example.
const LOOK_AHEAD_BYTES: usize = 128;

/// Takes the lines of one file.
pub(super) struct Lines<'a> {
    matcher: &'a RegexMatcher,
    path: &'a Path,
    hand_over: &'a dyn Fn(Found) -> ControlFlow<()>,
    /// Made when the first line is found: most files have none.
    shared_path: Option<Arc<Path>>,
    batch: Vec<FoundLine>,
    batch_bytes: usize,
    matches: u64,
    is_stopped: bool,
}

impl<'a> Lines<'a> {
    pub(super) fn of(
        path: &'a Path,
        matcher: &'a RegexMatcher,
        hand_over: &'a dyn Fn(Found) -> ControlFlow<()>,
    ) -> Self {
        Self {
            matcher,
            path,
            hand_over,
            shared_path: None,
            batch: Vec::new(),
            batch_bytes: 0,
            matches: 0,
            is_stopped: false,
        }
    }

    pub(super) fn matches(&self) -> u64 {
        self.matches
    }

    /// Hands over what is left; also after an error, which may come long after the last line.
    pub(super) fn flush(&mut self) -> ControlFlow<()> {
        if self.is_stopped {
            return ControlFlow::Break(());
        }
        if self.batch.is_empty() {
            return ControlFlow::Continue(());
        }
        let path = self.shared_path.get_or_insert_with(|| Arc::from(self.path)).clone();
        self.batch_bytes = 0;
        let handed = (self.hand_over)(Found::Lines { path, lines: std::mem::take(&mut self.batch) });
        self.is_stopped = handed.is_break();
        handed
    }

    fn take(&mut self, line: FoundLine) -> ControlFlow<()> {
        self.batch_bytes += line.text.len() + line.matches.len() * size_of::<(u32, u32)>() + size_of::<FoundLine>();
        self.batch.push(line);
        if self.batch.len() < BATCH_LINES && self.batch_bytes < BATCH_BYTES {
            return ControlFlow::Continue(());
        }
        self.flush()
    }

    /// Where in the buffer the expression matches. What is beyond the text that is kept of a line is not looked for.
    fn ranges(&self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<Vec<Range<usize>>> {
        let Range { start, end } = found.bytes_range_in_buffer();
        let is_multi_line = searcher.multi_line_with_matcher(self.matcher);
        let (haystack, wanted_end) = if is_multi_line {
            (&found.buffer()[..(end + LOOK_AHEAD_BYTES).min(found.buffer().len())], end)
        } else {
            let line = without_line_feed(&found.buffer()[start..end]);
            (&found.buffer()[..start + line.len()], end.min(start + MAX_LINE_BYTES))
        };
        let mut ranges = Vec::new();
        self.matcher
            .find_iter_at(haystack, start, |one| {
                let is_wanted = one.start() < wanted_end || (one.start() == wanted_end && ranges.is_empty());
                if is_wanted {
                    ranges.push(one.start()..one.end());
                }
                is_wanted
            })
            .map_err(io::Error::other)?;
        Ok(ranges)
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.matches += 1;
        let ranges = self.ranges(searcher, found)?;
        let mut offset = found.absolute_byte_offset();
        let mut start = found.bytes_range_in_buffer().start;
        let mut first_open = 0;
        for (number, raw) in (found.line_number().unwrap_or(0)..).zip(found.lines()) {
            let line = shown(number, offset, raw);
            let span = start..start + without_line_feed(raw).len();
            // Matches are in order, so those that end before this line are of no interest to later ones.
            while ranges.get(first_open).is_some_and(|range| range.end < span.start) {
                first_open += 1;
            }
            let matches = ranges[first_open..]
                .iter()
                .take_while(|range| range.start <= span.end)
                .filter_map(|range| within(range, &span, line.text.len()))
                .collect();
            if self.take(FoundLine { matches, ..line }).is_break() {
                return Ok(false);
            }
            offset += raw.len() as u64;
            start += raw.len();
        }
        Ok(true)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        let number = context.line_number().unwrap_or(0);
        let line = shown(number, context.absolute_byte_offset(), context.bytes());
        Ok(self.take(FoundLine { is_context: true, ..line }).is_continue())
    }

    fn finish(&mut self, _: &Searcher, _: &SinkFinish) -> io::Result<()> {
        let _stop_is_remembered = self.flush();
        Ok(())
    }
}

fn shown(number: u64, offset: u64, raw: &[u8]) -> FoundLine {
    let text = without_line_feed(raw);
    let kept = text.len().min(MAX_LINE_BYTES);
    FoundLine {
        number,
        offset,
        text: text[..kept].to_owned(),
        cut: kept < text.len(),
        matches: Vec::new(),
        is_context: false,
    }
}

fn without_line_feed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

/// The part of a match that lies in a line, relative to its text. A match that only touches the line is not in it, unless it is
/// empty itself.
fn within(range: &Range<usize>, span: &Range<usize>, kept: usize) -> Option<(u32, u32)> {
    let start = range.start.max(span.start) - span.start;
    let end = range.end.min(span.end).checked_sub(span.start)?;
    if end < start || start > kept || (start == end && !range.is_empty()) {
        return None;
    }
    Some((u32::try_from(start).ok()?, u32::try_from(end.min(kept)).ok()?))
}
