//! The record of one process, the client's state of it: its events in order, how it ended, and what the client has to
//! do for it. All handles to the process share the record.
//!
//! A *hole* is a missing event before events that have come. *Flow* is a request to pause or resume the process;
//! while a process is paused, the server sends none of its events.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use protocol::{ChunkPart, ProcessId, ReadResult, WriteId};
use recovery::{CatchUpError, Event, EventOrder, Exit, OrderLimits};
use tokio::sync::watch;

use super::begun_chunk::{BegunChunk, ChunkTooLong};
use super::event::ExecProcessEvent;
use super::feed::Feed;
use super::network_policy::ProcessDecider;

pub(crate) struct ProcessRecord {
    pub(crate) id: ProcessId,
    /// Number of a subscription that was added before the first event, so that it misses none. The first user who
    /// subscribes gets it.
    pub(crate) first_subscriber: u64,
    state: Mutex<ProcessRecordState>,
    /// Sequence number of the last event.
    wake: watch::Sender<u64>,
    /// Prefix of the write ids of this client, if earlier clients of the session may have used the ids 1, 2, 3 and so
    /// on.
    writer: Option<uuid::Uuid>,
    last_write: AtomicU64,
    /// Locked by the current write, so that no other write comes between its pieces.
    pub(crate) writing: tokio::sync::Mutex<()>,
    /// The server has confirmed the start, or has answered the first read of a client that attaches. Since then,
    /// missed events are read after a lost connection.
    is_recoverable: AtomicBool,
    /// The process is to outlive this client.
    is_detached: AtomicBool,
    /// The user has dropped the `ExecProcess`.
    is_handle_dropped: AtomicBool,
    /// A job reads the missing events of a hole.
    is_filling_hole: AtomicBool,
    /// A job asks the server to pause or resume the process, or has found that the server cannot do that.
    is_sending_flow: AtomicBool,
    /// Decides which hosts the process may reach. None: every question of the server is answered with no.
    pub(crate) network_decider: Option<ProcessDecider>,
}

struct ProcessRecordState {
    order: EventOrder,
    feed: Feed,
    /// Bytes of output that were published to the feed.
    received: u64,
    exit: Option<Exit>,
    failure: Option<String>,
    /// The parts of the next chunk that have come.
    begun: BegunChunk,
}

/// Whether a process still runs, as far as the client knows. `Failed` means that the client cannot follow it any
/// longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessProgress {
    Running,
    Exited(Exit),
    Failed(String),
}

/// Work that the client has to do after an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// Remove the record: no event follows.
    Over,
    /// Remove the record and kill the process unless it is detached, because the client cannot follow it any longer.
    Terminate,
    /// Read the missing events of a hole.
    FillHole,
    /// Pause or resume the process, because a subscriber is far behind or has caught up.
    Flow,
}

/// The reason why the answer to a read does not bring the missed events of a process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    #[error(transparent)]
    CatchUp(#[from] CatchUpError),
    #[error(transparent)]
    ChunkTooLong(#[from] ChunkTooLong),
}

impl ProcessRecord {
    pub(crate) fn new(id: ProcessId, network_decider: Option<ProcessDecider>) -> Arc<Self> {
        Self::with_writer(id, None, network_decider)
    }

    /// A record for a process that earlier clients of the session may have followed and written to.
    pub(crate) fn of_resumed(id: ProcessId) -> Arc<Self> {
        Self::with_writer(id, Some(uuid::Uuid::new_v4()), None)
    }

    fn with_writer(id: ProcessId, writer: Option<uuid::Uuid>, network_decider: Option<ProcessDecider>) -> Arc<Self> {
        let mut feed = Feed::default();
        let first_subscriber = feed.subscribe();
        let order = EventOrder::new(OrderLimits::default());
        let state =
            ProcessRecordState { order, feed, received: 0, exit: None, failure: None, begun: BegunChunk::default() };
        Arc::new(Self {
            id,
            first_subscriber,
            state: Mutex::new(state),
            wake: watch::Sender::new(0),
            writer,
            last_write: AtomicU64::new(0),
            writing: tokio::sync::Mutex::default(),
            is_recoverable: AtomicBool::new(false),
            is_detached: AtomicBool::new(false),
            is_handle_dropped: AtomicBool::new(false),
            is_filling_hole: AtomicBool::new(false),
            is_sending_flow: AtomicBool::new(false),
            network_decider,
        })
    }

    /// Takes an event that the server has pushed.
    pub(crate) fn push(&self, seq: u64, event: Event) -> Option<Consequence> {
        let mut state = self.state.lock();
        match state.order.handle_event(seq, event) {
            Ok(()) => self.publish(&mut state),
            Err(error) => {
                self.fail_locked(&mut state, error.to_string());
                Some(Consequence::Terminate)
            }
        }
    }

    /// Takes a close from a server that does not number it.
    pub(crate) fn push_unnumbered_close(&self) -> Option<Consequence> {
        let mut state = self.state.lock();
        state.order.handle_unnumbered_close();
        self.publish(&mut state)
    }

    /// Called when the server has confirmed the start. Returns the work that the events before the confirmation have
    /// made necessary. Before the confirmation, the client reads no missing events.
    pub(crate) fn publish_early_events(&self) -> Option<Consequence> {
        self.publish(&mut self.state.lock())
    }

    /// Skips the events up to `through`, which the server no longer retains. They had `bytes` bytes of output.
    pub(crate) fn skip(&self, through: u64, bytes: u64) {
        let mut state = self.state.lock();
        state.order.skip(through);
        state.received += bytes;
    }

    /// How much of the next chunk has come. A read sends this to get the rest of the chunk.
    pub(crate) fn begun_part(&self) -> ChunkPart {
        self.state.lock().begun.part()
    }

    /// Takes the answer to a read of everything after [`ProcessRecord::last_seq`].
    pub(crate) fn catch_up(&self, mut answer: ReadResult) -> Result<Option<Consequence>, RecordError> {
        let mut state = self.state.lock();
        if state.failure.is_some() {
            return Ok(None);
        }
        if answer.partial {
            state.begun.extend(answer)?;
            return Ok(None);
        }
        state.begun.complete(&mut answer);
        let received = state.received;
        state.order.handle_read(answer, received)?;
        Ok(self.publish(&mut state))
    }

    /// Ends the events of the process with this failure.
    pub(crate) fn fail(&self, text: &str) {
        self.fail_locked(&mut self.state.lock(), text.to_owned());
    }

    /// Remembers how the process exited, for an exit event that the server no longer retains.
    pub(crate) fn note_exit(&self, exit: Exit) {
        self.state.lock().exit.get_or_insert(exit);
    }

    /// Gives all events that are in order to the subscribers.
    fn publish(&self, state: &mut ProcessRecordState) -> Option<Consequence> {
        if state.failure.is_some() {
            return None;
        }
        let before = state.order.last();
        while let Some((seq, mut event)) = state.order.poll_event() {
            state.received += event.bytes() as u64;
            match &mut event {
                // A process exits once, so every further exit repeats the first.
                Event::Exited(exit) => *exit = state.exit.get_or_insert_with(|| exit.clone()).clone(),
                Event::Output { .. } | Event::Closed => {}
            }
            state.feed.publish(ExecProcessEvent::new(seq, event));
        }
        if state.order.last() != before {
            self.wake.send_replace(state.order.last());
        }
        if state.order.is_closed() {
            return Some(Consequence::Over);
        }
        // Before `set_recoverable`, a client that attaches to a process does not know the first event, so every
        // pushed event seems to follow a hole.
        let is_new_hole =
            self.is_recoverable() && state.order.has_hole() && !self.is_filling_hole.swap(true, Ordering::Relaxed);
        if is_new_hole {
            // The answer that fills the hole is published too, and begins a pause or resume that is due.
            return Some(Consequence::FillHole);
        }
        self.claim_flow_job(state).then_some(Consequence::Flow)
    }

    /// As [`fail`](Self::fail), for a caller that has locked the state.
    fn fail_locked(&self, state: &mut ProcessRecordState, text: String) {
        if state.failure.is_none() && !state.order.is_closed() {
            state.feed.publish(ExecProcessEvent::Failed(text.clone()));
            state.failure = Some(text);
            self.wake.send_modify(|_| {});
        }
    }

    /// The job that reads missing events has ended.
    pub(crate) fn note_hole_filling_ended(&self) {
        self.is_filling_hole.store(false, Ordering::Relaxed);
    }

    pub(crate) fn has_hole(&self) -> bool {
        self.state.lock().order.has_hole()
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.state.lock().order.last()
    }

    /// Whether no event follows.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.order.is_closed() || state.failure.is_some()
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    pub(crate) fn progress(&self) -> ProcessProgress {
        let state = self.state.lock();
        match (&state.exit, &state.failure) {
            (Some(exit), _) => ProcessProgress::Exited(exit.clone()),
            (None, Some(text)) => ProcessProgress::Failed(text.clone()),
            // No event follows, so a caller must not wait for the exit.
            (None, None) if state.order.is_closed() => {
                ProcessProgress::Failed("the server closed the process and did not say how it exited".to_owned())
            }
            (None, None) => ProcessProgress::Running,
        }
    }

    /// Calls a function with the feed, the queue of events for all subscribers.
    pub(crate) fn feed<T>(&self, use_feed: impl FnOnce(&mut Feed) -> T) -> T {
        use_feed(&mut self.state.lock().feed)
    }

    /// As [`ProcessRecord::feed`], when a subscriber takes an event or unsubscribes. The process may have to be
    /// resumed after that.
    pub(crate) fn consume<T>(&self, use_feed: impl FnOnce(&mut Feed) -> T) -> (T, Option<Consequence>) {
        let mut state = self.state.lock();
        let result = use_feed(&mut state.feed);
        let consequence = self.claim_flow_job(&mut state).then_some(Consequence::Flow);
        (result, consequence)
    }

    /// Returns true if the caller must add a job that asks the server to pause or resume the process. The job counts
    /// as running from now on, because there is one such job at a time.
    fn claim_flow_job(&self, state: &mut ProcessRecordState) -> bool {
        state.feed.update_pause() && !self.is_sending_flow.swap(true, Ordering::Relaxed)
    }

    /// Whether the process should be paused now.
    pub(crate) fn wants_pause(&self) -> bool {
        self.state.lock().feed.wants_pause()
    }

    /// The server has confirmed that the process is paused or resumed. Returns true if the job must now send the opposite.
    pub(crate) fn note_flow_confirmed(&self, paused: bool) -> bool {
        let state = self.state.lock();
        let is_right = state.feed.wants_pause() == paused;
        if is_right {
            self.is_sending_flow.store(false, Ordering::Relaxed);
        }
        !is_right
    }

    /// The request to pause or resume the process has failed.
    pub(crate) fn note_flow_failed(&self) {
        self.is_sending_flow.store(false, Ordering::Relaxed);
    }

    pub(crate) fn subscribe_wake(&self) -> watch::Receiver<u64> {
        self.wake.subscribe()
    }

    pub(crate) fn next_write_id(&self) -> WriteId {
        let number = self.last_write.fetch_add(1, Ordering::Relaxed) + 1;
        WriteId::from(match self.writer {
            Some(writer) => format!("{writer}-{number}"),
            None => number.to_string(),
        })
    }

    pub(crate) fn is_detached(&self) -> bool {
        self.is_detached.load(Ordering::Relaxed)
    }

    pub(crate) fn detach(&self) {
        self.is_detached.store(true, Ordering::Relaxed);
    }

    pub(crate) fn set_handle_dropped(&self) {
        self.is_handle_dropped.store(true, Ordering::Relaxed);
    }

    /// Whether neither a handle nor a subscriber is left.
    pub(crate) fn is_unused(&self) -> bool {
        self.is_handle_dropped.load(Ordering::Relaxed) && !self.feed(|feed| feed.has_subscribers())
    }

    pub(crate) fn is_recoverable(&self) -> bool {
        self.is_recoverable.load(Ordering::Acquire)
    }

    pub(crate) fn set_recoverable(&self) {
        self.is_recoverable.store(true, Ordering::Release);
    }
}
