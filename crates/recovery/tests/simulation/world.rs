//! A client made of a `Link` and an `EventOrder`, a server, and a network between them, on virtual time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bytes::Bytes;
use protocol::{ReadResult, Stream};
use recovery::{Action, Backoff, CatchUpError, Chance, Event, EventOrder, Generation, Link, LinkPolicy, OrderLimits};

use crate::server::{Kind, Notice, Server};

/// Milliseconds since the beginning.
type Time = u64;

pub(crate) const BUDGET: Time = 5000;
/// After a resume, when our server no longer waits for a read.
const SILENCE: Time = 1000;
/// Far beyond what any plan can take.
const END_OF_TIME: Time = 200_000;

/// What the process does.
#[derive(Clone, Debug)]
pub(crate) enum Deed {
    Write(Stream, Vec<u8>),
    Exit { code: i32, sandbox_denied: bool, timed_out: bool },
    Close,
}

/// How an attempt to reconnect goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Connects,
    Refused,
    Forbidden,
    Hangs,
}

/// Where the connection breaks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    pub(crate) at: Time,
    pub(crate) noticed_after: Time,
    pub(crate) loses_what_is_in_flight: bool,
}

/// Everything that chance decides.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) kind: Kind,
    pub(crate) retain_bytes: usize,
    pub(crate) page_bytes: usize,
    pub(crate) deeds: Vec<(Time, Deed)>,
    pub(crate) cuts: Vec<Cut>,
    /// In a circle.
    pub(crate) outcomes: Vec<Outcome>,
    /// Beginning and length of starts of other processes.
    pub(crate) starts: Vec<(Time, Time)>,
    /// For everything else, in a circle.
    pub(crate) dice: Vec<u16>,
}

enum Happening {
    Deed(Deed),
    Cut(Cut),
    Noticed(Generation),
    Notice(Notice),
    Connected(Generation),
    Asked(Generation, u64),
    Answered(Generation, Box<Answer>),
    AttemptFailed(Generation, bool),
    Silence(Generation, u64),
    StartBegins(Time),
    StartSettles,
}

/// Something that goes over a connection, if that holds.
struct Travel {
    generation: Generation,
    sent: Time,
    to: End,
}

#[derive(PartialEq, Eq)]
enum End {
    Client,
    Server,
}

struct Answer {
    result: ReadResult,
    /// What the server could not have answered with.
    dropped: Vec<(u64, u64)>,
}

pub(crate) struct World {
    plan: Plan,
    start: Instant,
    now: Time,
    agenda: BTreeMap<(Time, u64), (Option<Travel>, Happening)>,
    entries: u64,
    rolls: usize,
    attempts: usize,
    server: Server,
    cuts: BTreeMap<Generation, Cut>,
    /// When the last notice of each connection arrives. An end without a number must not overtake output after the exit: nobody
    /// could tell.
    arrivals: BTreeMap<Generation, Time>,
    link: Link,
    attempting: Option<Generation>,
    answers_on_their_way: BTreeSet<Generation>,
    lost_at: Option<Time>,
    starts: usize,
    streams_failed: bool,
    order: EventOrder,
    held_close: bool,
    /// Numbers of all events that ever reached the client.
    known: BTreeSet<u64>,
    received_bytes: u64,
    handed_out: Vec<(u64, Event)>,
    failure: Option<CatchUpError>,
    link_failed: bool,
}

impl World {
    pub(crate) fn new(plan: Plan) -> Self {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let policy = LinkPolicy {
            budget: ms(BUDGET),
            backoff: Backoff { first: ms(20), longest: ms(500) },
            stable_after: ms(100),
            ..LinkPolicy::default()
        };
        let mut world = Self {
            start,
            now: 0,
            agenda: BTreeMap::new(),
            entries: 0,
            rolls: 0,
            attempts: 0,
            server: Server::new(plan.kind, plan.retain_bytes, plan.page_bytes),
            cuts: BTreeMap::new(),
            arrivals: BTreeMap::new(),
            link: Link::connected(policy, start),
            attempting: None,
            answers_on_their_way: BTreeSet::new(),
            lost_at: None,
            starts: 0,
            streams_failed: false,
            order: EventOrder::new(OrderLimits::default()),
            held_close: false,
            known: BTreeSet::new(),
            received_bytes: 0,
            handed_out: Vec::new(),
            failure: None,
            link_failed: false,
            plan,
        };
        let mut at = 0;
        for (pause, deed) in world.plan.deeds.clone() {
            at += pause;
            world.plan_for(at, Happening::Deed(deed));
        }
        for cut in world.plan.cuts.clone() {
            world.plan_for(cut.at, Happening::Cut(cut));
        }
        for (at, takes) in world.plan.starts.clone() {
            world.plan_for(at, Happening::StartBegins(takes));
        }
        world
    }

    /// Lets everything happen and checks how it ended.
    pub(crate) fn run(mut self) {
        loop {
            let next = self.agenda.first_key_value().map(|((at, _), _)| *at);
            // Timers fire on whole milliseconds, never early.
            let wake = self.link.poll_timeout().map(|at| (at - self.start).as_nanos().div_ceil(1_000_000) as Time);
            let Some(at) = next.into_iter().chain(wake).min() else { break };
            assert!(at < END_OF_TIME, "it goes on for ever");
            self.now = self.now.max(at);
            if next == Some(at) {
                let (_, (travel, happening)) = self.agenda.pop_first().expect("there is a next one");
                if travel.is_none_or(|travel| self.arrives(&travel)) {
                    self.happen(happening);
                }
            }
            if wake.is_some_and(|wake| wake <= self.now) {
                self.link.handle_timeout(self.instant());
            }
            self.act();
            self.hand_out();
            self.check_link();
        }
        self.check_end();
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Deed(deed) => {
                match deed {
                    Deed::Write(stream, bytes) => self.server.output(stream, Bytes::from(bytes)),
                    Deed::Exit { code, sandbox_denied, timed_out } => {
                        self.server.exit(code, sandbox_denied, timed_out);
                    }
                    Deed::Close => self.server.close(),
                }
                self.send_notices();
            }
            Happening::Cut(cut) => {
                let victim = self.link.current().or(self.attempting);
                if let Some(victim) = victim.filter(|victim| !self.cuts.contains_key(victim)) {
                    self.cuts.insert(victim, cut);
                    let noticed = self.now + cut.noticed_after;
                    self.plan_for(noticed, Happening::Noticed(victim));
                    // Whoever writes may find out later than whoever reads.
                    let again = noticed + self.delay();
                    self.plan_for(again, Happening::Noticed(victim));
                }
            }
            Happening::Noticed(generation) => self.notice_loss(generation),
            Happening::Notice(notice) => self.take_notice(notice),
            Happening::Connected(generation) => {
                self.server.attach(generation);
                let after = self.order.last();
                self.plan_for(self.now + SILENCE, Happening::Silence(generation, after));
                let arrives = self.now + self.delay();
                self.send(generation, End::Server, arrives, Happening::Asked(generation, after));
            }
            Happening::Asked(generation, after) => {
                let result = self.server.read(after);
                let dropped = self.server.dropped().map(|(seq, event)| (seq, event.bytes() as u64)).collect();
                let answer = Happening::Answered(generation, Box::new(Answer { result, dropped }));
                let arrives = self.now + self.delay();
                self.answers_on_their_way.insert(generation);
                self.send(generation, End::Client, arrives, answer);
                self.send_notices();
            }
            Happening::Answered(generation, answer) => {
                self.answers_on_their_way.remove(&generation);
                self.catch_up(*answer);
                self.attempting.take_if(|attempt| *attempt == generation);
                self.link.attempt_succeeded(generation, self.instant());
            }
            Happening::AttemptFailed(generation, is_retryable) => self.fail_attempt(generation, is_retryable),
            Happening::Silence(generation, known) => {
                self.server.give_up_waiting(generation, known);
                self.send_notices();
            }
            Happening::StartBegins(takes) => {
                if self.link.current().is_some_and(|generation| self.link.start_began(generation)) {
                    self.starts += 1;
                    self.plan_for(self.now + takes, Happening::StartSettles);
                }
            }
            Happening::StartSettles => {
                self.starts -= 1;
                self.link.start_settled(self.instant());
            }
        }
    }

    fn notice_loss(&mut self, generation: Generation) {
        if self.link.current() == Some(generation) {
            self.lost_at = Some(self.now);
            self.streams_failed = false;
        }
        let chance = self.chance();
        self.link.disconnected(generation, Some("cut"), self.instant(), chance);
        let is_answer_to_come =
            self.answers_on_their_way.contains(&generation) && !self.cuts[&generation].loses_what_is_in_flight;
        if !is_answer_to_come {
            self.fail_attempt(generation, true);
        }
    }

    fn fail_attempt(&mut self, generation: Generation, is_retryable: bool) {
        let was_running = self.attempting.take_if(|attempt| *attempt == generation).is_some();
        let chance = self.chance();
        self.link.attempt_failed(generation, "refused", is_retryable, self.instant(), chance);
        assert!(is_retryable || !was_running || self.link.failure().is_some());
    }

    fn take_notice(&mut self, notice: Notice) {
        if self.is_over() {
            return;
        }
        match notice {
            Notice::Numbered(seq, event) => {
                self.known.insert(seq);
                self.order.handle_event(seq, event).expect("little waits");
            }
            Notice::Close if self.link.current().is_some() => self.order.handle_unnumbered_close(),
            Notice::Close => self.held_close = true,
        }
    }

    /// Compares what the order makes of an answer with what must be made of it.
    fn catch_up(&mut self, answer: Answer) {
        if self.is_over() || self.order.is_closed() {
            return;
        }
        let through = answer.result.next_seq - 1;
        let missed = answer.dropped.iter().filter(|(seq, _)| *seq <= through && !self.known.contains(seq));
        let missed: Vec<u64> = missed.map(|(_, bytes)| *bytes).collect();
        let ends_in_output = answer.result.chunks.last().is_some_and(|chunk| chunk.seq == through);
        let expected = match self.server.kind() {
            Kind::Old if answer.result.closed && ends_in_output && through > self.order.last() => {
                Err(CatchUpError::CloseConflict(through))
            }
            _ if missed.is_empty() => Ok(()),
            Kind::Ours => Err(CatchUpError::OutputLost { through, lost_bytes: Some(missed.iter().sum()) }),
            Kind::Reference | Kind::Old => Err(CatchUpError::NotRetained(through)),
        };
        let made = self.order.handle_read(answer.result.clone(), self.received_bytes);
        assert_eq!(made, expected, "after {} of {:?}", self.order.last(), answer.result);
        match made {
            Err(error) => self.failure = Some(error),
            Ok(()) => {
                self.known.extend(1..=through);
                if std::mem::take(&mut self.held_close) {
                    self.order.handle_unnumbered_close();
                }
            }
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.link.poll_action() {
            assert!(!self.link_failed, "{action:?} after the end");
            match action {
                Action::FailStreams(_) => {
                    assert!(self.lost_at.is_some(), "only an old connection was lost");
                    self.streams_failed = true;
                }
                Action::Attempt(generation) => {
                    assert!(self.streams_failed && self.attempting.is_none() && self.starts == 0);
                    self.attempting = Some(generation);
                    self.attempt(generation);
                }
                Action::Abandon(generation) => assert_eq!(self.attempting.take(), Some(generation)),
                Action::Connected(generation) => {
                    assert_eq!(self.link.current(), Some(generation));
                    self.lost_at = None;
                }
                Action::Fail(text) => {
                    assert_eq!(self.link.failure(), Some(text.as_str()));
                    assert!(self.streams_failed && self.attempting.is_none());
                    self.link_failed = true;
                }
            }
        }
    }

    fn attempt(&mut self, generation: Generation) {
        let outcome = self.plan.outcomes[self.attempts % self.plan.outcomes.len()];
        self.attempts += 1;
        let arrives = self.now + self.delay();
        match outcome {
            Outcome::Connects => self.send(generation, End::Server, arrives, Happening::Connected(generation)),
            Outcome::Hangs => {}
            Outcome::Refused => self.plan_for(arrives, Happening::AttemptFailed(generation, true)),
            Outcome::Forbidden => self.plan_for(arrives, Happening::AttemptFailed(generation, false)),
        }
    }

    fn hand_out(&mut self) {
        if self.is_over() {
            return;
        }
        while let Some((seq, event)) = self.order.poll_event() {
            assert_ne!(self.handed_out.last().map(|(_, event)| event), Some(&Event::Closed), "{seq} follows the end");
            self.received_bytes += event.bytes() as u64;
            self.handed_out.push((seq, event));
        }
        let expected = self.server.log().iter().take(self.handed_out.len()).map(said);
        let expected: Vec<_> = (1..).zip(expected).collect();
        let handed_out: Vec<_> = self.handed_out.iter().map(|(seq, event)| (*seq, said(event))).collect();
        assert_eq!(handed_out, expected, "what happened, in order, once");
    }

    fn check_link(&self) {
        let Some(lost_at) = self.lost_at.filter(|_| !self.link_failed) else { return };
        assert!(self.now < lost_at + BUDGET, "still recovering {} ms after the loss", self.now - lost_at);
    }

    fn check_end(&self) {
        assert!(self.link_failed != self.link.current().is_some(), "neither connected nor failed");
        if self.is_over() {
            return;
        }
        assert_eq!(self.handed_out.len(), self.server.log().len(), "connected, and events are missing");
        assert_eq!(self.order.is_closed(), self.server.is_closed());
        assert!(!self.order.has_hole());
    }

    /// Nothing more reaches whoever follows the process.
    fn is_over(&self) -> bool {
        self.link_failed || self.failure.is_some()
    }

    fn send_notices(&mut self) {
        for (generation, notice) in self.server.take_outbox() {
            let is_last = matches!(notice, Notice::Close) && self.server.ends_in_output();
            for _ in 0..1 + usize::from(self.roll().is_multiple_of(5)) {
                let earliest = self.arrivals.get(&generation).copied().filter(|_| is_last).unwrap_or(0);
                let arrives = (self.now + self.delay()).max(earliest);
                let latest = self.arrivals.entry(generation).or_default();
                *latest = arrives.max(*latest);
                self.send(generation, End::Client, arrives, Happening::Notice(notice.clone()));
            }
        }
    }

    fn arrives(&self, travel: &Travel) -> bool {
        let Some(cut) = self.cuts.get(&travel.generation) else { return true };
        // A client still reads what its side of the network holds; it may take it up after it was told of the loss.
        travel.to == End::Client && travel.sent < cut.at && !cut.loses_what_is_in_flight
    }

    fn send(&mut self, generation: Generation, to: End, arrives: Time, happening: Happening) {
        self.entries += 1;
        let travel = Travel { generation, sent: self.now, to };
        self.agenda.insert((arrives, self.entries), (Some(travel), happening));
    }

    fn plan_for(&mut self, at: Time, happening: Happening) {
        self.entries += 1;
        self.agenda.insert((at, self.entries), (None, happening));
    }

    fn instant(&self) -> Instant {
        self.start + Duration::from_millis(self.now)
    }

    fn roll(&mut self) -> u16 {
        self.rolls += 1;
        self.plan.dice[self.rolls % self.plan.dice.len()]
    }

    /// Mostly short, sometimes longer than servers are patient.
    fn delay(&mut self) -> Time {
        let roll = Time::from(self.roll());
        if roll.is_multiple_of(16) { roll % 2000 } else { roll % 60 }
    }

    fn chance(&mut self) -> Chance {
        Chance::new(f64::from(self.roll()) / f64::from(u16::MAX))
    }
}

/// An event without what an old server tells in an answer but not when it happens.
fn said(event: &Event) -> Event {
    let mut event = event.clone();
    if let Event::Exited(exit) = &mut event {
        exit.sandbox_denied = Some(exit.sandbox_denied.unwrap_or(false));
    }
    event
}
