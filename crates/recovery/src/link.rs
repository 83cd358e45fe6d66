//! The state of a client's connection: connected, recovering or failed, with one deadline for a recovery.
//!
//! Connections are numbered. What an old one says, after a newer one took its place, changes nothing.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::backoff::{Backoff, Chance};

/// Names a connection, or an attempt to make one, for the life of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// How a client goes about a lost connection.
#[derive(Clone, Copy, Debug)]
pub struct LinkPolicy {
    /// From the loss until the client gives up.
    pub budget: Duration,
    /// The waits between attempts.
    pub backoff: Backoff,
    /// A connection that held for less than this does not make the next attempt the first one again: a server that drops
    /// everybody at once is not hammered.
    pub stable_after: Duration,
    /// Whether there is a way to connect again.
    pub can_reconnect: bool,
    /// Whether there is a session to resume.
    pub has_session: bool,
}

impl Default for LinkPolicy {
    fn default() -> Self {
        Self {
            budget: Duration::from_secs(25),
            backoff: Backoff::default(),
            stable_after: Duration::from_millis(10),
            can_reconnect: true,
            has_session: true,
        }
    }
}

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The connection is lost: what streams over it fails now, with these words. Comes before everything else.
    FailStreams(String),
    /// Connect, resume and catch up, then tell [`Link::attempt_succeeded`] or [`Link::attempt_failed`].
    Attempt(Generation),
    /// Drop this attempt.
    Abandon(Generation),
    /// This connection is the current one; whoever waits may go on.
    Connected(Generation),
    /// Nothing will come any more: everything that waits fails with these words.
    Fail(String),
}

/// What a call does that finds no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenRecovering {
    /// It waits.
    #[default]
    Wait,
    /// It fails at once.
    FailFast,
}

/// Whether a call may go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Over this connection.
    Go(Generation),
    /// Ask again after the next change.
    Wait,
    /// It fails.
    Refused(Refusal),
}

/// Why a call does not go out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It did not want to wait.
    Recovering,
    /// The client has failed, with these words.
    Failed(String),
}

/// The connection of one client.
#[derive(Debug)]
pub struct Link {
    policy: LinkPolicy,
    state: State,
    latest: u64,
    /// Process starts that were sent and are not settled, over whichever connection.
    starts: usize,
    /// Attempts in a row that did not lead to a connection that held.
    failed_attempts: u32,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
enum State {
    Connected { generation: Generation, since: Instant },
    Recovering(Recovering),
    Failed(String),
}

#[derive(Debug)]
struct Recovering {
    disconnect: String,
    deadline: Instant,
    last_error: Option<String>,
    /// How the connection of the running attempt was lost, and the chance drawn for it.
    lost_attempt: Option<(String, Chance)>,
    step: RecoveryStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecoveryStep {
    /// Starts that were in flight have not all failed yet.
    Settling {
        not_before: Instant,
    },
    Waiting {
        until: Instant,
    },
    Attempting(Generation),
}

impl Link {
    /// The first connection is there.
    pub fn connected(policy: LinkPolicy, now: Instant) -> Self {
        let state = State::Connected { generation: Generation(0), since: now };
        Self { policy, state, latest: 0, starts: 0, failed_attempts: 0, actions: VecDeque::new() }
    }

    /// Whether a call may go out now.
    pub fn admit(&self, when_recovering: WhenRecovering) -> Admission {
        match (&self.state, when_recovering) {
            (State::Connected { generation, .. }, _) => Admission::Go(*generation),
            (State::Recovering(_), WhenRecovering::Wait) => Admission::Wait,
            (State::Recovering(_), WhenRecovering::FailFast) => Admission::Refused(Refusal::Recovering),
            (State::Failed(text), _) => Admission::Refused(Refusal::Failed(text.clone())),
        }
    }

    /// The connection in use.
    pub fn current(&self) -> Option<Generation> {
        match self.state {
            State::Connected { generation, .. } => Some(generation),
            State::Recovering(_) | State::Failed(_) => None,
        }
    }

    /// The words it has failed with.
    pub fn failure(&self) -> Option<&str> {
        match &self.state {
            State::Failed(text) => Some(text),
            State::Connected { .. } | State::Recovering(_) => None,
        }
    }

    /// A process start is about to be sent over this connection. False: it is no longer the current one.
    pub fn start_began(&mut self, generation: Generation) -> bool {
        let is_current = self.current() == Some(generation);
        self.starts += usize::from(is_current);
        is_current
    }

    /// The start has its answer, or will get none. To be told once for each start that began.
    pub fn start_settled(&mut self, now: Instant) {
        debug_assert!(self.starts > 0, "more starts settled than began");
        self.starts = self.starts.saturating_sub(1);
        self.go_on(now);
    }

    /// The connection has ended. Only the current one counts, and one that an attempt is about to make the current one: the word of
    /// its loss may overtake the word of its success.
    pub fn disconnected(&mut self, generation: Generation, reason: Option<&str>, now: Instant, chance: Chance) {
        let disconnect = match reason {
            None => "exec-server transport disconnected".to_owned(),
            Some(reason) => format!("exec-server transport disconnected: {reason}"),
        };
        let since = match &mut self.state {
            State::Connected { generation: current, since } if *current == generation => *since,
            State::Recovering(recovering) if recovering.step == RecoveryStep::Attempting(generation) => {
                recovering.lost_attempt = Some((disconnect, chance));
                return;
            }
            _ => return,
        };
        if now.saturating_duration_since(since) >= self.policy.stable_after {
            self.failed_attempts = 0;
        }
        self.actions.push_back(Action::FailStreams(disconnect.clone()));
        if !self.policy.can_reconnect {
            return self.fail(disconnect);
        }
        if !self.policy.has_session {
            return self.fail(resume_failed(&disconnect, "missing session id"));
        }
        let not_before = later(now, self.policy.backoff.after(self.failed_attempts, chance));
        let deadline = later(now, self.policy.budget);
        let step = RecoveryStep::Settling { not_before };
        self.state =
            State::Recovering(Recovering { disconnect, deadline, last_error: None, lost_attempt: None, step });
        self.go_on(now);
    }

    /// Another client has taken the session from this connection. To come back would take it from that one, so the client fails with
    /// these words.
    pub fn taken_over(&mut self, generation: Generation, text: &str) {
        if self.current() == Some(generation) {
            self.fail(text.to_owned());
        }
    }

    /// The attempt has brought something of what was missed. Where connections carry little it takes many of them, so the client gets its
    /// whole time again, and does not wait longer for each.
    pub fn attempt_progressed(&mut self, generation: Generation, now: Instant) {
        let budget = self.policy.budget;
        if let State::Recovering(recovering) = &mut self.state
            && recovering.step == RecoveryStep::Attempting(generation)
        {
            recovering.deadline = later(now, budget);
            self.failed_attempts = 0;
        }
    }

    /// The attempt led to a connection that has resumed the session and caught up.
    pub fn attempt_succeeded(&mut self, generation: Generation, now: Instant) {
        if !self.is_attempting(generation) {
            return;
        }
        if let State::Recovering(Recovering { lost_attempt, .. }) = &mut self.state
            && let Some((error, chance)) = lost_attempt.take()
        {
            return self.attempt_failed(generation, &error, true, now, chance);
        }
        self.failed_attempts = self.failed_attempts.saturating_add(1);
        self.state = State::Connected { generation, since: now };
        self.actions.push_back(Action::Connected(generation));
    }

    /// The attempt failed; `is_retryable` says whether another one may do better.
    pub fn attempt_failed(
        &mut self,
        generation: Generation,
        error: &str,
        is_retryable: bool,
        now: Instant,
        chance: Chance,
    ) {
        if !self.is_attempting(generation) {
            return;
        }
        self.failed_attempts = self.failed_attempts.saturating_add(1);
        let wait = self.policy.backoff.after(self.failed_attempts, chance);
        let State::Recovering(recovering) = &mut self.state else { return };
        if !is_retryable {
            let text = resume_failed(&recovering.disconnect, error);
            return self.fail(text);
        }
        recovering.last_error = Some(error.to_owned());
        recovering.step = RecoveryStep::Waiting { until: later(now, wait) };
        self.go_on(now);
    }

    /// The client is given up by its user.
    pub fn close(&mut self, text: &str) {
        if let Some(attempt) = self.attempt() {
            self.actions.push_back(Action::Abandon(attempt));
        }
        if self.failure().is_none() {
            self.fail(text.to_owned());
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.go_on(now);
    }

    /// When to call [`Link::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let State::Recovering(recovering) = &self.state else { return None };
        match recovering.step {
            RecoveryStep::Waiting { until } => Some(until.min(recovering.deadline)),
            RecoveryStep::Settling { .. } | RecoveryStep::Attempting(_) => Some(recovering.deadline),
        }
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether there is something to do.
    pub fn has_action(&self) -> bool {
        !self.actions.is_empty()
    }

    fn is_attempting(&self, generation: Generation) -> bool {
        self.attempt() == Some(generation)
    }

    fn attempt(&self) -> Option<Generation> {
        match &self.state {
            State::Recovering(Recovering { step: RecoveryStep::Attempting(generation), .. }) => Some(*generation),
            _ => None,
        }
    }

    fn go_on(&mut self, now: Instant) {
        let State::Recovering(recovering) = &mut self.state else { return };
        if now >= recovering.deadline {
            let mut error = format!("recovery timed out after {:?}", self.policy.budget);
            if let Some(last) = &recovering.last_error {
                error = format!("{error}: {last}");
            }
            let text = resume_failed(&recovering.disconnect, &error);
            if let RecoveryStep::Attempting(generation) = recovering.step {
                self.actions.push_back(Action::Abandon(generation));
            }
            return self.fail(text);
        }
        if let RecoveryStep::Settling { not_before } = recovering.step
            && self.starts == 0
        {
            recovering.step = RecoveryStep::Waiting { until: not_before };
        }
        if let RecoveryStep::Waiting { until } = recovering.step
            && now >= until
        {
            self.latest += 1;
            let attempt = Generation(self.latest);
            recovering.lost_attempt = None;
            recovering.step = RecoveryStep::Attempting(attempt);
            self.actions.push_back(Action::Attempt(attempt));
        }
    }

    fn fail(&mut self, text: String) {
        self.state = State::Failed(text.clone());
        self.actions.push_back(Action::Fail(text));
    }
}

/// A budget or a wait without end is one that nobody will see the end of.
fn later(now: Instant, wait: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    now + wait.min(CENTURY)
}

fn resume_failed(disconnect: &str, error: &str) -> String {
    format!("{disconnect}; failed to resume exec-server session: {error}")
}

#[cfg(test)]
mod tests;
