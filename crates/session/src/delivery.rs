//! The events of one process on their way to its readers. For each reader the [`Delivery`] knows which events were
//! sent to it, and which events it has acknowledged.
//!
//! A [`Delivery`] owns the event log of one process. The server adds events by `append`, `exit` and `close`, and asks
//! [`poll`](Delivery::poll) for the next events of a reader whenever that reader can be sent more. A reader is
//! identified by its connection. One reader is the client of the session, which outlives its connections. While the
//! client follows the process, which means that it has asked for the events, a full log makes the process wait for
//! the client ([`allowed_output_bytes`](Delivery::allowed_output_bytes)). Readers that only watch never make the
//! process wait. [`Delivery`] knows no sockets, no messages and no clock.

mod reader;
mod reclaim;

use std::time::Instant;

use protocol::Stream;

use self::reader::{DeliveryReader, Stage};
use crate::attachment::ConnectionNumber;
use crate::log::{CHUNK_OVERHEAD_BYTES, EventLog, LogEvent, LogLimits, LoggedExit, Page, PartOfChunk};

pub use self::reader::{Departure, StartedAs};
pub use self::reclaim::{MemoryPressure, ReclaimStep, Reclaimed};

/// What the server sends again to a client that has reconnected and sends no `process/read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resend {
    /// Every event that the client has not acknowledged. The client recognises by the sequence numbers which events it already has.
    Unacknowledged,
    /// No event, because the events of this client carry no sequence numbers.
    Never,
}

/// The answer to [`Delivery::poll`].
#[derive(Debug)]
pub enum Polled {
    /// Events to send now, in order.
    Events(EventBatch),
    /// There is nothing to send to this reader now.
    Nothing,
}

/// Events that one [`Delivery::poll`] hands to a reader.
#[derive(Debug)]
pub struct EventBatch {
    /// At least one event, in sequence order.
    pub events: Vec<LogEvent>,
    /// Bytes of output in the events, and [`CHUNK_OVERHEAD_BYTES`] for each chunk. Without the overhead, a process that writes single bytes
    /// would reach the limit of retained chunks before its reader is asked for an acknowledgement.
    pub output_bytes: usize,
    /// Further events could be sent to the reader at once.
    pub has_more: bool,
}

impl EventBatch {
    /// Sequence number of the last event.
    pub fn last_seq(&self) -> u64 {
        self.events.last().map_or(0, LogEvent::seq)
    }
}

/// The answer to [`Delivery::read`].
#[derive(Debug, PartialEq, Eq)]
pub struct ReadAnswer {
    /// The output that was asked for.
    pub page: Page,
    /// Whether the server has learned from this read which events the client has. This is so for the first read after a reconnect, and for
    /// the first read of a process that an observer started. The events after the page are sent as soon as [`Delivery::note_answer_queued`]
    /// reports that the page is in the send queue.
    pub catches_up: bool,
}

/// The event log of a process, and how far each of its readers has got.
#[derive(Debug)]
pub struct Delivery {
    log: EventLog,
    /// The session's client, connected or not.
    client: DeliveryReader,
    watchers: Vec<DeliveryReader>,
    resend: Resend,
    /// The server shuts down, see [`finish`](Self::finish).
    is_finishing: bool,
}

impl Delivery {
    /// The delivery of a process that was just started. No connection reads it until [`connect`](Self::connect).
    pub fn new(limits: LogLimits, resend: Resend, started_as: StartedAs) -> Self {
        let client = DeliveryReader::client(started_as);
        Self { log: EventLog::new(limits), client, watchers: Vec::new(), resend, is_finishing: false }
    }

    /// The event log, for questions that do not depend on a reader.
    pub fn log(&self) -> &EventLog {
        &self.log
    }

    /// The process wrote `buffer[..count]`. Replaces `buffer` by one of the same length for the next read, if that saves a copy. The log
    /// may drop old output, to stay within its limits. Returns how many of the dropped bytes no reader has acknowledged.
    pub fn append(&mut self, stream: Stream, buffer: &mut Vec<u8>, count: usize) -> u64 {
        let safe_bytes = self.dropped_or_acknowledged_bytes();
        if count >= buffer.len() / 2 {
            let size = buffer.len();
            let next = self.log.take_spare().unwrap_or_default();
            let mut full = std::mem::replace(buffer, next);
            buffer.resize(size, 0);
            full.truncate(count);
            self.log.append_owned(stream, full);
        } else {
            self.log.append(stream, &buffer[..count]);
        }
        self.log.dropped_bytes().saturating_sub(safe_bytes)
    }

    /// The process has exited.
    pub fn exit(&mut self, exit: LoggedExit) {
        self.log.exit(exit);
    }

    /// The process has exited and its streams have ended.
    pub fn close(&mut self) {
        self.log.close();
    }

    /// How many bytes may be read from the process now without dropping output that a reader still needs. Unlimited
    /// if no reader makes the process wait. Under memory pressure 0, once the output that such a reader has not
    /// acknowledged occupies [`MemoryPressure::ALWAYS_ALLOWED_BYTES`].
    pub fn allowed_output_bytes(&self, pressure: MemoryPressure, now: Instant) -> usize {
        let waited_for = self.readers().filter(|reader| reader.makes_process_wait(now));
        waited_for.map(|reader| self.allowed_output_for(reader, pressure)).min().unwrap_or(usize::MAX)
    }

    fn allowed_output_for(&self, reader: &DeliveryReader, pressure: MemoryPressure) -> usize {
        let occupied = self.log.occupied_by_unacknowledged(reader.acknowledged);
        if pressure != MemoryPressure::Normal && occupied >= MemoryPressure::ALWAYS_ALLOWED_BYTES {
            return 0;
        }
        self.log.appendable_bytes(reader.acknowledged)
    }

    /// The session's client was attached over this connection when the process started.
    pub fn connect(&mut self, connection: ConnectionNumber) {
        self.client.connect(connection);
    }

    /// The session's client has reconnected over this connection, or another client has taken the session over. No event is sent until the
    /// first read of the client says which events it has, or until [`push_without_read`](Self::push_without_read). Until then the process
    /// waits for the client only if a client has followed the process before and has not said goodbye.
    pub fn attach(&mut self, connection: ConnectionNumber) {
        self.client.attach(connection);
    }

    /// Adds a reader that is sent every event after `after` and never makes the process wait.
    pub fn watch(&mut self, connection: ConnectionNumber, after: u64) {
        self.watchers.push(DeliveryReader::watcher(connection, after));
    }

    /// The connection has ended. A watcher is removed. The client of the session stays a reader: a process that the
    /// client follows waits for it until `hold_until`, unless the client has said goodbye.
    pub fn detach(&mut self, connection: ConnectionNumber, departure: Departure, hold_until: Instant) {
        self.watchers.retain(|watcher| watcher.connection != Some(connection));
        if self.client.connection == Some(connection) {
            self.client.detach(departure, hold_until);
        }
    }

    /// The reader wants no events until [`resume`](Self::resume).
    pub fn pause(&mut self, connection: ConnectionNumber) {
        if !self.is_finishing
            && let Some(reader) = self.reader(connection)
        {
            reader.pause();
        }
    }

    /// The reader wants events from now on: it had paused them, or had never asked for them.
    pub fn resume(&mut self, connection: ConnectionNumber) {
        if let Some(reader) = self.reader(connection) {
            reader.resume();
        }
    }

    /// The reader has received every event up to `seq`. A smaller number than before changes nothing. An acknowledgement over a connection
    /// that is no longer a reader changes nothing either.
    pub fn acknowledge(&mut self, connection: ConnectionNumber, seq: u64) {
        let known = self.log.acknowledged_through(seq.min(self.log.next_seq() - 1));
        if let Some(reader) = self.reader(connection)
            && known.seq() > reader.acknowledged.seq()
        {
            reader.acknowledged = known;
        }
    }

    /// The client asks for the output after the event `after`. The first read after [`attach`](Self::attach) says
    /// which events the client has, so the server sends the events that follow the page. After a page that ends
    /// inside a chunk, the server sends no events and the next read counts as the first: the next event would be the
    /// whole chunk, and the connection may be too bad to carry the chunk.
    ///
    /// All other reads return output and acknowledge nothing. A read by a client that has paused the process acknowledges nothing either.
    ///
    /// With `known` the client says which part of a chunk it already has, and the page may end inside a chunk; see
    /// [`EventLog::read_part`].
    pub fn read(
        &mut self,
        connection: ConnectionNumber,
        after: u64,
        max_bytes: Option<u64>,
        known: Option<PartOfChunk>,
    ) -> ReadAnswer {
        let page = match known {
            Some(known) => self.log.read_part(after, max_bytes.unwrap_or(u64::MAX), known),
            None => self.log.read(after, max_bytes),
        };
        let acknowledged = self.log.acknowledged_through(after.min(self.log.next_seq() - 1));
        let Some(reader) = self.reader(connection).filter(|reader| reader.awaits_read()) else {
            return ReadAnswer { page, catches_up: false };
        };
        // The acknowledged number may go down: a client that has taken the session over begins with the first event.
        reader.acknowledged = acknowledged;
        let catches_up = !page.is_partial;
        if catches_up {
            reader.catch_up(page.next_seq - 1);
        }
        ReadAnswer { page, catches_up }
    }

    /// The answer to the start, or to the read that caught up, is in the send queue of this connection. Events may follow it now.
    pub fn note_answer_queued(&mut self, connection: ConnectionNumber) {
        if let Some(reader) = self.reader(connection)
            && reader.stage == Stage::AwaitingAnswer
        {
            reader.stage = Stage::Live;
        }
    }

    /// The answer to the read that caught up was replaced by an error. The events after those that the client has are
    /// sent as notifications.
    pub fn note_answer_refused(&mut self, connection: ConnectionNumber) {
        if let Some(reader) = self.reader(connection)
            && reader.stage == Stage::AwaitingAnswer
        {
            reader.sent = reader.acknowledged.seq();
            reader.stage = Stage::Live;
        }
    }

    /// The client has sent no read for too long after it has reconnected. Events are sent from now on; [`Resend`]
    /// says which events are sent again.
    pub fn push_without_read(&mut self, connection: ConnectionNumber) {
        if self.client.connection == Some(connection) {
            self.stop_waiting_for_read();
        }
    }

    /// Ends the wait for the first read of the client, if the server waits for that read. With [`Resend::Never`],
    /// output that was sent counts as acknowledged, because the proof that the client has received it was lost with
    /// the old connection.
    fn stop_waiting_for_read(&mut self) {
        if self.client.stage != Stage::AwaitingRead {
            return;
        }
        match self.resend {
            Resend::Unacknowledged => self.client.sent = self.client.sent.min(self.client.acknowledged.seq()),
            Resend::Never => self.client.acknowledged = self.log.acknowledged_through(self.client.sent),
        }
        self.client.push_without_read();
    }

    /// Whether the client has asked for the events of this process. Starting the process counts as asking.
    pub fn is_requested(&self) -> bool {
        self.client.stage != Stage::Unrequested
    }

    /// The server shuts down, so every event is sent now. Pauses are ignored from now on, and the process stops waiting for a client that is
    /// not connected.
    pub fn finish(&mut self) {
        self.is_finishing = true;
        self.stop_waiting_for_read();
        for reader in std::iter::once(&mut self.client).chain(&mut self.watchers) {
            reader.resume();
            reader.end_hold();
        }
    }

    /// Takes the next events for a reader: about `budget` bytes of output, and at least one event if there is one.
    pub fn poll(&mut self, connection: ConnectionNumber, budget: usize) -> Polled {
        let mut readers = std::iter::once(&mut self.client).chain(&mut self.watchers);
        let Some(reader) = readers.find(|reader| reader.connection == Some(connection)) else {
            return Polled::Nothing;
        };
        let mut batch = EventBatch { events: Vec::new(), output_bytes: 0, has_more: false };
        if !reader.may_be_sent_events() {
            return Polled::Nothing;
        }
        while batch.output_bytes < budget
            && let Some(event) = self.log.next_event(reader.sent)
        {
            reader.sent = event.seq();
            if let LogEvent::Output(chunk) = &event {
                batch.output_bytes += chunk.bytes.len() + CHUNK_OVERHEAD_BYTES;
            }
            batch.events.push(event);
        }
        batch.has_more = self.log.has_event_after(reader.sent);
        if batch.events.is_empty() { Polled::Nothing } else { Polled::Events(batch) }
    }

    /// Whether [`poll`](Self::poll) would return events.
    pub fn has_events_for(&self, connection: ConnectionNumber) -> bool {
        let mut readers = self.readers().filter(|reader| reader.connection == Some(connection));
        readers.any(|reader| reader.may_be_sent_events() && self.has_unsent_events(reader))
    }

    /// Whether a caller that waits for the last event to be sent need not wait longer: the session's client was sent
    /// all events up to the close, or has paused the process, or the process is closed and the client must ask for
    /// its events first.
    pub fn is_sent_or_paused(&self) -> bool {
        let client = &self.client;
        client.is_paused() || self.log.is_closed() && !(client.may_be_sent_events() && self.has_unsent_events(client))
    }

    /// Whether the session's client is connected, follows the process or has paused it, and was not sent all events. The server must not
    /// forget a closed process before those events are sent.
    pub fn owes_events(&self) -> bool {
        self.client.expects_events() && self.has_unsent_events(&self.client)
    }

    fn has_unsent_events(&self, reader: &DeliveryReader) -> bool {
        self.log.has_event_after(reader.sent)
    }

    fn readers(&self) -> impl Iterator<Item = &DeliveryReader> {
        std::iter::once(&self.client).chain(&self.watchers)
    }

    fn reader(&mut self, connection: ConnectionNumber) -> Option<&mut DeliveryReader> {
        let mut readers = std::iter::once(&mut self.client).chain(&mut self.watchers);
        readers.find(|reader| reader.connection == Some(connection))
    }

    /// Bytes from the beginning of the output that were dropped before, or that at least one reader has acknowledged.
    fn dropped_or_acknowledged_bytes(&self) -> u64 {
        let acknowledged = self.readers().map(|reader| self.log.acknowledged_bytes(reader.acknowledged));
        acknowledged.max().unwrap_or(0).max(self.log.dropped_bytes())
    }
}

#[cfg(test)]
mod tests;
