//! Decides whether a client is connected, recovering or failed, and when it tries to connect again. A client that has
//! not recovered at the deadline fails; an attempt that makes progress moves the deadline.
//!
//! Connections are numbered by [`Generation`]. A report about an old connection changes nothing once a newer
//! connection has replaced it. Start with [`Reconnection`]. It knows no sockets: the caller reports what happened and
//! does what [`Reconnection::poll_action`] returns.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::backoff::{Backoff, Chance};

/// Number of a connection, or of an attempt to make one, counted from 0 for the life of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u64);

/// What a client does about a lost connection.
#[derive(Clone, Copy, Debug)]
pub struct ReconnectPolicy {
    /// Time from the loss of the connection, or from the last progress of an attempt, until the client gives up. The
    /// default is 25 s.
    pub budget: Duration,
    /// Waits between the attempts to connect.
    pub backoff: Backoff,
    /// A connection that lasts at least this long resets the backoff. A shorter one does not, so that a server which closes every
    /// connection at once is not flooded with attempts. The default is 10 ms.
    pub stable_after: Duration,
    /// Whether the client knows how to connect again. If not, the loss of the connection is final.
    pub can_reconnect: bool,
    /// Whether the server gave the client a session that it can resume. If not, the loss of the connection is final.
    pub has_session: bool,
}

impl Default for ReconnectPolicy {
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

/// What the caller of a [`Reconnection`] does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The connection is lost. The bodies of HTTP responses that the server was sending over it fail now, with this error text, because
    /// they cannot be continued over another connection. This is the first action after a loss.
    FailBodyStreams(String),
    /// Connect, resume the session and read the events that were missed. Then call
    /// [`Reconnection::attempt_succeeded`] or [`Reconnection::attempt_failed`].
    Attempt(Generation),
    /// Stop this attempt. Its outcome does not matter any more.
    Abandon(Generation),
    /// This connection is the current one: calls that wait may be sent over it.
    Connected(Generation),
    /// The client has failed for good: everything that waits fails with this error text.
    Fail(String),
}

/// What a call does while the client has no connection and is recovering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenRecovering {
    /// The call waits for the next connection.
    #[default]
    Wait,
    /// The call fails at once.
    FailFast,
}

/// Whether a call may be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAdmission {
    /// The call may be sent over this connection.
    Send(Generation),
    /// The client is recovering. Ask again after the next [`Action`].
    Wait,
    /// The call fails without being sent.
    Refused(CallRefusal),
}

/// Why a call fails without being sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallRefusal {
    /// The client is recovering, and the call was made with [`WhenRecovering::FailFast`].
    Recovering,
    /// The client has failed for good, with this error text.
    Failed(String),
}

/// The state of a client's connection over all its generations.
#[derive(Debug)]
pub struct Reconnection {
    policy: ReconnectPolicy,
    state: ReconnectionState,
    /// Number of the newest [`Generation`].
    latest: u64,
    /// Process starts that were sent and have no result yet, over all connections.
    starts: usize,
    /// Attempts in a row that did not lead to a connection which lasted for [`ReconnectPolicy::stable_after`].
    failed_attempts: u32,
    actions: VecDeque<Action>,
}

#[derive(Debug)]
enum ReconnectionState {
    Connected { generation: Generation, since: Instant },
    Recovering(Recovering),
    Failed(String),
}

#[derive(Debug)]
struct Recovering {
    /// Error text of the loss of the connection.
    disconnect: String,
    /// When the client gives up.
    deadline: Instant,
    /// Error text of the last attempt that failed.
    last_error: Option<String>,
    /// Set if the connection of the running attempt was lost: the error text, and the random number for the wait before the next attempt.
    lost_attempt: Option<(String, Chance)>,
    step: RecoveryStep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecoveryStep {
    /// Waits until every process start that was in flight over the lost connection has a result. The first attempt
    /// begins at `not_before` at the earliest.
    AwaitingStarts {
        not_before: Instant,
    },
    Waiting {
        until: Instant,
    },
    Attempting(Generation),
}

impl Reconnection {
    /// A client whose first connection, generation 0, was just made.
    pub fn connected(policy: ReconnectPolicy, now: Instant) -> Self {
        let state = ReconnectionState::Connected { generation: Generation(0), since: now };
        Self { policy, state, latest: 0, starts: 0, failed_attempts: 0, actions: VecDeque::new() }
    }

    /// Whether a call may be sent now.
    pub fn admit(&self, when_recovering: WhenRecovering) -> CallAdmission {
        match (&self.state, when_recovering) {
            (ReconnectionState::Connected { generation, .. }, _) => CallAdmission::Send(*generation),
            (ReconnectionState::Recovering(_), WhenRecovering::Wait) => CallAdmission::Wait,
            (ReconnectionState::Recovering(_), WhenRecovering::FailFast) => {
                CallAdmission::Refused(CallRefusal::Recovering)
            }
            (ReconnectionState::Failed(text), _) => CallAdmission::Refused(CallRefusal::Failed(text.clone())),
        }
    }

    /// The connection in use. `None` while the client recovers, and after it has failed.
    pub fn current(&self) -> Option<Generation> {
        match self.state {
            ReconnectionState::Connected { generation, .. } => Some(generation),
            ReconnectionState::Recovering(_) | ReconnectionState::Failed(_) => None,
        }
    }

    /// The error text of a client that has failed for good.
    pub fn failure(&self) -> Option<&str> {
        match &self.state {
            ReconnectionState::Failed(text) => Some(text),
            ReconnectionState::Connected { .. } | ReconnectionState::Recovering(_) => None,
        }
    }

    /// A process start is about to be sent over this connection. Returns false, and counts no start, if this is not the current connection.
    pub fn note_start_sent(&mut self, generation: Generation) -> bool {
        let is_current = self.current() == Some(generation);
        self.starts += usize::from(is_current);
        is_current
    }

    /// A process start was answered, or will never be answered. Must be called once for each [`note_start_sent`](Self::note_start_sent)
    /// that returned true.
    pub fn note_start_finished(&mut self, now: Instant) {
        debug_assert!(self.starts > 0, "more starts have finished than were sent");
        self.starts = self.starts.saturating_sub(1);
        self.advance(now);
    }

    /// A connection has ended. Ignored unless it is the current connection or the connection of the running attempt.
    /// If the running attempt lost its connection, it still reports its own end, and a success then counts as a
    /// failure.
    pub fn disconnected(&mut self, generation: Generation, reason: Option<&str>, now: Instant, chance: Chance) {
        let disconnect = match reason {
            None => "exec-server transport disconnected".to_owned(),
            Some(reason) => format!("exec-server transport disconnected: {reason}"),
        };
        let since = match &mut self.state {
            ReconnectionState::Connected { generation: current, since } if *current == generation => *since,
            ReconnectionState::Recovering(recovering) if recovering.step == RecoveryStep::Attempting(generation) => {
                recovering.lost_attempt = Some((disconnect, chance));
                return;
            }
            _ => return,
        };
        if now.saturating_duration_since(since) >= self.policy.stable_after {
            self.failed_attempts = 0;
        }
        self.actions.push_back(Action::FailBodyStreams(disconnect.clone()));
        if !self.policy.can_reconnect {
            return self.fail(disconnect);
        }
        if !self.policy.has_session {
            return self.fail(resume_failed(&disconnect, "missing session id"));
        }
        let not_before = later(now, self.policy.backoff.after(self.failed_attempts, chance));
        let deadline = later(now, self.policy.budget);
        let step = RecoveryStep::AwaitingStarts { not_before };
        self.state = ReconnectionState::Recovering(Recovering {
            disconnect,
            deadline,
            last_error: None,
            lost_attempt: None,
            step,
        });
        self.advance(now);
    }

    /// Another client has taken the session over from this connection. Ignored unless this is the current connection.
    /// The client fails with `text`, because a reconnect would take the session away from the other client.
    pub fn taken_over(&mut self, generation: Generation, text: &str) {
        if self.current() == Some(generation) {
            self.fail(text.to_owned());
        }
    }

    /// The running attempt has received a part of the missing events. The deadline and the backoff start again, because a recovery needs
    /// many connections if each of them breaks early.
    pub fn attempt_progressed(&mut self, generation: Generation, now: Instant) {
        let budget = self.policy.budget;
        if let ReconnectionState::Recovering(recovering) = &mut self.state
            && recovering.step == RecoveryStep::Attempting(generation)
        {
            recovering.deadline = later(now, budget);
            self.failed_attempts = 0;
        }
    }

    /// The attempt has made a connection, resumed the session and read the missed events. If that connection was lost
    /// meanwhile, the attempt counts as failed.
    pub fn attempt_succeeded(&mut self, generation: Generation, now: Instant) {
        if !self.is_attempting(generation) {
            return;
        }
        if let ReconnectionState::Recovering(Recovering { lost_attempt, .. }) = &mut self.state
            && let Some((error, chance)) = lost_attempt.take()
        {
            return self.attempt_failed(generation, &error, true, now, chance);
        }
        self.failed_attempts = self.failed_attempts.saturating_add(1);
        self.state = ReconnectionState::Connected { generation, since: now };
        self.actions.push_back(Action::Connected(generation));
    }

    /// The attempt failed. `is_retryable` says whether another attempt may succeed; if not, the client fails for good.
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
        let ReconnectionState::Recovering(recovering) = &mut self.state else { return };
        if !is_retryable {
            let text = resume_failed(&recovering.disconnect, error);
            return self.fail(text);
        }
        recovering.last_error = Some(error.to_owned());
        recovering.step = RecoveryStep::Waiting { until: later(now, wait) };
        self.advance(now);
    }

    /// The program that uses the client has closed it. Everything that waits fails with `text`.
    pub fn close(&mut self, text: &str) {
        if let Some(attempt) = self.attempt() {
            self.actions.push_back(Action::Abandon(attempt));
        }
        if self.failure().is_none() {
            self.fail(text.to_owned());
        }
    }

    /// The time that [`poll_timeout`](Self::poll_timeout) has returned is reached. An early call does no harm.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// When to call [`Reconnection::handle_timeout`] next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let ReconnectionState::Recovering(recovering) = &self.state else { return None };
        match recovering.step {
            RecoveryStep::Waiting { until } => Some(until.min(recovering.deadline)),
            RecoveryStep::AwaitingStarts { .. } | RecoveryStep::Attempting(_) => Some(recovering.deadline),
        }
    }

    /// Takes the next action. The caller must carry out all of them, in order.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Whether [`poll_action`](Self::poll_action) would return an action.
    pub fn has_action(&self) -> bool {
        !self.actions.is_empty()
    }

    fn is_attempting(&self, generation: Generation) -> bool {
        self.attempt() == Some(generation)
    }

    fn attempt(&self) -> Option<Generation> {
        match &self.state {
            ReconnectionState::Recovering(Recovering { step: RecoveryStep::Attempting(generation), .. }) => {
                Some(*generation)
            }
            _ => None,
        }
    }

    /// Takes the steps of a recovery that are due: giving up at the deadline, or the next attempt.
    fn advance(&mut self, now: Instant) {
        let ReconnectionState::Recovering(recovering) = &mut self.state else { return };
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
        if let RecoveryStep::AwaitingStarts { not_before } = recovering.step
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
        self.state = ReconnectionState::Failed(text.clone());
        self.actions.push_back(Action::Fail(text));
    }
}

/// `now + wait`. A wait of more than a century counts as a century, because `Duration::MAX` would overflow an
/// `Instant`.
fn later(now: Instant, wait: Duration) -> Instant {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    now + wait.min(CENTURY)
}

fn resume_failed(disconnect: &str, error: &str) -> String {
    format!("{disconnect}; failed to resume exec-server session: {error}")
}

#[cfg(test)]
mod tests;
