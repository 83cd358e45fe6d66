//! Turns the matches that the searcher reports for one file into batches of [`HitLine`]s. [`LineSink`] gets the matches, [`MatchMarker`]
//! splits them into lines, and [`PendingLines`] collects the lines and delivers them.

use std::cell::RefCell;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::sync::Arc;

use grep_matcher::Matcher;
use grep_regex::RegexMatcher;
use grep_searcher::{LineIter, Searcher, Sink, SinkContext, SinkFinish, SinkMatch};

use super::{HitLine, MAX_LINE_BYTES, SearchHit};

/// A batch is delivered when it has this many lines or bytes.
const BATCH_LINES: usize = 256;
const BATCH_BYTES: usize = 256 << 10;
/// Bytes after a match that the expression may examine if matches span lines, for example for `\b` or `$`.
const LOOKAHEAD_BYTES: usize = 128;

/// Receives the matches and the lines of context of one file from the searcher.
pub(super) struct LineSink<'a> {
    matcher: &'a RegexMatcher,
    pending: &'a PendingLines<'a>,
    matches: u64,
}

impl<'a> LineSink<'a> {
    pub(super) fn new(matcher: &'a RegexMatcher, pending: &'a PendingLines<'a>) -> Self {
        Self { matcher, pending, matches: 0 }
    }

    pub(super) fn matches(&self) -> u64 {
        self.matches
    }

    fn push(&mut self, line: HitLine) -> ControlFlow<()> {
        self.pending.push(line)
    }
}

/// Lines of one file that are not yet delivered. The reader of the file calls [`flush`](Self::flush) before each read, because a read may
/// take long.
pub(super) struct PendingLines<'a> {
    path: &'a Path,
    deliver: &'a dyn Fn(SearchHit) -> ControlFlow<()>,
    batch: RefCell<PendingBatch>,
}

#[derive(Default)]
struct PendingBatch {
    /// A copy of the path, which all batches of the file share. Made with the first batch: most files have no match and need no copy.
    path: Option<Arc<Path>>,
    lines: Vec<HitLine>,
    bytes: usize,
    /// Whether `deliver` has returned `Break`.
    is_stopped: bool,
}

impl<'a> PendingLines<'a> {
    pub(super) fn new(path: &'a Path, deliver: &'a dyn Fn(SearchHit) -> ControlFlow<()>) -> Self {
        Self { path, deliver, batch: RefCell::default() }
    }

    /// Delivers the collected lines, if any. Returns `Break` if `deliver` returns `Break` now or has done so
    /// before: the search is to stop.
    pub(super) fn flush(&self) -> ControlFlow<()> {
        let mut batch = self.batch.borrow_mut();
        if batch.is_stopped {
            return ControlFlow::Break(());
        }
        if batch.lines.is_empty() {
            return ControlFlow::Continue(());
        }
        let path = batch.path.get_or_insert_with(|| Arc::from(self.path)).clone();
        batch.bytes = 0;
        let delivered = (self.deliver)(SearchHit::Lines { path, lines: std::mem::take(&mut batch.lines) });
        batch.is_stopped = delivered.is_break();
        delivered
    }

    fn push(&self, line: HitLine) -> ControlFlow<()> {
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

impl Sink for LineSink<'_> {
    type Error = io::Error;

    fn matched(&mut self, searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        self.matches += 1;
        let Range { start, end } = found.bytes_range_in_buffer();
        let is_multi_line = searcher.multi_line_with_matcher(self.matcher);
        // If matches do not span lines, matches in the part of a line that is cut off are not looked for.
        let (haystack, wanted_end) = if is_multi_line {
            (&found.buffer()[..(end + LOOKAHEAD_BYTES).min(found.buffer().len())], end)
        } else {
            let line = without_line_feed(&found.buffer()[start..end]);
            (&found.buffer()[..start + line.len()], end.min(start + MAX_LINE_BYTES))
        };
        let (mut lines, mut flow) = (MatchMarker::new(found), ControlFlow::Continue(()));
        let mut is_first = true;
        self.matcher
            .find_iter_at(haystack, start, |hit| {
                // A match at `wanted_end` counts only if it is the first one. It can be the empty match at the end of
                // a last line without a line feed.
                let is_wanted = hit.start() < wanted_end || (hit.start() == wanted_end && is_first);
                is_first = false;
                if is_wanted {
                    flow = lines.mark(&(hit.start()..hit.end()), self);
                }
                is_wanted && flow.is_continue()
            })
            .map_err(io::Error::other)?;
        Ok(flow.is_continue() && lines.finish(self).is_continue())
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> io::Result<bool> {
        let number = context.line_number().unwrap_or(0);
        let line = line_without_matches(number, context.absolute_byte_offset(), context.bytes());
        Ok(self.push(HitLine { is_context: true, ..line }).is_continue())
    }

    fn finish(&mut self, _: &Searcher, _: &SinkFinish) -> io::Result<()> {
        // If this delivery returns `Break`, `pending` remembers it, and the next flush returns `Break` too.
        let _flow = self.pending.flush();
        Ok(())
    }
}

/// Splits one report of the searcher into lines, and adds the matches to them. If matches span lines, one report can
/// cover the whole file. So each line goes to the sink as soon as all its matches are known.
struct MatchMarker<'b> {
    rest: LineIter<'b>,
    /// Number of the first line of `rest`.
    number: u64,
    /// Offset in the file at which `rest` begins.
    offset: u64,
    /// Offset in the buffer at which `rest` begins.
    start: usize,
    /// The current line, and its range in the buffer without the line feed.
    current: Option<(HitLine, Range<usize>)>,
}

impl<'b> MatchMarker<'b> {
    fn new(found: &SinkMatch<'b>) -> Self {
        let mut marker = Self {
            rest: found.lines(),
            number: found.line_number().unwrap_or(0),
            offset: found.absolute_byte_offset(),
            start: found.bytes_range_in_buffer().start,
            current: None,
        };
        marker.next_line();
        marker
    }

    /// Advances to the next line, and returns the line that was current before.
    fn next_line(&mut self) -> Option<HitLine> {
        let next = self.rest.next().map(|raw| {
            let line = (
                line_without_matches(self.number, self.offset, raw),
                self.start..self.start + without_line_feed(raw).len(),
            );
            self.number += 1;
            self.offset += raw.len() as u64;
            self.start += raw.len();
            line
        });
        std::mem::replace(&mut self.current, next).map(|(line, _)| line)
    }

    /// Adds a match to all lines that it covers. Matches come in ascending order.
    fn mark(&mut self, range: &Range<usize>, sink: &mut LineSink<'_>) -> ControlFlow<()> {
        while let Some((line, span)) = &mut self.current {
            if range.start <= span.end {
                line.matches.extend(match_within_line(range, span, line.text.len()));
                if range.end <= span.end {
                    break;
                }
            }
            self.next_line().map_or(ControlFlow::Continue(()), |line| sink.push(line))?;
        }
        ControlFlow::Continue(())
    }

    fn finish(mut self, sink: &mut LineSink<'_>) -> ControlFlow<()> {
        while let Some(line) = self.next_line() {
            sink.push(line)?;
        }
        ControlFlow::Continue(())
    }
}

fn line_without_matches(number: u64, offset: u64, raw: &[u8]) -> HitLine {
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

/// The part of a match that lies in a line, as offsets in the first `kept` bytes of the line. An empty intersection is no match, unless
/// the match itself is empty.
fn match_within_line(range: &Range<usize>, span: &Range<usize>, kept: usize) -> Option<(u32, u32)> {
    let start = range.start.max(span.start) - span.start;
    let end = range.end.min(span.end).checked_sub(span.start)?.min(kept);
    if end < start || (start == end && !range.is_empty()) {
        return None;
    }
    Some((u32::try_from(start).ok()?, u32::try_from(end).ok()?))
}
