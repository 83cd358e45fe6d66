//! What the client knows of one process, whoever holds a handle to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use protocol::{ChunkPart, ProcessId, ReadResult, WriteId};
use recovery::{CatchUpError, Event, EventOrder, Exit, OrderLimits};
use tokio::sync::watch;

use super::event::ExecProcessEvent;
use super::feed::Feed;
use super::read::BegunChunk;

/// The record of a process.
pub(crate) struct Entry {
    pub(crate) id: ProcessId,
    /// The subscriber that was there before the first event.
    pub(crate) first_subscriber: u64,
    state: Mutex<State>,
    /// The last event, for those who only want to know that there was one.
    wake: watch::Sender<u64>,
    /// Sets the writes of this client apart from those of others before it, which have counted from one too.
    writer: Option<uuid::Uuid>,
    last_write: AtomicU64,
    /// Held by the write that is on its way, which may be sent in pieces.
    pub(crate) writing: tokio::sync::Mutex<()>,
    /// The start was answered: from now on the process is caught up with after a lost connection.
    is_recoverable: AtomicBool,
    /// It is not ours to end.
    is_detached: AtomicBool,
    /// Its handle is gone.
    is_let_go: AtomicBool,
    is_filling_hole: AtomicBool,
    is_telling_flow: AtomicBool,
}

struct State {
    order: EventOrder,
    feed: Feed,
    /// Bytes of output that were handed out.
    received: u64,
    exit: Option<Exit>,
    failure: Option<String>,
    closed_seq: Option<u64>,
    /// Output that connections were too short for, as far as it has come.
    begun: BegunChunk,
}

/// How far a process has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Running,
    Exited(Exit),
    Failed(String),
}

/// What has to be done because of an event.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Consequence {
    /// Nothing more will come of it.
    Over,
    /// It can no longer be followed and must not go on unseen.
    Terminate,
    /// Something is missing that should be here.
    FillHole,
    /// It is to wait, or to go on, and nobody tells it yet.
    Flow,
}

impl Entry {
    pub(crate) fn new(id: ProcessId) -> Arc<Self> {
        Self::with_writer(id, None)
    }

    /// An entry for a process that others may have followed, and have written to.
    pub(crate) fn of_others(id: ProcessId) -> Arc<Self> {
        Self::with_writer(id, Some(uuid::Uuid::new_v4()))
    }

    fn with_writer(id: ProcessId, writer: Option<uuid::Uuid>) -> Arc<Self> {
        let mut feed = Feed::default();
        let first_subscriber = feed.subscribe();
        let order = EventOrder::new(OrderLimits::default());
        let state = State {
            order,
            feed,
            received: 0,
            exit: None,
            failure: None,
            closed_seq: None,
            begun: BegunChunk::default(),
        };
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
            is_let_go: AtomicBool::new(false),
            is_filling_hole: AtomicBool::new(false),
            is_telling_flow: AtomicBool::new(false),
        })
    }

    /// An event was pushed.
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

    /// The end was pushed by a server that does not number it.
    pub(crate) fn push_unnumbered_close(&self) -> Option<Consequence> {
        let mut state = self.state.lock();
        state.order.handle_unnumbered_close();
        self.publish(&mut state)
    }

    /// What has to be done because of the events so far, now that the start was answered: until then nothing was asked for that is missing.
    pub(crate) fn look_again(&self) -> Option<Consequence> {
        self.publish(&mut self.state.lock())
    }

    /// Its events up to `through`, with `bytes` of output, are gone.
    pub(crate) fn skip(&self, through: u64, bytes: u64) {
        let mut state = self.state.lock();
        state.order.skip(through);
        state.received += bytes;
    }

    /// How much of the next chunk is here already.
    pub(crate) fn begun_part(&self) -> ChunkPart {
        self.state.lock().begun.part()
    }

    /// The answer to a read of everything after [`Entry::last_seq`].
    pub(crate) fn catch_up(&self, mut answer: ReadResult) -> Result<Option<Consequence>, CatchUpError> {
        let mut state = self.state.lock();
        if state.failure.is_some() {
            return Ok(None);
        }
        if answer.partial {
            state.begun.extend(answer);
            return Ok(None);
        }
        state.begun.complete(&mut answer);
        let received = state.received;
        state.order.handle_read(answer, received)?;
        Ok(self.publish(&mut state))
    }

    /// Ends it for every subscriber.
    pub(crate) fn fail(&self, text: &str) {
        self.fail_locked(&mut self.state.lock(), text.to_owned());
    }

    /// It is known how it ended though the event itself is gone.
    pub(crate) fn note_exit(&self, exit: Exit) {
        self.state.lock().exit.get_or_insert(exit);
    }

    fn publish(&self, state: &mut State) -> Option<Consequence> {
        if state.failure.is_some() {
            return None;
        }
        let before = state.order.last();
        while let Some((seq, mut event)) = state.order.poll_event() {
            state.received += event.bytes() as u64;
            match &mut event {
                // A process exits once: what a server says of another exit is not believed.
                Event::Exited(exit) => *exit = *state.exit.get_or_insert(*exit),
                Event::Closed => state.closed_seq = Some(seq),
                Event::Output { .. } => {}
            }
            state.feed.publish(ExecProcessEvent::new(seq, event));
        }
        if state.order.last() != before {
            self.wake.send_replace(state.order.last());
        }
        if state.order.is_closed() {
            return Some(Consequence::Over);
        }
        if self.must_tell_flow(state) {
            return Some(Consequence::Flow);
        }
        // Before it is known where to begin, everything is behind a hole.
        let is_new_hole =
            self.is_recoverable() && state.order.has_hole() && !self.is_filling_hole.swap(true, Ordering::Relaxed);
        is_new_hole.then_some(Consequence::FillHole)
    }

    fn fail_locked(&self, state: &mut State, text: String) {
        if state.failure.is_none() && !state.order.is_closed() {
            state.feed.publish(ExecProcessEvent::Failed(text.clone()));
            state.failure = Some(text);
            self.wake.send_modify(|_| {});
        }
    }

    /// The hole was looked after.
    pub(crate) fn hole_is_filled(&self) {
        self.is_filling_hole.store(false, Ordering::Relaxed);
    }

    pub(crate) fn has_hole(&self) -> bool {
        self.state.lock().order.has_hole()
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.state.lock().order.last()
    }

    /// Whether nothing will follow.
    pub(crate) fn is_over(&self) -> bool {
        let state = self.state.lock();
        state.order.is_closed() || state.failure.is_some()
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    pub(crate) fn progress(&self) -> Progress {
        let state = self.state.lock();
        match (&state.exit, &state.failure) {
            (Some(exit), _) => Progress::Exited(*exit),
            (None, Some(text)) => Progress::Failed(text.clone()),
            // Nothing will follow, so nobody is to wait for it.
            (None, None) if state.order.is_closed() => {
                Progress::Failed("the server closed the process and did not say how it exited".to_owned())
            }
            (None, None) => Progress::Running,
        }
    }

    pub(crate) fn feed<T>(&self, look: impl FnOnce(&mut Feed) -> T) -> T {
        look(&mut self.state.lock().feed)
    }

    /// As [`Entry::feed`], for looks that may let the process go on.
    pub(crate) fn consume<T>(&self, look: impl FnOnce(&mut Feed) -> T) -> (T, Option<Consequence>) {
        let mut state = self.state.lock();
        let seen = look(&mut state.feed);
        let consequence = self.must_tell_flow(&mut state).then_some(Consequence::Flow);
        (seen, consequence)
    }

    fn must_tell_flow(&self, state: &mut State) -> bool {
        state.feed.changes_flow() && !self.is_telling_flow.swap(true, Ordering::Relaxed)
    }

    /// Whether the process is to wait, for whoever tells it.
    pub(crate) fn wants_pause(&self) -> bool {
        self.state.lock().feed.wants_pause()
    }

    /// The process was told. True: it has to be told the opposite now.
    pub(crate) fn flow_was_told(&self, paused: bool) -> bool {
        let state = self.state.lock();
        let is_right = state.feed.wants_pause() == paused;
        if is_right {
            self.is_telling_flow.store(false, Ordering::Relaxed);
        }
        !is_right
    }

    /// Nobody can be told any more.
    pub(crate) fn flow_cannot_be_told(&self) {
        self.is_telling_flow.store(false, Ordering::Relaxed);
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

    pub(crate) fn let_go(&self) {
        self.is_let_go.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_unwatched(&self) -> bool {
        self.is_let_go.load(Ordering::Relaxed) && !self.feed(|feed| feed.has_subscribers())
    }

    pub(crate) fn is_recoverable(&self) -> bool {
        self.is_recoverable.load(Ordering::Acquire)
    }

    pub(crate) fn set_recoverable(&self) {
        self.is_recoverable.store(true, Ordering::Release);
    }
}
