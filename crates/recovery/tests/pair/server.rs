//! The server's end of the simulation: a [`Delivery`], which has the events of the process and knows which of them each connection was
//! sent; the [`Receipts`], which know from pongs which output a client has received; and the messages that each kind of server sends.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

use protocol::{Base64Bytes, ExitResources, LimitName, LimitReached, OutputChunk, ProcessUsage, ReadResult};
use recovery::{Event, Exit};
use session::{
    CHUNK_OVERHEAD_BYTES, ConnectionNumber, Delivery, Departure, LogLimits, MemoryPressure, Page, Polled, ReadAnswer,
    Receipts, ReclaimStep, Resend, StartedAs,
};

use crate::schedule::{ProcessAct, Reclaim, Schedule, ServerKind};
use crate::truth::Truth;

/// A message that the server sends without a request.
#[derive(Clone, Debug)]
pub(crate) enum Push {
    /// An event with its sequence number.
    Event(u64, Event),
    /// The close of an old server, which has no sequence number.
    UnnumberedClose,
    Ping([u8; 8]),
}

pub(crate) struct SimulatedServer {
    kind: ServerKind,
    page_bytes: usize,
    batch_bytes: usize,
    retain_bytes: usize,
    /// How long the process waits for a client whose connection was lost.
    hold: Duration,
    delivery: Delivery,
    receipts: BTreeMap<ConnectionNumber, Receipts<()>>,
    /// The connection of the session's client.
    attached: Option<ConnectionNumber>,
    /// When the process stops waiting for the lost client. None while a client is attached.
    hold_ends: Option<Instant>,
    /// Acts of the process that wait until the delivery allows more output.
    waiting: VecDeque<ProcessAct>,
    /// Unsent messages of the kinds of server that send each event when it happens.
    outbox: Vec<(ConnectionNumber, Push)>,
    max_chunk_bytes: usize,
    pub(crate) truth: Truth,
    /// Whether output that the client had not acknowledged may have been dropped. Always true for the kinds of server
    /// that never make the process wait. For our server, true after the process has written when `hold` was over, and
    /// after output was dropped to free memory, unless that output was acknowledged.
    pub(crate) may_lose_output: bool,
}

impl SimulatedServer {
    pub(crate) fn new(schedule: &Schedule, first: ConnectionNumber, now: Instant) -> Self {
        let kind = schedule.kind;
        let limits = LogLimits {
            retain_bytes: if kind == ServerKind::Old { 1 << 20 } else { schedule.retain_bytes },
            max_chunk_bytes: schedule.max_chunk_bytes.min(schedule.retain_bytes / 4).max(1),
            ..LogLimits::default()
        };
        // Our server makes the process wait for its client (`Followed`). The other kinds never do, which `Unrequested` simulates.
        let started_as = if kind == ServerKind::Ours { StartedAs::Followed } else { StartedAs::Unrequested };
        let mut server = Self {
            kind,
            page_bytes: if kind == ServerKind::Ours { schedule.page_bytes } else { usize::MAX },
            batch_bytes: schedule.batch_bytes,
            retain_bytes: limits.retain_bytes,
            hold: Duration::from_millis(schedule.hold),
            delivery: Delivery::new(limits, Resend::Unacknowledged, started_as),
            receipts: BTreeMap::new(),
            attached: None,
            hold_ends: None,
            waiting: VecDeque::new(),
            outbox: Vec::new(),
            max_chunk_bytes: limits.max_chunk_bytes,
            truth: Truth::default(),
            may_lose_output: kind != ServerKind::Ours,
        };
        if kind == ServerKind::Ours {
            server.delivery.connect(first);
            // The client has the answer to its start, so events may follow.
            server.delivery.note_answer_queued(first);
            server.attached = Some(first);
        } else {
            server.attach(first, now);
        }
        server
    }

    /// The process acts now, or as soon as the delivery allows more output.
    pub(crate) fn act(&mut self, act: ProcessAct, now: Instant) {
        self.waiting.push_back(act);
        self.run_process(now);
    }

    /// Carries out acts of the process as long as the delivery allows more output.
    pub(crate) fn run_process(&mut self, now: Instant) {
        while let Some(act) = self.waiting.pop_front() {
            match act {
                ProcessAct::Write(stream, mut bytes) => {
                    let allowed = self.delivery.allowed_output_bytes(MemoryPressure::Normal, now);
                    if allowed == usize::MAX {
                        // The process waits for no client.
                        let hold_is_over = self.hold_ends.is_some_and(|hold_ends| hold_ends <= now);
                        assert!(
                            hold_is_over || self.kind != ServerKind::Ours,
                            "the process does not wait for its client"
                        );
                        self.may_lose_output = true;
                    }
                    let rest = bytes.split_off(bytes.len().min(allowed).min(self.max_chunk_bytes));
                    self.truth.note_written(stream, &bytes);
                    let (count, mut buffer) = (bytes.len(), bytes);
                    // As in the real server, the buffer is longer than the output that was read into it.
                    buffer.resize(count * 3, 0);
                    let missed_bytes = self.delivery.append(stream, &mut buffer, count);
                    assert!(
                        missed_bytes == 0 || self.may_lose_output,
                        "output was dropped, but the process had to wait"
                    );
                    if !rest.is_empty() {
                        self.waiting.push_front(ProcessAct::Write(stream, rest));
                    }
                    if allowed == 0 {
                        return;
                    }
                }
                ProcessAct::Exit { code, sandbox_denied, timed_out } => {
                    let timed_out = timed_out && self.kind == ServerKind::Ours;
                    let resources = self.resources(code);
                    let reported_denial = (self.kind != ServerKind::Old).then_some(sandbox_denied);
                    self.truth.note_exited(code, reported_denial, timed_out, resources);
                    self.delivery.exit(session::LoggedExit { code, sandbox_denied, timed_out, resources });
                }
                ProcessAct::Close => {
                    self.truth.note_closed();
                    self.delivery.close();
                }
            }
            if self.kind != ServerKind::Ours
                && let Some(attached) = self.attached
            {
                let pushes = self.poll(attached, now);
                self.outbox.extend(pushes.into_iter().map(|push| (attached, push)));
            }
        }
    }

    pub(crate) fn take_outbox(&mut self) -> Vec<(ConnectionNumber, Push)> {
        std::mem::take(&mut self.outbox)
    }

    pub(crate) fn process_waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// A client has resumed the session, or taken it over. For the other kinds of server, also the first client.
    pub(crate) fn attach(&mut self, connection: ConnectionNumber, now: Instant) {
        if self.kind == ServerKind::Ours {
            self.delivery.attach(connection);
        } else {
            // These kinds of server send only events that happen from now on, whatever the client has.
            if let Some(previous) = self.attached {
                self.delivery.detach(previous, Departure::Lost, now);
            }
            self.delivery.watch(connection, self.delivery.log().next_seq() - 1);
        }
        self.attached = Some(connection);
        self.hold_ends = None;
    }

    /// The server has noticed that a connection is lost. Returns the time at which the process stops waiting for the
    /// client of that connection.
    pub(crate) fn detach(&mut self, connection: ConnectionNumber, now: Instant) -> Instant {
        let hold_ends = now + self.hold;
        self.delivery.detach(connection, Departure::Lost, hold_ends);
        if self.attached.take_if(|attached| *attached == connection).is_some() {
            self.hold_ends = Some(hold_ends);
        }
        hold_ends
    }

    /// Another connection begins to watch the process, after the event with the number `after`.
    pub(crate) fn watch(&mut self, connection: ConnectionNumber, after: u64) {
        self.delivery.watch(connection, after);
    }

    /// The client has not read in time after it resumed the session. It is sent the events that it has not acknowledged.
    pub(crate) fn push_without_read(&mut self, connection: ConnectionNumber) {
        self.delivery.push_without_read(connection);
    }

    pub(crate) fn pause(&mut self, connection: ConnectionNumber) {
        self.delivery.pause(connection);
    }

    pub(crate) fn resume(&mut self, connection: ConnectionNumber) {
        self.delivery.resume(connection);
    }

    pub(crate) fn reclaim(&mut self, reclaim: Reclaim, now: Instant) {
        let reclaimed = self.delivery.reclaim(reclaim.step, reclaim.kept_bytes, reclaim.pressure, now);
        // Dropping acknowledged output loses nothing. The other steps may drop output that is still in flight.
        self.may_lose_output |= reclaimed.bytes > 0 && reclaim.step != ReclaimStep::Acknowledged;
    }

    pub(crate) fn pong(&mut self, connection: ConnectionNumber, payload: [u8; 8]) {
        let received = self.receipts.get_mut(&connection).and_then(|receipts| receipts.pong(&payload));
        for ((), through) in received.into_iter().flatten() {
            self.delivery.acknowledge(connection, through);
        }
    }

    pub(crate) fn has_events_for(&self, connection: ConnectionNumber) -> bool {
        self.delivery.has_events_for(connection)
    }

    /// The next messages for a connection.
    pub(crate) fn poll(&mut self, connection: ConnectionNumber, now: Instant) -> Vec<Push> {
        let Polled::Events(batch) = self.delivery.poll(connection, self.batch_bytes) else { return Vec::new() };
        let (through, output_bytes) = (batch.last_seq(), batch.output_bytes);
        let mut pushes = Vec::new();
        for event in batch.events {
            let (seq, event) = (event.seq(), self.as_client_event(event));
            self.truth.check_same(seq, &event);
            pushes.push(match event {
                Event::Closed if self.kind == ServerKind::Old => Push::UnnumberedClose,
                event => Push::Event(seq, event),
            });
        }
        if self.kind == ServerKind::Ours {
            let receipts = self.receipts(connection);
            if receipts.sent((), through, output_bytes) {
                pushes.push(Push::Ping(receipts.ping(now)));
            }
        }
        pushes
    }

    /// What this kind of server says about the limits of a process: different things for different exit codes.
    fn resources(&self, code: i32) -> ExitResources {
        if self.kind != ServerKind::Ours {
            return ExitResources::NONE;
        }
        let usage = ProcessUsage { user_micros: u64::from(code.unsigned_abs()), ..ProcessUsage::default() };
        let limit_reached = (code == 2).then_some(LimitReached { limit: LimitName::CpuSeconds, ended: true });
        ExitResources { usage: (code > 0).then_some(usage), limit_reached }
    }

    /// The event as this kind of server sends it.
    fn as_client_event(&self, event: session::LogEvent) -> Event {
        match event {
            session::LogEvent::Output(chunk) => Event::Output { stream: chunk.stream, chunk: chunk.bytes },
            session::LogEvent::Exited { exit, .. } => Event::Exited(Exit {
                code: exit.code,
                sandbox_denied: (self.kind != ServerKind::Old).then_some(exit.sandbox_denied),
                timed_out: exit.timed_out,
                sandbox_denials: Vec::new(),
                resources: exit.resources,
            }),
            session::LogEvent::Closed { .. } => Event::Closed,
        }
    }

    /// Answers `process/read`. If this read tells the server which events the client has (`catches_up`), later events
    /// follow the answer. Also returns the payload of the ping that follows the answer, if there is one.
    pub(crate) fn read(
        &mut self,
        connection: ConnectionNumber,
        after: u64,
        now: Instant,
    ) -> (ReadResult, Option<[u8; 8]>) {
        let is_large = self.delivery.log().retained_bytes() > self.page_bytes;
        let max_bytes = is_large.then_some(self.page_bytes as u64);
        let ReadAnswer { page, catches_up } = self.delivery.read(connection, after, max_bytes, None);
        if catches_up {
            self.delivery.note_answer_queued(connection);
        }
        for chunk in &page.chunks {
            let event = Event::Output { stream: chunk.stream, chunk: chunk.bytes.clone() };
            self.truth.check_same(chunk.seq, &event);
        }
        let mut ping = None;
        if catches_up {
            let output_bytes = page.chunks.iter().map(|chunk| chunk.bytes.len() + CHUNK_OVERHEAD_BYTES).sum();
            let receipts = self.receipts(connection);
            if receipts.sent((), page.next_seq - 1, output_bytes) {
                ping = Some(receipts.ping(now));
            }
        }
        (self.read_result(page), ping)
    }

    fn receipts(&mut self, connection: ConnectionNumber) -> &mut Receipts<()> {
        self.receipts.entry(connection).or_insert_with(|| Receipts::new(self.retain_bytes))
    }

    fn read_result(&self, page: Page) -> ReadResult {
        let log = self.delivery.log();
        let reports_gaps = self.kind == ServerKind::Ours;
        let exit = log.exit_event();
        let chunks = page.chunks.into_iter().map(|chunk| OutputChunk {
            seq: chunk.seq,
            stream: chunk.stream,
            chunk: Base64Bytes(chunk.bytes.to_vec()),
        });
        let ends_in_unnumbered_close =
            self.kind == ServerKind::Old && log.is_closed() && page.next_seq == log.next_seq();
        ReadResult {
            chunks: chunks.collect(),
            next_seq: page.next_seq - u64::from(ends_in_unnumbered_close),
            exited: exit.is_some(),
            exit_code: exit.map(|(_, exit)| exit.code),
            closed: log.is_closed(),
            failure: None,
            sandbox_denied: exit.is_some_and(|(_, exit)| exit.sandbox_denied),
            sandbox_denials: Vec::new(),
            oldest_seq: log.oldest_seq().filter(|_| reports_gaps),
            exit_seq: exit.map(|(seq, _)| seq).filter(|_| reports_gaps),
            timed_out: exit.is_some_and(|(_, exit)| exit.timed_out),
            usage: exit.and_then(|(_, exit)| exit.resources.usage),
            limit_reached: exit.and_then(|(_, exit)| exit.resources.limit_reached),
            gap: reports_gaps && page.gap,
            dropped_bytes: (reports_gaps && page.gap).then(|| log.dropped_bytes()),
            partial: page.is_partial,
        }
    }

    /// Bytes of output that the server no longer retains.
    pub(crate) fn dropped_bytes(&self) -> u64 {
        self.delivery.log().dropped_bytes()
    }
}
