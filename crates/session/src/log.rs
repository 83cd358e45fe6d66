//! What a process said: its output, exit and close under one sequence, with a bounded window of output retained.
//!
//! Output that nobody has seen yet is merged into the last chunk, so the number of events follows how fast the
//! reader is, not how small the writes of the process are. Sequence numbers are dense: each is used once.

use std::collections::VecDeque;

use bytes::Bytes;
use protocol::Stream;

/// How much a log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes of output retained.
    pub retain_bytes: usize,
    /// Chunks of output retained, so that a read of all of them fits a message's value budget.
    pub retain_chunks: usize,
    /// The largest chunk: more than this is split, and unseen output merges up to this.
    pub merge_bytes: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self { retain_bytes: 1 << 20, retain_chunks: 50_000, merge_bytes: 256 << 10 }
    }
}

/// Output that comes in pieces of this size is kept in the buffers it came in.
const LARGE_BYTES: usize = 64 << 10;

/// What a chunk costs beside its bytes: its entry in a queue that grows by doubling, the allocator's share, and the count of its readers
/// once it was read. Measured: 126 bytes for a chunk of one byte.
pub const CHUNK_OVERHEAD_BYTES: usize = 128;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Exit code, 128+N after signal N.
    pub code: i32,
    /// The sandbox refused something.
    pub sandbox_denied: bool,
    /// The server ended it because its time was over.
    pub timed_out: bool,
}

/// A piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its place among the events.
    pub seq: u64,
    /// Where it came from.
    pub stream: Stream,
    /// The bytes.
    pub bytes: Bytes,
}

/// Something to tell the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Output.
    Output(Chunk),
    /// The process has exited.
    Exited {
        /// Its place among the events.
        seq: u64,
        /// How.
        exit: Exit,
    },
    /// Nothing will follow.
    Closed {
        /// Its place among the events.
        seq: u64,
    },
}

impl Event {
    /// Its place among the events.
    pub fn seq(&self) -> u64 {
        match self {
            Self::Output(chunk) => chunk.seq,
            Self::Exited { seq, .. } | Self::Closed { seq } => *seq,
        }
    }
}

/// An answer to "what came after this event?".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Retained output, in order.
    pub chunks: Vec<Chunk>,
    /// Where to go on.
    pub next_seq: u64,
    /// Output between what was asked for and `chunks` is gone.
    pub gap: bool,
    /// The only chunk is not whole, and `next_seq` is its own number.
    pub is_partial: bool,
}

/// A place inside a chunk, up to which a reader has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartOfChunk {
    /// Which chunk.
    pub seq: u64,
    /// How many of its bytes.
    pub offset: u64,
}

/// The log of one process.
#[derive(Debug)]
pub struct EventLog {
    limits: LogLimits,
    /// Seen or full; never changed again.
    sealed: VecDeque<Chunk>,
    /// Not seen by anybody yet, so more of the same stream may be added.
    open: Option<OpenChunk>,
    next_seq: u64,
    retained_bytes: usize,
    /// All output so far, dropped output included.
    total_bytes: u64,
    /// The last sequence number whose output was dropped.
    dropped_through: u64,
    /// How much of the output the client is known to have.
    acknowledged_bytes: u64,
    acknowledged_seq: u64,
    exit: Option<(u64, Exit)>,
    closed: Option<u64>,
    /// The buffer of a large chunk that was dropped, for the next one.
    spare: Option<Vec<u8>>,
}

#[derive(Debug)]
struct OpenChunk {
    seq: u64,
    stream: Stream,
    bytes: Vec<u8>,
}

impl EventLog {
    /// An empty log.
    pub fn new(limits: LogLimits) -> Self {
        Self {
            limits,
            sealed: VecDeque::new(),
            open: None,
            next_seq: 1,
            retained_bytes: 0,
            total_bytes: 0,
            dropped_through: 0,
            acknowledged_bytes: 0,
            acknowledged_seq: 0,
            exit: None,
            closed: None,
            spare: None,
        }
    }

    /// The process wrote something. Drops the oldest output beyond the limits, whoever has seen it or not; a caller
    /// that must not lose any asks for [`room`](Self::room) first.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) {
        bytes.chunks(self.limits.merge_bytes.max(1)).for_each(|piece| self.append_piece(stream, piece));
    }

    fn append_piece(&mut self, stream: Stream, bytes: &[u8]) {
        self.total_bytes += bytes.len() as u64;
        self.retained_bytes += bytes.len();
        match &mut self.open {
            Some(open) if open.stream == stream && open.bytes.len() + bytes.len() <= self.limits.merge_bytes => {
                open.bytes.extend_from_slice(bytes);
            }
            _ => {
                self.seal();
                self.open = Some(OpenChunk { seq: self.take_seq(), stream, bytes: bytes.to_vec() });
            }
        }
        self.drop_beyond_limits();
    }

    /// As [`append`](Self::append), for a buffer that is large enough to be kept as it is.
    pub fn append_owned(&mut self, stream: Stream, bytes: Vec<u8>) {
        if bytes.len() < LARGE_BYTES || bytes.len() > self.limits.merge_bytes {
            return self.append(stream, &bytes);
        }
        self.total_bytes += bytes.len() as u64;
        self.retained_bytes += bytes.len();
        self.seal();
        let seq = self.take_seq();
        self.sealed.push_back(Chunk { seq, stream, bytes: bytes.into() });
        self.drop_beyond_limits();
    }

    /// A buffer to read into and append: busy processes go through the same few buffers over and over, instead of
    /// asking the allocator for memory that has to be mapped and cleared.
    pub fn take_spare(&mut self) -> Option<Vec<u8>> {
        self.spare.take()
    }

    /// The process has exited. Returns the event's sequence number.
    pub fn exit(&mut self, exit: Exit) -> u64 {
        self.spare = None;
        self.seal();
        let seq = self.take_seq();
        self.exit = Some((seq, exit));
        seq
    }

    /// The streams have ended too; nothing will follow.
    pub fn close(&mut self) -> u64 {
        self.seal();
        let seq = self.take_seq();
        self.closed = Some(seq);
        seq
    }

    /// The event that follows `cursor`, and marks it as seen.
    pub fn next_event(&mut self, cursor: u64) -> Option<Event> {
        let state = [
            self.exit.filter(|(seq, _)| *seq > cursor).map(|(seq, exit)| Event::Exited { seq, exit }),
            self.closed.filter(|seq| *seq > cursor).map(|seq| Event::Closed { seq }),
        ];
        let state = state.into_iter().flatten().min_by_key(Event::seq);
        let before = state.as_ref().map_or(u64::MAX, Event::seq);
        if self.open.as_ref().is_some_and(|open| open.seq < before) && self.first_sealed_after(cursor).is_none() {
            self.seal();
        }
        match self.first_sealed_after(cursor) {
            Some(chunk) if chunk.seq < before => Some(Event::Output(chunk.clone())),
            _ => state,
        }
    }

    /// Whether [`next_event`](Self::next_event) would return one.
    pub fn has_event_after(&self, cursor: u64) -> bool {
        self.next_seq - 1 > cursor
    }

    /// Retained output after `after`, at most `max_bytes` of it but always one chunk, and marks it as seen.
    pub fn read(&mut self, after: u64, max_bytes: Option<u64>) -> Page {
        self.seal();
        let first = self.sealed.partition_point(|chunk| chunk.seq <= after);
        let mut chunks = Vec::new();
        let mut budget = max_bytes.unwrap_or(u64::MAX);
        for chunk in self.sealed.iter().skip(first) {
            let size = chunk.bytes.len() as u64;
            if !chunks.is_empty() && size > budget {
                break;
            }
            chunks.push(chunk.clone());
            budget = budget.saturating_sub(size);
            if budget == 0 {
                break;
            }
        }
        let next_seq = match (max_bytes, chunks.last()) {
            (Some(_), Some(last)) => last.seq + 1,
            _ => self.next_seq,
        };
        Page { chunks, next_seq, gap: after < self.dropped_through, is_partial: false }
    }

    /// As [`read`](Self::read), for a reader that may have a part of the first chunk: only the rest of it comes, and no more of that than
    /// `max_bytes`.
    pub fn read_part(&mut self, after: u64, max_bytes: u64, known: PartOfChunk) -> Page {
        let mut page = self.read(after, Some(max_bytes));
        let Some(first) = page.chunks.first_mut() else { return page };
        let size = first.bytes.len();
        let begin = if first.seq == known.seq { usize::try_from(known.offset).unwrap_or(size).min(size) } else { 0 };
        // A reader that asks for nothing is not to ask for ever.
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

    /// Whether a waiting read has something to say: output, an exit the reader has not seen, or the end.
    pub fn has_news_after(&self, after: u64) -> bool {
        let newest_output = self.open.as_ref().map(|open| open.seq).or(self.sealed.back().map(|chunk| chunk.seq));
        newest_output.is_some_and(|seq| seq > after)
            || self.closed.is_some()
            || (self.exit.is_some() && after < self.next_seq - 1)
    }

    /// The client is known to have every event up to `seq`.
    pub fn acknowledge(&mut self, seq: u64) {
        if seq <= self.acknowledged_seq {
            return;
        }
        self.acknowledged_seq = seq;
        let later =
            self.sealed.iter().rev().take_while(|chunk| chunk.seq > seq).map(|chunk| chunk.bytes.len() as u64);
        let open = self.open.as_ref().filter(|open| open.seq > seq).map_or(0, |open| open.bytes.len() as u64);
        self.acknowledged_bytes = self.total_bytes - open - later.sum::<u64>();
    }

    /// The last event the client is known to have.
    pub fn acknowledged_seq(&self) -> u64 {
        self.acknowledged_seq
    }

    /// How much may be appended without dropping output that the client may still need.
    pub fn room(&self) -> usize {
        let oldest_is_needed = self.sealed.front().is_some_and(|chunk| chunk.seq > self.acknowledged_seq);
        if oldest_is_needed && self.sealed.len() + 1 >= self.limits.retain_chunks {
            return 0;
        }
        self.limits.retain_bytes.saturating_sub(self.unacknowledged_bytes())
    }

    /// Gives memory back: occupies at most `bytes` from now on. Returns how many bytes of memory were freed.
    pub fn shrink_to(&mut self, bytes: usize) -> usize {
        let before = self.occupied_bytes();
        self.seal();
        while self.occupied_bytes() > bytes && self.drop_oldest() {}
        self.trim_queue();
        before - self.occupied_bytes()
    }

    /// Memory that the log occupies: the output that is retained, and what its chunks cost beside it.
    pub fn occupied_bytes(&self) -> usize {
        self.retained_bytes + self.chunk_count() * CHUNK_OVERHEAD_BYTES
    }

    /// The part of [`occupied_bytes`](Self::occupied_bytes) that holds output which the client is not known to have.
    pub fn occupied_by_unacknowledged(&self) -> usize {
        let acknowledged = self.sealed.partition_point(|chunk| chunk.seq <= self.acknowledged_seq);
        let open = self.open.as_ref().is_some_and(|open| open.seq > self.acknowledged_seq);
        let chunks = self.sealed.len() - acknowledged + usize::from(open);
        self.unacknowledged_bytes() + chunks * CHUNK_OVERHEAD_BYTES
    }

    /// Output the client is not known to have.
    pub fn unacknowledged_bytes(&self) -> usize {
        (self.total_bytes - self.acknowledged_bytes.max(self.dropped_bytes())) as usize
    }

    /// Bytes retained now.
    pub fn retained_bytes(&self) -> usize {
        self.retained_bytes
    }

    /// All output so far.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Output that is no longer retained.
    pub fn dropped_bytes(&self) -> u64 {
        self.total_bytes - self.retained_bytes as u64
    }

    /// The oldest output still retained.
    pub fn oldest_seq(&self) -> Option<u64> {
        self.sealed.front().map(|chunk| chunk.seq).or(self.open.as_ref().map(|open| open.seq))
    }

    /// The number the next event will get.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The exit, with its place among the events.
    pub fn exit_event(&self) -> Option<(u64, Exit)> {
        self.exit
    }

    /// Whether the process has exited and its streams have ended.
    pub fn is_closed(&self) -> bool {
        self.closed.is_some()
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
            // Retained memory is promised in bytes of output, so growth slack must not double it.
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

    /// False if there is no chunk that can be dropped.
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
            // A burst may have grown the queue to tens of thousands of entries.
            self.sealed.shrink_to(8);
        }
    }
}

#[cfg(test)]
mod tests;
