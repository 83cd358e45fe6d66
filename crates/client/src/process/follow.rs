//! A stream of all events of a process, up to the last. Missed events are read from the output that the server retains.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use protocol::{ReadParams, ReadResult};
use recovery::{Completion, CompletionStep};

use super::receiver::ExecProcessEventReceiver;
use crate::error::ExecServerError;
use crate::records::{ExecProcessEvent, ProcessOutputChunk};

type ReadFuture = Pin<Box<dyn Future<Output = Result<ReadResult, ExecServerError>> + Send + Sync>>;

/// All events of a process, each once and in order. An exit always says whether the sandbox denied something: if the exit event of the
/// server does not say so, the client asks the server.
pub struct ProcessEvents {
    receiver: ExecProcessEventReceiver,
    /// Knows which events were received, and decides when missed events must be read.
    completion: Completion,
    /// Events that [`next`](Self::next) returns without waiting.
    ready: VecDeque<ExecProcessEvent>,
    /// The read of missed events that is in flight.
    reading: Option<ReadFuture>,
    is_over: bool,
}

impl ProcessEvents {
    /// The events after the sequence number `after`. With 0, these are all events.
    pub(crate) fn new(receiver: ExecProcessEventReceiver, after: u64) -> Self {
        let completion = Completion::after(after);
        Self { receiver, completion, ready: VecDeque::new(), reading: None, is_over: false }
    }

    /// Waits for the next event. Returns `None` after the last event. Cancel safe.
    pub async fn next(&mut self) -> Option<ExecProcessEvent> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`next`](Self::next), for implementations of `poll` functions.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<ExecProcessEvent>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.is_over |= event.is_last();
                return Poll::Ready(Some(event));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            if let Some(reading) = &mut self.reading {
                let answer = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                self.take_answer(answer);
                continue;
            }
            match ready!(self.receiver.poll_recv(cx)) {
                Ok(Some(event)) => self.take_event(event),
                Ok(None) => self.is_over = true,
                Err(_) => self.read(self.completion.last()),
            }
        }
    }

    fn take_event(&mut self, event: ExecProcessEvent) {
        let Some((seq, sequenced)) = event.sequenced() else { return self.ready.push_back(event) };
        match self.completion.handle_event(seq, &sequenced) {
            CompletionStep::Take => self.ready.push_back(event),
            CompletionStep::Skip => {}
            CompletionStep::Read { after } => self.read(after),
        }
    }

    fn read(&mut self, after: u64) {
        let core = Arc::clone(&self.receiver.handle().core);
        let process_id = self.receiver.record().id.clone();
        self.reading =
            Some(Box::pin(async move { super::read::read(&core, ReadParams::after(process_id, after)).await }));
    }

    fn take_answer(&mut self, answer: Result<ReadResult, ExecServerError>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.fail(error.to_string()),
        };
        let before = self.completion.clone();
        if let Some(lost) = lost_output(&answer, before.last()) {
            return self.fail(lost);
        }
        let next_step = self.completion.handle_read(&answer);
        if matches!(next_step, CompletionStep::Read { .. }) && self.completion.last() == before.last() {
            return self.fail("the server answers again with output that it has sent before".to_owned());
        }
        let mut recovered: Vec<ExecProcessEvent> = Vec::new();
        // Sequence number of the last event that the answer covers.
        let through = answer.next_seq.saturating_sub(1);
        if let (None, Some(exit)) = (before.exit(), self.completion.exit()) {
            // If the server does not say the sequence number of the exit, the exit has the first number that no
            // output has.
            let is_output = |seq: u64| answer.chunks.iter().any(|chunk| chunk.seq == seq);
            let exit_seq = answer.exit_seq.or_else(|| (before.last() + 1..=through).find(|seq| !is_output(*seq)));
            let seq = exit_seq.unwrap_or(through);
            recovered.push(ExecProcessEvent::new(seq, recovery::Event::Exited(exit)));
        }
        recovered.extend(answer.chunks.into_iter().filter(|chunk| chunk.seq > before.last()).map(|chunk| {
            let (seq, stream) = (chunk.seq, chunk.stream);
            ExecProcessEvent::Output(ProcessOutputChunk { seq, stream, chunk: Bytes::from(chunk.chunk.0) })
        }));
        recovered.sort_by_key(|event| event.sequenced().map_or(u64::MAX, |(seq, _)| seq));
        self.ready.extend(recovered);
        if self.completion.is_closed() && !before.is_closed() {
            self.ready.push_back(ExecProcessEvent::Closed { seq: through });
        }
        // The process has ended, so no more events are pushed. The answer did not hold all events, so the client
        // reads again.
        if let CompletionStep::Read { after } = next_step {
            self.read(after);
        }
    }

    fn fail(&mut self, text: String) {
        self.ready.push_back(ExecProcessEvent::Failed(text));
    }
}

/// The failure text if output after the event `last` is no longer retained.
fn lost_output(answer: &ReadResult, last: u64) -> Option<String> {
    if !answer.gap {
        return None;
    }
    let oldest = answer.oldest_seq.unwrap_or(answer.next_seq);
    let lost_part = match answer.dropped_bytes {
        Some(bytes) => format!("the first {bytes} bytes of output are"),
        None => format!("the output before sequence {oldest} is"),
    };
    Some(format!(
        "process output was lost: {lost_part} no longer retained, and sequence {last} was the last received"
    ))
}
