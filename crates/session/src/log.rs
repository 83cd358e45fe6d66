//! The event log of one process: output, exit and close with common sequence numbers. The amount of output that it retains is limited.
//!
//! Small writes are merged into the last chunk until a reader has seen that chunk, so a slow reader gets few large chunks, however small
//! the writes of the process are. Sequence numbers start at 1 and have no holes. The log knows no readers: [`Delivery`](crate::Delivery),
//! which owns the log, knows how far each reader has got.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol::{ExitResources, Stream};

/// How much output a log retains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes of output that are retained.
    pub retain_bytes: usize,
    /// The most chunks that are retained, see [`MAX_RETAINED_CHUNKS`].
    pub retain_chunks: usize,
    /// Bytes in the largest chunk. More output than this is split, and output that no reader has seen is merged up to this size.
    pub max_chunk_bytes: usize,
    /// Bytes of output in the largest page, with [`CHUNK_OVERHEAD_BYTES`] for each chunk. A chunk in an answer is longer than its output,
    /// so without the overhead an answer with many small chunks would not fit into a message.
    pub max_page_bytes: usize,
}

/// The most chunks that a log retains by default. A read of all of them stays below the number of JSON values that a message may have.
pub const MAX_RETAINED_CHUNKS: usize = 50_000;

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            retain_bytes: 1 << 20,
            retain_chunks: MAX_RETAINED_CHUNKS,
            max_chunk_bytes: 256 << 10,
            max_page_bytes: usize::MAX,
        }
    }
}

/// Output that is appended in buffers of at least this size is not copied.
const LARGE_BYTES: usize = 64 << 10;

/// Memory of a chunk beside its bytes: its entry in a queue that grows by doubling, what the allocator adds, and the reference count once
/// the chunk was read. Measured: 126 bytes for a chunk of one byte.
pub const CHUNK_OVERHEAD_BYTES: usize = 128;

/// How a process exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedExit {
    /// Exit code of the process; 128+N if signal N killed it.
    pub code: i32,
    /// The sandbox refused something that the process tried.
    pub sandbox_denied: bool,
    /// The server killed the process at its timeout.
    pub timed_out: bool,
    /// What the process has used and which limit it has reached.
    pub resources: ExitResources,
}

/// A piece of output that the process wrote to one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Sequence number of the event.
    pub seq: u64,
    /// The stream that the process wrote to.
    pub stream: Stream,
    /// At most [`LogLimits::max_chunk_bytes`] of output.
    pub bytes: Bytes,
}

/// One event of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The process wrote to a stream.
    Output(Chunk),
    /// The process has exited. Its descendants may still write output after this.
    Exited {
        /// Sequence number of the event.
        seq: u64,
        /// Exit code and cause.
        exit: LoggedExit,
    },
    /// The process has exited and its streams have ended: this is the last event.
    Closed {
        /// Sequence number of the event.
        seq: u64,
    },
}

impl LogEvent {
    /// Sequence number of the event.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Output(chunk) => chunk.seq,
            Self::Exited { seq, .. } | Self::Closed { seq } => *seq,
        }
    }
}

/// The answer to a read of everything after some event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Retained output in sequence order.
    pub chunks: Vec<Chunk>,
    /// The number after the last event that the page covers. That event is the last chunk if the read had a limit and
    /// the page has a chunk. Otherwise it is the last event of the log, which may be the exit or the close.
    pub next_seq: u64,
    /// Some output between the event that was asked for and `chunks` was dropped.
    pub gap: bool,
    /// The page ends inside its only chunk, and `next_seq` is the number of that chunk.
    pub is_partial: bool,
}

/// How much of one chunk a reader already has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartOfChunk {
    /// Sequence number of the chunk.
    pub seq: u64,
    /// Bytes at the beginning of the chunk that the reader has.
    pub offset: u64,
}

/// The events that a reader has acknowledged: all up to a sequence number. By default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Acknowledged {
    seq: u64,
    /// Bytes of output in all events up to `seq`, dropped output included.
    bytes: u64,
}

impl Acknowledged {
    /// Sequence number of the last acknowledged event; 0 if there is none.
    pub fn seq(&self) -> u64 {
        self.seq
    }
}

/// The event log of one process.
#[derive(Debug)]
pub struct EventLog {
    limits: LogLimits,
    /// All chunks but the open one, for example those that a reader has seen or that are full. They never change
    /// again.
    sealed: VecDeque<Chunk>,
    /// The newest chunk, while no reader has seen it: further output of the same stream is added to it.
    open: Option<OpenChunk>,
    next_seq: u64,
    retained_bytes: usize,
    /// Bytes of output so far, dropped output included.
    total_bytes: u64,
    /// Sequence number of the newest chunk that was dropped.
    dropped_through: u64,
    /// The exit event and its sequence number.
    exit: Option<(u64, LoggedExit)>,
    /// Sequence number of the close event.
    closed: Option<u64>,
    /// The buffer of a large chunk that was dropped, to be used for the next large chunk.
    spare: Option<Vec<u8>>,
}

#[derive(Debug)]
struct OpenChunk {
    seq: u64,
    stream: Stream,
    bytes: Vec<u8>,
}

impl EventLog {
    /// A log without events.
    pub fn new(limits: LogLimits) -> Self {
        Self {
            limits,
            sealed: VecDeque::new(),
            open: None,
            next_seq: 1,
            retained_bytes: 0,
            total_bytes: 0,
            dropped_through: 0,
            exit: None,
            closed: None,
            spare: None,
        }
    }

    /// The process wrote `bytes` to a stream. Drops the oldest output beyond the limits, even if no reader has seen it. A caller that must
    /// not lose output calls [`appendable_bytes`](Self::appendable_bytes) first.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) {
        bytes.chunks(self.limits.max_chunk_bytes.max(1)).for_each(|piece| self.append_piece(stream, piece));
    }

    fn append_piece(&mut self, stream: Stream, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        self.retained_bytes += bytes.len();
        match &mut self.open {
            Some(open) if open.stream == stream && open.bytes.len() + bytes.len() <= self.limits.max_chunk_bytes => {
                open.bytes.extend_from_slice(bytes);
            }
            _ => {
                self.seal();
                self.open = Some(OpenChunk { seq: self.take_seq(), stream, bytes: bytes.to_vec() });
            }
        }
        self.drop_beyond_limits();
    }

    /// As [`append`](Self::append), but a large buffer becomes a chunk without being copied.
    pub fn append_owned(&mut self, stream: Stream, bytes: Vec<u8>) {
        if bytes.len() < LARGE_BYTES || bytes.len() > self.limits.max_chunk_bytes {
            return self.append(stream, &bytes);
        }
        self.total_bytes += bytes.len() as u64;
        self.retained_bytes += bytes.len();
        self.seal();
        let seq = self.take_seq();
        self.sealed.push_back(Chunk { seq, stream, bytes: bytes.into() });
        self.drop_beyond_limits();
    }

    /// A buffer for the next [`append_owned`](Self::append_owned). A busy process uses the same few buffers again and again instead of
    /// asking the allocator for memory that has to be mapped and cleared.
    pub fn take_spare(&mut self) -> Option<Vec<u8>> {
        self.spare.take()
    }

    /// The process has exited. Returns the event's sequence number.
    pub fn exit(&mut self, exit: LoggedExit) -> u64 {
        self.spare = None;
        self.seal();
        let seq = self.take_seq();
        self.exit = Some((seq, exit));
        seq
    }

    /// The streams have ended too: no event follows. Returns the event's sequence number.
    pub fn close(&mut self) -> u64 {
        self.seal();
        let seq = self.take_seq();
        self.closed = Some(seq);
        seq
    }

    /// The retained output of all streams, in order.
    pub fn retained_output(&self) -> impl Iterator<Item = &[u8]> {
        self.sealed.iter().map(|chunk| &*chunk.bytes).chain(self.open.iter().map(|open| &*open.bytes))
    }

    /// The first event after `cursor`. A returned chunk counts as seen by a reader, so no output is merged into it any more.
    pub fn next_event(&mut self, cursor: u64) -> Option<LogEvent> {
        let exit_or_close = [
            self.exit.filter(|(seq, _)| *seq > cursor).map(|(seq, exit)| LogEvent::Exited { seq, exit }),
            self.closed.filter(|seq| *seq > cursor).map(|seq| LogEvent::Closed { seq }),
        ];
        let exit_or_close = exit_or_close.into_iter().flatten().min_by_key(LogEvent::seq);
        let before = exit_or_close.as_ref().map_or(u64::MAX, LogEvent::seq);
        if self.open.as_ref().is_some_and(|open| open.seq < before) && self.first_sealed_after(cursor).is_none() {
            self.seal();
        }
        match self.first_sealed_after(cursor) {
            Some(chunk) if chunk.seq < before => Some(LogEvent::Output(chunk.clone())),
            _ => exit_or_close,
        }
    }

    /// Whether [`next_event`](Self::next_event) would return an event.
    pub fn has_event_after(&self, cursor: u64) -> bool {
        let exit = self.exit.map(|(seq, _)| seq);
        [self.newest_output(), exit, self.closed].into_iter().flatten().any(|seq| seq > cursor)
    }

    /// Retained output after the event `after`: at most `max_bytes` and [`LogLimits::max_page_bytes`], but always one chunk if there is one.
    /// The returned chunks count as seen by a reader.
    pub fn read(&mut self, after: u64, max_bytes: Option<u64>) -> Page {
        self.seal();
        let first = self.sealed.partition_point(|chunk| chunk.seq <= after);
        let mut chunks = Vec::new();
        let mut budget = max_bytes.unwrap_or(u64::MAX);
        let mut room = self.limits.max_page_bytes;
        for chunk in self.sealed.iter().skip(first) {
            let size = chunk.bytes.len() as u64;
            let occupied = chunk.bytes.len() + CHUNK_OVERHEAD_BYTES;
            if !chunks.is_empty() && (size > budget || occupied > room) {
                break;
            }
            chunks.push(chunk.clone());
            room = room.saturating_sub(occupied);
            budget = budget.saturating_sub(size);
            if budget == 0 {
                break;
            }
        }
        let is_whole = max_bytes.is_none() && first + chunks.len() == self.sealed.len();
        let next_seq = match chunks.last() {
            Some(last) if !is_whole => last.seq + 1,
            _ => self.next_seq,
        };
        Page { chunks, next_seq, gap: after < self.dropped_through, is_partial: false }
    }

    /// As [`read`](Self::read), for a reader that may have a part of the first chunk. Bytes that the reader has are left out. If the rest of
    /// the first chunk exceeds `max_bytes`, the page holds only a part of it.
    pub fn read_part(&mut self, after: u64, max_bytes: u64, known: PartOfChunk) -> Page {
        let max_bytes = max_bytes.min(self.limits.max_page_bytes as u64);
        let mut page = self.read(after, Some(max_bytes));
        let Some(first) = page.chunks.first_mut() else { return page };
        let size = first.bytes.len();
        let begin = if first.seq == known.seq { usize::try_from(known.offset).unwrap_or(size).min(size) } else { 0 };
        // A reader that asks for zero bytes gets one, because it would otherwise ask for ever.
        let most = usize::try_from(max_bytes).unwrap_or(usize::MAX).max(1);
        let end = size.min(begin.saturating_add(most));
        first.bytes = first.bytes.slice(begin..end);
        if end < size {
            page.next_seq = first.seq;
            page.chunks.truncate(1);
            page.is_partial = true;
        }
        page
    }

    /// Whether a read that waits for events after `after` can be answered now: there is later output, or an exit that the reader has not
    /// seen, or the process is closed.
    pub fn has_news_after(&self, after: u64) -> bool {
        self.newest_output().is_some_and(|seq| seq > after)
            || self.closed.is_some()
            || (self.exit.is_some() && after < self.next_seq - 1)
    }

    /// The acknowledgement of every event up to `seq`.
    pub fn acknowledged_through(&self, seq: u64) -> Acknowledged {
        let later =
            self.sealed.iter().rev().take_while(|chunk| chunk.seq > seq).map(|chunk| chunk.bytes.len() as u64);
        let open = self.open.as_ref().filter(|open| open.seq > seq).map_or(0, |open| open.bytes.len() as u64);
        Acknowledged { seq, bytes: self.total_bytes - open - later.sum::<u64>() }
    }

    /// How many bytes may be appended without dropping output that a reader with these acknowledged events may still need.
    pub fn appendable_bytes(&self, acknowledged: Acknowledged) -> usize {
        let oldest_is_needed = self.sealed.front().is_some_and(|chunk| chunk.seq > acknowledged.seq);
        if oldest_is_needed && self.sealed.len() + 1 >= self.limits.retain_chunks {
            return 0;
        }
        self.limits.retain_bytes.saturating_sub(self.unacknowledged_bytes(acknowledged))
    }

    /// Drops the oldest output until the log occupies at most `bytes` of memory. Returns how many bytes of memory were freed.
    pub fn shrink_to(&mut self, bytes: usize) -> usize {
        let before = self.occupied_bytes();
        self.seal();
        while self.occupied_bytes() > bytes && self.drop_oldest() {}
        self.trim_queue();
        before - self.occupied_bytes()
    }

    /// Bytes of memory that the log occupies: the retained output, and [`CHUNK_OVERHEAD_BYTES`] for each chunk.
    pub fn occupied_bytes(&self) -> usize {
        self.retained_bytes + self.chunk_count() * CHUNK_OVERHEAD_BYTES
    }

    /// The part of [`occupied_bytes`](Self::occupied_bytes) that holds output after the acknowledged events.
    pub fn occupied_by_unacknowledged(&self, acknowledged: Acknowledged) -> usize {
        let known = self.sealed.partition_point(|chunk| chunk.seq <= acknowledged.seq);
        let open = self.open.as_ref().is_some_and(|open| open.seq > acknowledged.seq);
        let chunks = self.sealed.len() - known + usize::from(open);
        self.unacknowledged_bytes(acknowledged) + chunks * CHUNK_OVERHEAD_BYTES
    }

    /// Bytes of retained output after the acknowledged events.
    pub fn unacknowledged_bytes(&self, acknowledged: Acknowledged) -> usize {
        (self.total_bytes - acknowledged.bytes.max(self.dropped_bytes())) as usize
    }

    /// Bytes of output up to the acknowledged events, dropped output included.
    pub fn acknowledged_bytes(&self, acknowledged: Acknowledged) -> u64 {
        self.total_bytes - self.unacknowledged_bytes(acknowledged) as u64
    }

    /// Bytes of output that can still be read.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// Bytes of output so far, dropped output included.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Bytes of output that were dropped.
    pub fn dropped_bytes(&self) -> u64 {
        self.total_bytes - self.retained_bytes as u64
    }

    /// Sequence number of the oldest chunk that can still be read.
    pub fn oldest_seq(&self) -> Option<u64> {
        self.sealed.front().map(|chunk| chunk.seq).or(self.open.as_ref().map(|open| open.seq))
    }

    /// Sequence number that the next event will get.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The exit and its sequence number, once the process has exited.
    pub fn exit_event(&self) -> Option<(u64, LoggedExit)> {
        self.exit
    }

    /// Whether the process has exited and its streams have ended.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// Sequence number of the newest chunk that is retained.
    fn newest_output(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.seq).or(self.sealed.back().map(|chunk| chunk.seq))
    }

    fn take_seq(&mut self) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        seq
    }

    fn first_sealed_after(&self, cursor: u64) -> Option<&Chunk> {
        self.sealed.get(self.sealed.partition_point(|chunk| chunk.seq <= cursor))
    }

    fn chunk_count(&self) -> usize {
        self.sealed.len() + usize::from(self.open.is_some())
    }

    fn seal(&mut self) {
        if let Some(OpenChunk { seq, stream, mut bytes }) = self.open.take() {
            // The limit counts bytes of output, so unused capacity must not double the memory of those bytes.
            if bytes.capacity() > bytes.len() + bytes.len() / 4 {
                bytes.shrink_to_fit();
            }
            self.sealed.push_back(Chunk { seq, stream, bytes: bytes.into() });
        }
    }

    fn drop_beyond_limits(&mut self) {
        let LogLimits { retain_bytes, retain_chunks, .. } = self.limits;
        while (self.retained_bytes > retain_bytes || self.chunk_count() > retain_chunks) && self.drop_oldest() {}
        self.trim_queue();
    }

    /// Returns false if there is no sealed chunk.
    fn drop_oldest(&mut self) -> bool {
        let Some(oldest) = self.sealed.pop_front() else { return false };
        self.retained_bytes -= oldest.bytes.len();
        self.dropped_through = oldest.seq;
        if oldest.bytes.len() >= LARGE_BYTES && self.exit.is_none() && oldest.bytes.is_unique() {
            self.spare = Some(oldest.bytes.into());
        }
        true
    }

    fn trim_queue(&mut self) {
        if self.sealed.is_empty() {
            // A burst may have grown the queue to tens of thousands of chunks.
            self.sealed.shrink_to(8);
        }
    }
}

#[cfg(test)]
mod tests;
