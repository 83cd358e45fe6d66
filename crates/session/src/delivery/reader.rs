//! One reader of a process: which events it was sent, which it has acknowledged, and whether it wants events now. The reader does not know
//! the log; [`Delivery`](super::Delivery) joins the two.

use std::time::Instant;

use crate::attachment::ConnectionNumber;
use crate::log::Acknowledged;

/// How the session's client reads the process at first. The request that started the process decides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedAs {
    /// The client wants events as they come, and a full log makes the process wait for the client.
    Followed,
    /// The client wants no events yet. As long as the client is connected, a full log makes the process wait for the client.
    Paused,
    /// An observer, which is a second connection to the session, has started the process. Events are sent to the client only after the
    /// client has read output of the process or has resumed the process.
    Unrequested,
}

/// How a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// The connection broke, so the client may come back.
    Lost,
    /// The client closed the connection in order, so it expects no events.
    Goodbye,
}

/// Whether the requests and answers so far allow events to be sent to a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// An observer has started the process, and the client has asked for nothing.
    Unrequested,
    /// The client has reconnected and its first read has not come. That read says which events the client has. Events that are sent before
    /// would repeat or overtake the output in the answer to that read.
    AwaitingRead,
    /// The answer to the start, or to the first read, is not in the send queue yet. Events must not overtake it.
    AwaitingAnswer,
    /// Events are sent as they come.
    Live,
}

/// Whether the client has paused the process, at its start or with `process/flow`. A new connection begins without a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Free,
    Paused,
}

/// Whether a full log makes the process wait for a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backpressure {
    Never,
    WhileConnected,
    /// While the client is connected, and after its connection was lost until `hold_until`.
    AcrossConnections,
}

#[derive(Debug)]
pub(super) struct DeliveryReader {
    /// Whether this reader is a watcher: a connection that follows the process beside the session's client. A watcher never makes the process
    /// wait.
    is_watcher: bool,
    /// The connection that reads now.
    pub(super) connection: Option<ConnectionNumber>,
    pub(super) stage: Stage,
    flow: Flow,
    backpressure: Backpressure,
    /// When the process stops waiting for the client. Set while the client is not connected.
    hold_until: Option<Instant>,
    /// Sequence number of the last event that was sent.
    pub(super) sent: u64,
    pub(super) acknowledged: Acknowledged,
}

impl DeliveryReader {
    pub(super) fn client(started_as: StartedAs) -> Self {
        let (stage, flow, backpressure) = match started_as {
            StartedAs::Followed => (Stage::AwaitingAnswer, Flow::Free, Backpressure::AcrossConnections),
            StartedAs::Paused => (Stage::AwaitingAnswer, Flow::Paused, Backpressure::WhileConnected),
            StartedAs::Unrequested => (Stage::Unrequested, Flow::Free, Backpressure::Never),
        };
        Self {
            is_watcher: false,
            connection: None,
            stage,
            flow,
            backpressure,
            hold_until: None,
            sent: 0,
            acknowledged: Acknowledged::default(),
        }
    }

    pub(super) fn watcher(connection: ConnectionNumber, after: u64) -> Self {
        Self {
            is_watcher: true,
            connection: Some(connection),
            stage: Stage::Live,
            flow: Flow::Free,
            backpressure: Backpressure::Never,
            hold_until: None,
            sent: after,
            acknowledged: Acknowledged::default(),
        }
    }

    /// Whether a full log makes the process wait for this reader.
    pub(super) fn makes_process_wait(&self, now: Instant) -> bool {
        self.backpressure != Backpressure::Never && self.hold_until.is_none_or(|until| now < until)
    }

    /// The client was connected over this connection when the process was started.
    pub(super) fn connect(&mut self, connection: ConnectionNumber) {
        self.connection = Some(connection);
    }

    /// The client has reconnected over another connection, or another client has taken the session over.
    pub(super) fn attach(&mut self, connection: ConnectionNumber) {
        self.connection = Some(connection);
        self.hold_until = None;
        self.flow = Flow::Free;
        if self.stage != Stage::Unrequested {
            self.stage = Stage::AwaitingRead;
        }
        if self.backpressure == Backpressure::WhileConnected {
            self.backpressure = Backpressure::Never;
        }
    }

    pub(super) fn detach(&mut self, departure: Departure, hold_until: Instant) {
        self.connection = None;
        self.flow = Flow::Free;
        self.hold_until = Some(hold_until);
        if departure == Departure::Goodbye || self.backpressure == Backpressure::WhileConnected {
            self.backpressure = Backpressure::Never;
        }
    }

    pub(super) fn pause(&mut self) {
        self.flow = Flow::Paused;
    }

    pub(super) fn resume(&mut self) {
        self.follow();
        if self.stage == Stage::Unrequested {
            self.stage = Stage::Live;
        }
        self.flow = Flow::Free;
    }

    /// Events may be sent although the client has not read since it resumed the session.
    pub(super) fn push_without_read(&mut self) {
        self.stage = Stage::Live;
        self.follow();
    }

    /// The process stops waiting for this reader, unless the reader is connected.
    pub(super) fn end_hold(&mut self) {
        if self.connection.is_none() {
            self.backpressure = Backpressure::Never;
        }
    }

    /// Whether the next read says which events this reader has.
    pub(super) fn awaits_read(&self) -> bool {
        matches!(self.stage, Stage::AwaitingRead | Stage::Unrequested) && !self.is_paused()
    }

    /// The reader has read everything up to the event `through`.
    pub(super) fn catch_up(&mut self, through: u64) {
        self.stage = Stage::AwaitingAnswer;
        self.follow();
        self.sent = through;
    }

    /// The reader has asked for events, so the process waits for it from now on, unless it is a watcher.
    fn follow(&mut self) {
        if !self.is_watcher {
            self.backpressure = Backpressure::AcrossConnections;
        }
    }

    pub(super) fn may_be_sent_events(&self) -> bool {
        self.stage == Stage::Live && !self.is_paused()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.flow == Flow::Paused
    }

    /// Whether this reader is connected and waits for events, even if it has paused them for now.
    pub(super) fn expects_events(&self) -> bool {
        self.connection.is_some() && (self.stage != Stage::Unrequested || self.is_paused())
    }
}
