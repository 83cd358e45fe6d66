//! A server as far as one process goes: what happened, what of it is retained, what is pushed and what a read answers.

use bytes::Bytes;
use protocol::{Base64Bytes, OutputChunk, ReadResult, Stream};
use recovery::{Event, Exit, Generation};

/// Which server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With `readGaps`; answers in pages; after a resume it pushes nothing until the client has read.
    Ours,
    /// Tells neither gaps nor the place of the exit, and pushes whatever happens while somebody is attached.
    Reference,
    /// As that, and its end has no number. It never drops output, for without numbers nobody could tell.
    Old,
}

/// What is sent without being asked for.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    Numbered(u64, Event),
    Close,
}

#[derive(Debug)]
pub(crate) struct Server {
    kind: Kind,
    retain_bytes: usize,
    page_bytes: usize,
    /// Everything that ever happened, the first event at index 0.
    log: Vec<Event>,
    /// Output up to this event is gone.
    dropped_through: u64,
    listener: Option<Generation>,
    /// The session was resumed, and the client has not read yet.
    awaits_read: bool,
    sent: u64,
    outbox: Vec<(Generation, Notice)>,
}

impl Server {
    pub(crate) fn new(kind: Kind, retain_bytes: usize, page_bytes: usize) -> Self {
        Self {
            kind,
            retain_bytes: if kind == Kind::Old { usize::MAX } else { retain_bytes },
            page_bytes: if kind == Kind::Ours { page_bytes } else { usize::MAX },
            log: Vec::new(),
            dropped_through: 0,
            listener: Some(Generation(0)),
            awaits_read: false,
            sent: 0,
            outbox: Vec::new(),
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn log(&self) -> &[Event] {
        &self.log
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.log.last() == Some(&Event::Closed)
    }

    /// Whether the last word of the process was output, not its exit.
    pub(crate) fn ends_in_output(&self) -> bool {
        matches!(self.log.as_slice(), [.., Event::Output { .. }, Event::Closed])
    }

    /// What is to be sent, in order.
    pub(crate) fn take_outbox(&mut self) -> Vec<(Generation, Notice)> {
        std::mem::take(&mut self.outbox)
    }

    pub(crate) fn output(&mut self, stream: Stream, bytes: Bytes) {
        self.log.push(Event::Output { stream, chunk: bytes });
        while self.retained().map(|(_, event)| event.bytes()).sum::<usize>() > self.retain_bytes
            && self.retained().count() > 1
        {
            self.dropped_through = self.oldest_seq().expect("something is retained");
        }
        self.push();
    }

    pub(crate) fn exit(&mut self, code: i32, sandbox_denied: bool, timed_out: bool) {
        let exit = match self.kind {
            Kind::Ours => Exit { code, sandbox_denied: Some(sandbox_denied), timed_out },
            Kind::Reference => Exit { code, sandbox_denied: Some(sandbox_denied), timed_out: false },
            Kind::Old => Exit { code, sandbox_denied: None, timed_out: false },
        };
        self.log.push(Event::Exited(exit));
        self.push();
    }

    pub(crate) fn close(&mut self) {
        self.log.push(Event::Closed);
        self.push();
    }

    /// A connection has resumed the session.
    pub(crate) fn attach(&mut self, generation: Generation) {
        self.listener = Some(generation);
        self.awaits_read = self.kind == Kind::Ours;
        self.sent = self.log.len() as u64;
    }

    /// The client that is attached has been silent; it is known to have this much.
    pub(crate) fn give_up_waiting(&mut self, generation: Generation, known: u64) {
        if self.listener == Some(generation) && self.awaits_read {
            self.awaits_read = false;
            self.sent = known;
            self.push();
        }
    }

    /// Answers `process/read`. What follows the page is pushed after it.
    pub(crate) fn read(&mut self, after: u64) -> ReadResult {
        let retained_bytes = self.retained().map(|(_, event)| event.bytes()).sum::<usize>();
        let max_bytes = (retained_bytes > self.page_bytes).then_some(self.page_bytes);
        let mut budget = max_bytes.unwrap_or(usize::MAX);
        let mut chunks: Vec<OutputChunk> = Vec::new();
        for (seq, event) in self.retained().filter(|(seq, _)| *seq > after) {
            let Event::Output { stream, chunk } = event else { unreachable!("only output is retained") };
            if !chunks.is_empty() && chunk.len() > budget {
                break;
            }
            chunks.push(OutputChunk { seq, stream: *stream, chunk: Base64Bytes(chunk.to_vec()) });
            budget = budget.saturating_sub(chunk.len());
            if budget == 0 {
                break;
            }
        }
        let counted = self.log.len() as u64 - u64::from(self.kind == Kind::Old && self.is_closed());
        let next_seq = match (max_bytes, chunks.last()) {
            (Some(_), Some(last)) => last.seq + 1,
            _ => counted + 1,
        };
        if self.awaits_read {
            self.awaits_read = false;
            self.sent = next_seq - 1;
            self.push();
        }
        let tells_gaps = self.kind == Kind::Ours;
        let exit = (1..).zip(&self.log).find_map(|(seq, event)| match event {
            Event::Exited(exit) => Some((seq, *exit)),
            _ => None,
        });
        let gap = tells_gaps && after < self.dropped_through;
        ReadResult {
            chunks,
            next_seq,
            exited: exit.is_some(),
            exit_code: exit.map(|(_, exit)| exit.code),
            closed: self.is_closed(),
            failure: None,
            sandbox_denied: exit.is_some_and(|(_, exit)| exit.sandbox_denied == Some(true)),
            oldest_seq: self.oldest_seq().filter(|_| tells_gaps),
            exit_seq: exit.map(|(seq, _)| seq).filter(|_| tells_gaps),
            timed_out: exit.is_some_and(|(_, exit)| exit.timed_out),
            gap,
            dropped_bytes: gap.then(|| self.dropped().map(|(_, event)| event.bytes() as u64).sum()),
            partial: false,
        }
    }

    /// Events that a read does not bring any more.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = (u64, &Event)> {
        self.outputs().filter(|(seq, _)| *seq <= self.dropped_through)
    }

    fn retained(&self) -> impl Iterator<Item = (u64, &Event)> {
        self.outputs().filter(|(seq, _)| *seq > self.dropped_through)
    }

    fn outputs(&self) -> impl Iterator<Item = (u64, &Event)> {
        (1..).zip(&self.log).filter(|(_, event)| matches!(event, Event::Output { .. }))
    }

    fn oldest_seq(&self) -> Option<u64> {
        self.retained().next().map(|(seq, _)| seq)
    }

    fn push(&mut self) {
        let Some(listener) = self.listener.filter(|_| !self.awaits_read) else { return };
        for (seq, event) in (1..).zip(&self.log).skip(self.sent as usize) {
            let is_gone = matches!(event, Event::Output { .. }) && seq <= self.dropped_through;
            let notice = match event {
                _ if is_gone => continue,
                Event::Closed if self.kind == Kind::Old => Notice::Close,
                event => Notice::Numbered(seq, event.clone()),
            };
            self.outbox.push((listener, notice));
        }
        self.sent = self.log.len() as u64;
    }
}
