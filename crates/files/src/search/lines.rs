//! From what the searcher reports about one file to batches of lines.

use std::cell::RefCell;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{LineIter, Searcher, Sink, SinkContext, SinkFinish, SinkMatch};

use super::{HitLine, MAX_LINE_BYTES, SearchHit};

const BATCH_LINES: usize = 256;
const BATCH_BYTES: usize = 256 << 10;
/// As far as an expression may look past the end of a match over several lines, `\b` or `$` for example.
const LOOK_AHEAD_BYTES: usize = 128;

/// Takes the lines of one file.
pub(super) struct Lines<'a> {
    matcher: &'a RegexMatcher,
    pending: &'a PendingLines<'a>,
    matches: u64,
}

impl<'a> Lines<'a> {
    pub(super) fn of(matcher: &'a RegexMatcher, pending: &'a PendingLines<'a>) -> Self {
        Self { matcher, pending, matches: 0 }
    }

    pub(super) fn matches(&self) -> u64 {
        self.matches
    }

    fn take(&mut self, line: HitLine) -> ControlFlow<()> {
        self.pending.take(line)
    }
}

/// Lines of one file that were found and not yet handed over. Whoever reads the file hands them over before a read that may take long.
pub(super) struct PendingLines<'a> {
    path: &'a Path,
    hand_over: &'a dyn Fn(SearchHit) -> ControlFlow<()>,
    batch: RefCell<PendingBatch>,
}

#[derive(Default)]
struct PendingBatch {
    /// Made when the first line is found: most files have none.
    shared_path: Option<Arc<Path>>,
    lines: Vec<HitLine>,
    bytes: usize,
    is_stopped: bool,
}

impl<'a> PendingLines<'a> {
    pub(super) fn of(path: &'a Path, hand_over: &'a dyn Fn(SearchHit) -> ControlFlow<()>) -> Self {
        Self { path, hand_over, batch: RefCell::default() }
    }

    /// Hands over what there is; also after an error, which may come long after the last line.
    pub(super) fn flush(&self) -> ControlFlow<()> {
        let mut batch = self.batch.borrow_mut();
        if batch.is_stopped {
            return ControlFlow::Break(());
        }
        if batch.lines.is_empty() {
            return ControlFlow::Continue(());
        }
        let path = batch.shared_path.get_or_insert_with(|| Arc::from(self.path)).clone();
        batch.bytes = 0;
        let handed = (self.hand_over)(SearchHit::Lines { path, lines: std::mem::take(&mut batch.lines) });
        batch.is_stopped = handed.is_break();
        handed
    }

    fn take(&self, line: HitLine) -> ControlFlow<()> {
        let mut batch = self.batch.borrow_mut();
        batch.bytes += line.text.len() + line.matches.len() * size_of::<(u32, u32)>() + size_of::<HitLine>();
        batch.lines.push(line);
        if batch.lines.len() < BATCH_LINES && batch.bytes < BATCH_BYTES {
            return ControlFlow::Continue(());
        }
        drop(batch);
        self.flush()
    }
}

impl Sink for Lines<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.matches += 1;
        let Range { start, end } = found.bytes_range_in_buffer();
        let is_multi_line = searcher.multi_line_with_matcher(self.matcher);
        // What is beyond the text that is kept of a line is not looked for.
        let (haystack, wanted_end) = if is_multi_line {
            (&found.buffer()[..(end + LOOK_AHEAD_BYTES).min(found.buffer().len())], end)
        } else {
            let line = without_line_feed(&found.buffer()[start..end]);
            (&found.buffer()[..start + line.len()], end.min(start + MAX_LINE_BYTES))
        };
        let (mut lines, mut flow) = (Marking::of(found), ControlFlow::Continue(()));
        let mut is_first = true;
        self.matcher
            .find_iter_at(haystack, start, |one| {
                let is_wanted = one.start() < wanted_end || (one.start() == wanted_end && is_first);
                is_first = false;
                if is_wanted {
                    flow = lines.mark(&(one.start()..one.end()), self);
                }
                is_wanted && flow.is_continue()
            })
            .map_err(io::Error::other)?;
        Ok(flow.is_continue() && lines.finish(self).is_continue())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        let number = context.line_number().unwrap_or(0);
        let line = shown(number, context.absolute_byte_offset(), context.bytes());
        Ok(self.take(HitLine { is_context: true, ..line }).is_continue())
    }

    fn finish(&mut self, _: &Searcher, _: &SinkFinish) -> io::Result<()> {
        let _stop_is_remembered = self.pending.flush();
        Ok(())
    }
}

/// The lines of a match, or of many in a row, each handed on as soon as all matches in it are known: together they can be as large as
/// the file.
struct Marking<'b> {
    rest: LineIter<'b>,
    number: u64,
    offset: u64,
    /// Where in the buffer the rest begins.
    start: usize,
    current: Option<(HitLine, Range<usize>)>,
}

impl<'b> Marking<'b> {
    fn of(found: &SinkMatch<'b>) -> Self {
        let mut marking = Self {
            rest: found.lines(),
            number: found.line_number().unwrap_or(0),
            offset: found.absolute_byte_offset(),
            start: found.bytes_range_in_buffer().start,
            current: None,
        };
        marking.step();
        marking
    }

    /// Goes on to the next line and returns the one before.
    fn step(&mut self) -> Option<HitLine> {
        let next = self.rest.next().map(|raw| {
            let line = (shown(self.number, self.offset, raw), self.start..self.start + without_line_feed(raw).len());
            self.number += 1;
            self.offset += raw.len() as u64;
            self.start += raw.len();
            line
        });
        std::mem::replace(&mut self.current, next).map(|(line, _)| line)
    }

    /// Marks a match in all lines it is in. Matches come in order.
    fn mark(&mut self, range: &Range<usize>, sink: &mut Lines<'_>) -> ControlFlow<()> {
        while let Some((line, span)) = &mut self.current {
            if range.start <= span.end {
                line.matches.extend(within(range, span, line.text.len()));
                if range.end <= span.end {
                    break;
                }
            }
            self.step().map_or(ControlFlow::Continue(()), |line| sink.take(line))?;
        }
        ControlFlow::Continue(())
    }

    fn finish(mut self, sink: &mut Lines<'_>) -> ControlFlow<()> {
        while let Some(line) = self.step() {
            sink.take(line)?;
        }
        ControlFlow::Continue(())
    }
}

fn shown(number: u64, offset: u64, raw: &[u8]) -> HitLine {
    let text = without_line_feed(raw);
    let kept = text.len().min(MAX_LINE_BYTES);
    HitLine {
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
    let end = range.end.min(span.end).checked_sub(span.start)?.min(kept);
    if end < start || (start == end && !range.is_empty()) {
        return None;
    }
    Some((u32::try_from(start).ok()?, u32::try_from(end).ok()?))
}
