//! The simulation: a client, a server and the network between them, on virtual time. Everything that happens is on an
//! agenda, ordered by time, except the timers of the client's [`Reconnection`]. [`PairSimulation::run`] takes one
//! entry or timer after the other.
//!
//! A [`Generation`] is the client's number of a connection, or of an attempt to connect. The [`ConnectionNumber`] of
//! the server has the same value.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use protocol::ReadResult;
use recovery::{Action, Backoff, Chance, Generation, ReconnectPolicy, Reconnection};
use session::ConnectionNumber;

use crate::client::SimulatedClient;
use crate::schedule::{AttemptFate, Cut, ProcessAct, RECOVERY_BUDGET, Reclaim, Schedule, ServerKind, Time};
use crate::server::{Push, SimulatedServer};

/// How long our server waits for the first read after a resume.
const READ_GRACE: Time = 1000;
/// How long after a silent break the server gives up the connection.
const SERVER_GIVES_UP_AFTER: Time = 6000;
/// A simulation that reaches this time counts as endless. It is far beyond the end of any schedule.
const END_OF_TIME: Time = 300_000;
/// A simulation that has put this many entries on its agenda counts as endless.
const MOST_HAPPENINGS: u64 = 50_000;

/// The connection of the client that takes the session over. It never breaks.
const TAKER: ConnectionNumber = ConnectionNumber(1_000_000);
/// A connection that only watches the process. It never breaks.
const WATCHER: ConnectionNumber = ConnectionNumber(1_000_001);

/// An entry of the agenda.
enum Happening {
    Process(ProcessAct),
    Cut(Cut),
    /// The client notices that this connection is lost.
    ClientNotices(Generation),
    /// The server notices that this connection is lost.
    ServerNotices(Generation),
    /// The process stops waiting for a client whose connection was lost.
    HoldEnds,
    /// The server stops waiting for the first read after a resume.
    ReadGraceEnds(ConnectionNumber),
    /// The socket of this connection has room for messages of the server.
    Writable(ConnectionNumber),
    /// The server drops retained output, because its memory is short.
    Reclaim(Reclaim),
    /// Another client takes the session over.
    TakeOver,
    /// A connection begins to watch the process, after the event with this number.
    Watch(u64),
    /// The client pauses the process for this long.
    Pause(Time),
    /// The client starts another process, whose result comes after this long.
    StartIsSent(Time),
    /// The result of the start of another process comes.
    StartFinishes,
    AttemptFails(Generation, Retry),
    MessageToServer(Generation, ToServer),
    MessageToClient(Generation, ToClient),
}

/// Whether another attempt to connect may succeed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    MayHelp,
    IsUseless,
}

/// A message of the client. `Flow` pauses the process or resumes it.
enum ToServer {
    Resume,
    Read { after: u64 },
    Pong([u8; 8]),
    Flow { paused: bool },
}

/// A message of the server.
enum ToClient {
    Resumed,
    /// The answer to a read, and how many bytes of output the server had dropped when it answered.
    Answer {
        result: Box<ReadResult>,
        dropped_bytes: u64,
    },
    Push(Push),
    /// Another client has taken the session over.
    TakenOver,
}

/// Connection, time of sending and direction of a message that is in flight.
struct Flight {
    generation: Generation,
    sent: Time,
    to_client: bool,
}

pub(crate) struct PairSimulation {
    schedule: Schedule,
    start: Instant,
    now: Time,
    /// Entries by their time and their number. A message has a [`Flight`].
    agenda: BTreeMap<(Time, u64), (Option<Flight>, Happening)>,
    /// Number of the last entry. The numbers keep entries with the same time in order.
    agenda_entries: u64,
    /// How many random numbers were used, see [`Schedule::dice`].
    rolls: usize,
    /// Attempts to connect so far.
    attempts: usize,
    server: SimulatedServer,
    client: SimulatedClient,
    reconnection: Reconnection,
    /// The connections that have broken.
    cuts: BTreeMap<Generation, Cut>,
    /// When the last message of a connection arrives in each direction (`true`: at the client). Later messages do not overtake it.
    arrivals: BTreeMap<(Generation, bool), Time>,
    /// Connections for which [`Happening::Writable`] is on the agenda.
    writable: BTreeSet<ConnectionNumber>,
    /// The attempt to connect that is under way.
    attempting: Option<Generation>,
    /// Connections over which the answer to a read is in flight.
    answers_in_flight: BTreeSet<Generation>,
    /// When the client noticed the loss from which it recovers.
    lost_at: Option<Time>,
    /// Starts of other processes that have no result yet.
    starts: usize,
    /// Whether `Reconnection` has asked for [`Action::FailBodyStreams`] since the last loss. That action ends the
    /// HTTP answers that the lost connection carried.
    body_streams_failed: bool,
    /// Whether `Reconnection` has failed for good.
    client_failed: bool,
    /// The connection over which the client has asked for an event that did not come.
    filling_hole: Option<Generation>,
    /// The client that has taken the session over.
    taker: Option<SimulatedClient>,
    /// Number of the last event that the watcher got, or of the event after which it began.
    watcher_last: Option<u64>,
}

fn connection(generation: Generation) -> ConnectionNumber {
    ConnectionNumber(generation.0)
}

impl PairSimulation {
    pub(crate) fn new(schedule: Schedule) -> Self {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let policy = ReconnectPolicy {
            budget: ms(RECOVERY_BUDGET),
            backoff: Backoff { first: ms(20), longest: ms(500) },
            stable_after: ms(100),
            ..ReconnectPolicy::default()
        };
        let mut simulation = Self {
            start,
            now: 0,
            agenda: BTreeMap::new(),
            agenda_entries: 0,
            rolls: 0,
            attempts: 0,
            server: SimulatedServer::new(&schedule, connection(Generation(0)), start),
            client: SimulatedClient::new(),
            reconnection: Reconnection::connected(policy, start),
            cuts: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            writable: BTreeSet::new(),
            attempting: None,
            answers_in_flight: BTreeSet::new(),
            lost_at: None,
            starts: 0,
            body_streams_failed: false,
            client_failed: false,
            filling_hole: None,
            taker: None,
            watcher_last: None,
            schedule,
        };
        simulation.plan_all();
        simulation
    }

    fn plan_all(&mut self) {
        let schedule = self.schedule.clone();
        let mut at = 0;
        for (wait, act) in schedule.process {
            at += wait;
            self.plan(at, Happening::Process(act));
        }
        schedule.cuts.into_iter().for_each(|cut| self.plan(cut.at, Happening::Cut(cut)));
        schedule.starts.into_iter().for_each(|(at, lasts)| self.plan(at, Happening::StartIsSent(lasts)));
        // The other kinds of server are simulated without pauses, reclaimed memory, takeovers and watchers.
        if schedule.kind == ServerKind::Ours {
            schedule.pauses.into_iter().for_each(|pause| self.plan(pause.at, Happening::Pause(pause.lasts)));
            schedule.reclaims.into_iter().for_each(|reclaim| self.plan(reclaim.at, Happening::Reclaim(reclaim)));
            schedule.takeover.into_iter().for_each(|at| self.plan(at, Happening::TakeOver));
            schedule.watcher.into_iter().for_each(|(at, after)| self.plan(at, Happening::Watch(after)));
        }
    }

    /// Plays the schedule to its end and checks the result.
    pub(crate) fn run(mut self) {
        loop {
            let next = self.agenda.first_key_value().map(|((at, _), _)| *at);
            // Timers fire on whole milliseconds, never early.
            let wake =
                self.reconnection.poll_timeout().map(|at| (at - self.start).as_nanos().div_ceil(1_000_000) as Time);
            let Some(at) = next.into_iter().chain(wake).min() else { break };
            assert!(at < END_OF_TIME && self.agenda_entries < MOST_HAPPENINGS, "the simulation does not end");
            self.now = self.now.max(at);
            if next == Some(at) {
                let (_, (flight, happening)) = self.agenda.pop_first().expect("the agenda has an entry");
                if flight.is_none_or(|flight| self.arrives(&flight)) {
                    self.happen(happening);
                }
            }
            if wake.is_some_and(|wake| wake <= self.now) {
                self.reconnection.handle_timeout(self.instant());
            }
            self.follow_reconnection();
            self.server.run_process(self.instant());
            for (ConnectionNumber(number), push) in self.server.take_outbox() {
                self.send_to_client(Generation(number), ToClient::Push(push));
            }
            self.plan_writing();
            self.deliver_events();
            self.fill_hole();
            self.check_recovery_time();
        }
        self.check_end();
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.instant();
        match happening {
            Happening::Process(act) => self.server.act(act, now),
            Happening::Cut(cut) => self.cut(cut),
            Happening::ClientNotices(generation) => self.client_notices(generation),
            Happening::ServerNotices(generation) => {
                let hold_ends = self.server.detach(connection(generation), now);
                self.plan((hold_ends - self.start).as_millis() as Time, Happening::HoldEnds);
            }
            // This entry only advances the time. After every entry, `run_process` checks whether the process still has to wait.
            Happening::HoldEnds => {}
            Happening::ReadGraceEnds(connection) => self.server.push_without_read(connection),
            Happening::Writable(connection) => self.write_to(connection),
            Happening::Reclaim(reclaim) => self.server.reclaim(reclaim, now),
            Happening::TakeOver => self.take_over(),
            Happening::Watch(after) => {
                self.watcher_last = Some(after);
                self.server.watch(WATCHER, after);
            }
            Happening::Pause(lasts) => self.pause(lasts),
            Happening::StartIsSent(lasts) => {
                if self.reconnection.current().is_some_and(|generation| self.reconnection.note_start_sent(generation))
                {
                    self.starts += 1;
                    self.plan(self.now + lasts, Happening::StartFinishes);
                }
            }
            Happening::StartFinishes => {
                self.starts -= 1;
                self.reconnection.note_start_finished(now);
            }
            Happening::AttemptFails(generation, retry) => self.fail_attempt(generation, retry),
            Happening::MessageToServer(generation, message) => self.serve(generation, message),
            Happening::MessageToClient(generation, message) => self.receive(generation, message),
        }
    }

    fn cut(&mut self, cut: Cut) {
        let victim = self.reconnection.current().or(self.attempting);
        let Some(victim) = victim.filter(|victim| !self.cuts.contains_key(victim)) else { return };
        self.cuts.insert(victim, cut);
        let noticed = self.now + cut.client_notices_after;
        self.plan(noticed, Happening::ClientNotices(victim));
        // The writing side of a client may notice a loss later than its reading side.
        let again = noticed + self.delay();
        self.plan(again, Happening::ClientNotices(victim));
        let noticed = self.now + cut.server_notices_after.unwrap_or(SERVER_GIVES_UP_AFTER);
        self.plan(noticed, Happening::ServerNotices(victim));
    }

    /// The server's end of a connection receives a message.
    fn serve(&mut self, generation: Generation, message: ToServer) {
        let from = connection(generation);
        match message {
            // The session belongs to the client that took it over.
            _ if self.taker.is_some() => self.plan(self.now, Happening::AttemptFails(generation, Retry::IsUseless)),
            ToServer::Resume => {
                self.server.attach(from, self.instant());
                self.plan(self.now + READ_GRACE, Happening::ReadGraceEnds(from));
                self.send_to_client(generation, ToClient::Resumed);
            }
            ToServer::Read { after } => {
                let (result, ping) = self.server.read(from, after, self.instant());
                let dropped_bytes = self.server.dropped_bytes();
                self.answers_in_flight.insert(generation);
                self.send_to_client(generation, ToClient::Answer { result: Box::new(result), dropped_bytes });
                if let Some(ping) = ping {
                    self.send_to_client(generation, ToClient::Push(Push::Ping(ping)));
                }
            }
            ToServer::Pong(payload) => self.server.pong(from, payload),
            ToServer::Flow { paused: true } => self.server.pause(from),
            ToServer::Flow { paused: false } => self.server.resume(from),
        }
    }

    /// The client's end of a connection receives a message.
    fn receive(&mut self, generation: Generation, message: ToClient) {
        match message {
            ToClient::Resumed => {
                let after = self.client.last();
                self.send_to_server(generation, ToServer::Read { after });
            }
            ToClient::Answer { result, dropped_bytes } => {
                self.answers_in_flight.remove(&generation);
                self.filling_hole.take_if(|asked| *asked == generation);
                if !self.is_over() {
                    self.client.take_answer(*result, dropped_bytes, self.schedule.kind, &self.server);
                }
                self.attempting.take_if(|attempt| *attempt == generation);
                self.reconnection.attempt_succeeded(generation, self.instant());
            }
            ToClient::Push(Push::Ping(payload)) => self.send_to_server(generation, ToServer::Pong(payload)),
            ToClient::Push(push) => {
                let awaits_answer = self.reconnection.current().is_none();
                if !self.is_over() {
                    self.client.take_push(push, awaits_answer);
                }
            }
            ToClient::TakenOver => self.reconnection.taken_over(generation, "taken over"),
        }
    }

    /// Another client takes the session over, reads the retained output, and is sent later events.
    fn take_over(&mut self) {
        if let Some(current) = self.reconnection.current() {
            self.send_to_client(current, ToClient::TakenOver);
        }
        let now = self.instant();
        self.server.attach(TAKER, now);
        let mut taker = SimulatedClient::new();
        let (answer, ping) = self.server.read(TAKER, 0, now);
        taker.begin(answer, &self.server.truth);
        self.taker = Some(taker);
        if let Some(ping) = ping {
            self.server.pong(TAKER, ping);
        }
    }

    fn pause(&mut self, lasts: Time) {
        let Some(current) = self.reconnection.current() else { return };
        self.send_to_server(current, ToServer::Flow { paused: true });
        let resumes = Happening::MessageToServer(current, ToServer::Flow { paused: false });
        let flight = Flight { generation: current, sent: self.now, to_client: false };
        // The message that resumes the process is sent later over the same connection. If that connection breaks, the message is never sent
        // and is not needed: on a new connection no process is paused.
        let earliest = self.arrivals.get(&(current, false)).copied().unwrap_or(0);
        self.agenda_entries += 1;
        self.agenda.insert((earliest.max(self.now + lasts), self.agenda_entries), (Some(flight), resumes));
    }

    /// The socket of a connection has room for a batch of messages.
    fn write_to(&mut self, to: ConnectionNumber) {
        self.writable.remove(&to);
        for push in self.server.poll(to, self.instant()) {
            match to {
                WATCHER => self.take_as_watcher(&push),
                TAKER => match push {
                    Push::Ping(payload) => self.server.pong(TAKER, payload),
                    push => self.taker.as_mut().expect("another client has taken over").take_push(push, false),
                },
                ConnectionNumber(number) => self.send_to_client(Generation(number), ToClient::Push(push)),
            }
        }
    }

    /// A watcher gets events in order. It may miss some, and notices that by their numbers.
    fn take_as_watcher(&mut self, push: &Push) {
        if let Push::Event(seq, _) = push {
            assert!(self.watcher_last < Some(*seq), "{seq} follows {:?}", self.watcher_last);
            self.watcher_last = Some(*seq);
        }
    }

    /// Plans a write to every connection for which the server has events.
    fn plan_writing(&mut self) {
        let generations = (0..=self.attempts as u64).map(ConnectionNumber);
        for to in generations.chain([TAKER, WATCHER]) {
            if self.server.has_events_for(to) && self.writable.insert(to) {
                // The client that has taken over reads ten times as slowly as the others.
                let wait_limit = if to == TAKER { 400 } else { 40 };
                let wait = Time::from(self.roll()) % wait_limit;
                self.plan(self.now + wait, Happening::Writable(to));
            }
        }
    }

    fn client_notices(&mut self, generation: Generation) {
        if self.reconnection.current() == Some(generation) {
            self.lost_at = Some(self.now);
            self.body_streams_failed = false;
        }
        let chance = self.chance();
        self.reconnection.disconnected(generation, Some("cut"), self.instant(), chance);
        // An answer that was sent before the cut may still arrive. It then decides the attempt.
        let answer_comes =
            self.answers_in_flight.contains(&generation) && !self.cuts[&generation].loses_messages_in_flight;
        if !answer_comes {
            self.fail_attempt(generation, Retry::MayHelp);
        }
    }

    fn fail_attempt(&mut self, generation: Generation, retry: Retry) {
        let was_running = self.attempting.take_if(|attempt| *attempt == generation).is_some();
        let chance = self.chance();
        let is_retryable = retry == Retry::MayHelp;
        self.reconnection.attempt_failed(generation, "refused", is_retryable, self.instant(), chance);
        assert!(is_retryable || !was_running || self.reconnection.failure().is_some());
    }

    /// Carries out the actions of the client's `Reconnection`.
    fn follow_reconnection(&mut self) {
        while let Some(action) = self.reconnection.poll_action() {
            assert!(!self.client_failed, "{action:?} after the client has failed");
            match action {
                Action::FailBodyStreams(_) => {
                    assert!(self.lost_at.is_some(), "the current connection was not lost");
                    self.body_streams_failed = true;
                }
                Action::Attempt(generation) => {
                    assert!(self.body_streams_failed && self.attempting.is_none() && self.starts == 0);
                    self.attempting = Some(generation);
                    self.attempt(generation);
                }
                Action::Abandon(generation) => {
                    assert_eq!(self.attempting.take(), Some(generation));
                    self.hang_up(generation);
                }
                Action::Connected(generation) => {
                    assert_eq!(self.reconnection.current(), Some(generation));
                    self.lost_at = None;
                }
                Action::Fail(text) => {
                    assert_eq!(self.reconnection.failure(), Some(text.as_str()));
                    assert!(self.taker.is_some() || self.body_streams_failed && self.attempting.is_none());
                    self.client_failed = true;
                    (0..=self.attempts as u64).for_each(|number| self.hang_up(Generation(number)));
                }
            }
        }
    }

    /// The client closes a connection, and the server notices.
    fn hang_up(&mut self, generation: Generation) {
        let later = self.now + self.delay();
        self.plan(later, Happening::ServerNotices(generation));
    }

    /// Begins an attempt to connect, which ends as the schedule says.
    fn attempt(&mut self, generation: Generation) {
        let fate = self.schedule.attempts[self.attempts % self.schedule.attempts.len()];
        self.attempts += 1;
        let later = self.now + self.delay();
        match fate {
            AttemptFate::Connects => self.send_to_server(generation, ToServer::Resume),
            AttemptFate::Hangs => {}
            AttemptFate::Refused => self.plan(later, Happening::AttemptFails(generation, Retry::MayHelp)),
            AttemptFate::Forbidden => self.plan(later, Happening::AttemptFails(generation, Retry::IsUseless)),
        }
    }

    /// Lets the clients pass on the events that are next in order, and compares the events with what the process did.
    fn deliver_events(&mut self) {
        if !self.client_failed {
            self.client.deliver_events(&self.server.truth);
        }
        if let Some(taker) = &mut self.taker {
            taker.deliver_events(&self.server.truth);
        }
    }

    /// A client that has missed an event on a live connection reads it.
    fn fill_hole(&mut self) {
        let now = self.instant();
        if let Some(taker) = self.taker.as_mut().filter(|taker| taker.has_hole()) {
            let (answer, _) = self.server.read(TAKER, taker.last(), now);
            taker.take_answer(answer, self.server.dropped_bytes(), self.schedule.kind, &self.server);
            taker.deliver_events(&self.server.truth);
        }
        if let Some(current) = self.reconnection.current()
            && self.client.has_hole()
            && self.filling_hole != Some(current)
        {
            self.filling_hole = Some(current);
            let after = self.client.last();
            self.send_to_server(current, ToServer::Read { after });
        }
    }

    fn check_recovery_time(&self) {
        let Some(lost_at) = self.lost_at.filter(|_| !self.client_failed) else { return };
        assert!(self.now < lost_at + RECOVERY_BUDGET, "still recovering {} ms after the loss", self.now - lost_at);
    }

    fn check_end(&self) {
        let is_connected = self.reconnection.current().is_some();
        assert!(self.client_failed != is_connected, "the client must be either connected or failed");
        assert!(!self.server.process_waits(), "the process waits for ever");
        assert!(!self.server.has_events_for(WATCHER), "the watcher was not sent everything");
        if let Some(taker) = &self.taker {
            assert!(taker.has_failed() || taker.is_complete(&self.server.truth), "the other client waits for ever");
        } else if !self.is_over() {
            assert!(self.client.is_complete(&self.server.truth), "the client waits for ever");
        }
    }

    /// Whether the client takes no more events: it could not reconnect, or it has learned that output was lost.
    fn is_over(&self) -> bool {
        self.client_failed || self.client.has_failed()
    }

    /// Whether a message reaches its receiver.
    fn arrives(&self, flight: &Flight) -> bool {
        let Some(cut) = self.cuts.get(&flight.generation) else { return true };
        // A client may still read messages that were sent before the cut, even after it has noticed the loss.
        flight.to_client && flight.sent < cut.at && !cut.loses_messages_in_flight
    }

    fn send_to_server(&mut self, generation: Generation, message: ToServer) {
        self.send(generation, false, Happening::MessageToServer(generation, message));
    }

    fn send_to_client(&mut self, generation: Generation, message: ToClient) {
        self.send(generation, true, Happening::MessageToClient(generation, message));
    }

    fn send(&mut self, generation: Generation, to_client: bool, happening: Happening) {
        let delayed = self.now + self.delay();
        let last = self.arrivals.entry((generation, to_client)).or_default();
        *last = delayed.max(*last);
        let arrives = *last;
        self.agenda_entries += 1;
        let flight = Flight { generation, sent: self.now, to_client };
        self.agenda.insert((arrives, self.agenda_entries), (Some(flight), happening));
    }

    fn plan(&mut self, at: Time, happening: Happening) {
        self.agenda_entries += 1;
        self.agenda.insert((at, self.agenda_entries), (None, happening));
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    /// The next random number.
    fn roll(&mut self) -> u16 {
        self.rolls += 1;
        self.schedule.dice[self.rolls % self.schedule.dice.len()]
    }

    /// A random delay: mostly short, sometimes longer than [`READ_GRACE`].
    fn delay(&mut self) -> Time {
        let roll = Time::from(self.roll());
        if roll.is_multiple_of(16) { roll % 2000 } else { roll % 60 }
    }

    fn chance(&mut self) -> Chance {
        Chance::new(f64::from(self.roll()) / f64::from(u16::MAX))
    }
}
