//! Who is connected to a session, and what becomes of it when nobody is.
//!
//! At most one connection is attached: it is sent the events of the session. Any number may observe beside it. An observer
//! changes nothing by being there, unless it says for how long the session is to be kept: then the session outlives the observer
//! for that long.

use std::time::{Duration, Instant};

/// Names a connection for the life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionNumber(pub u64);

/// A resume found this connection in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillAttached(pub ConnectionNumber);

/// The attachment of one session.
#[derive(Debug)]
pub struct Attachment {
    state: State,
    /// How long a session outlives its connection if its client asks for nothing else.
    ttl: Duration,
    /// How long its client wants it to.
    keep: Option<Duration>,
    /// How long output waits for the client to come back before the oldest is dropped instead.
    hold: Duration,
    /// Connections that observe.
    observers: usize,
    /// Those of them that said for how long the session is to be kept. It does not end while one is connected.
    keepers: usize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Attached(ConnectionNumber),
    Detached {
        /// When the attached connection was lost.
        lost_at: Instant,
        /// When the last connection left that counts for how long the session is kept.
        since: Instant,
    },
    Ended,
}

/// A connection that observes, to be handed back when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observer {
    keeps: bool,
}

/// What a session holds, for the choice of a session that makes room for a new one. What is cheapest to lose comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contents {
    /// Nothing.
    Nothing,
    /// Processes that have closed, files or watches that a client has left open.
    Leftovers,
    /// A process that is not closed.
    Work,
}

impl Attachment {
    /// A new session, attached to the connection that asked for it.
    pub fn new(connection: ConnectionNumber, ttl: Duration, hold: Duration) -> Self {
        Self { state: State::Attached(connection), ttl, keep: None, hold, observers: 0, keepers: 0 }
    }

    /// A client presents the session id. `Ok(false)`: the session is over.
    pub fn resume(&mut self, connection: ConnectionNumber, now: Instant) -> Result<bool, StillAttached> {
        match self.state {
            State::Attached(current) => return Err(StillAttached(current)),
            State::Detached { .. } if self.is_alive(now) => self.state = State::Attached(connection),
            State::Detached { .. } => {
                self.state = State::Ended;
                return Ok(false);
            }
            State::Ended => return Ok(false),
        }
        Ok(true)
    }

    fn is_alive(&self, now: Instant) -> bool {
        !matches!(self.state, State::Ended) && self.expires_at().is_none_or(|end| now < end)
    }

    /// A client presents the session id and only wants to look. With `keep` it says for how long the session is to outlive it. None: the
    /// session is over.
    pub fn observe(&mut self, keep: Option<Duration>, now: Instant) -> Option<Observer> {
        if !self.is_alive(now) {
            self.state = State::Ended;
            return None;
        }
        self.keep = keep.or(self.keep);
        self.observers += 1;
        self.keepers += usize::from(keep.is_some());
        Some(Observer { keeps: keep.is_some() })
    }

    /// A connection that observed has ended.
    pub fn observer_left(&mut self, observer: Observer, now: Instant) {
        self.observers -= 1;
        if observer.keeps {
            self.keepers -= 1;
            if let State::Detached { since, .. } = &mut self.state {
                *since = now;
            }
        }
    }

    /// A client presents the session id and wants it whoever is attached. False: the session is over.
    pub fn take_over(&mut self, connection: ConnectionNumber, now: Instant) -> bool {
        if self.is_attached() {
            self.state = State::Attached(connection);
        }
        self.is_attached() || self.resume(connection, now) == Ok(true)
    }

    /// The client says how long the session shall outlive its connection from now on.
    pub fn keep_for(&mut self, keep: Duration) {
        self.keep = Some(keep);
    }

    /// What the client said, if it did.
    pub fn kept_for(&self) -> Option<Duration> {
        self.keep
    }

    fn lifetime(&self) -> Duration {
        self.keep.unwrap_or(self.ttl)
    }

    /// The connection is gone. False if it was no longer the attached one, and so nothing changed.
    pub fn detach(&mut self, connection: ConnectionNumber, now: Instant) -> bool {
        if !self.is_attached_to(connection) {
            return false;
        }
        self.state = State::Detached { lost_at: now, since: now };
        true
    }

    /// Ends the session for good. False if it had ended before.
    pub fn end(&mut self) -> bool {
        !matches!(std::mem::replace(&mut self.state, State::Ended), State::Ended)
    }

    /// Whether requests of this connection are still answered.
    pub fn is_attached_to(&self, connection: ConnectionNumber) -> bool {
        matches!(self.state, State::Attached(current) if current == connection)
    }

    /// Whether the session is over.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended)
    }

    /// Whether a connection is attached.
    pub fn is_attached(&self) -> bool {
        matches!(self.state, State::Attached(_))
    }

    /// Whether the session goes on and no connection is attached to it.
    pub fn is_detached(&self) -> bool {
        matches!(self.state, State::Detached { .. })
    }

    /// When to look again: the session's end if nobody comes back.
    pub fn expires_at(&self) -> Option<Instant> {
        match self.state {
            State::Detached { since, .. } if self.keepers == 0 => Some(since + self.lifetime()),
            State::Detached { .. } | State::Attached(_) | State::Ended => None,
        }
    }

    /// How readily the session makes room for a new one on a server that is full; the least goes first, and so who left first. None: not
    /// at all. A session that somebody is connected to stays, and so does one that does work. One with nothing in it may go at once,
    /// because its client loses nothing, and one with leftovers after the time that every session has.
    pub fn makes_room(&self, contents: Contents, now: Instant) -> Option<(Contents, Instant)> {
        let State::Detached { since, .. } = self.state else { return None };
        let may_go = match contents {
            Contents::Nothing => true,
            Contents::Leftovers => now >= since + self.ttl,
            Contents::Work => false,
        };
        (may_go && self.observers == 0).then_some((contents, since))
    }

    /// When output stops waiting for the client.
    pub fn hold_ends_at(&self) -> Option<Instant> {
        match self.state {
            State::Detached { lost_at, .. } => Some(lost_at + self.hold.min(self.lifetime())),
            State::Attached(_) | State::Ended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(30);
    const HOLD: Duration = Duration::from_secs(25);
    const FIRST: ConnectionNumber = ConnectionNumber(1);
    const SECOND: ConnectionNumber = ConnectionNumber(2);

    #[test]
    fn a_live_attachment_is_not_taken() {
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert_eq!(attachment.resume(SECOND, Instant::now()), Err(StillAttached(FIRST)));
        assert!(attachment.is_attached_to(FIRST));
    }

    #[test]
    fn a_detached_session_waits_for_its_ttl_and_no_longer() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert!(attachment.detach(FIRST, start));
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), (Some(start + HOLD), Some(start + TTL)));
        assert_eq!(attachment.resume(SECOND, start + TTL - Duration::from_nanos(1)), Ok(true));
        assert!(!attachment.detach(FIRST, start + TTL), "the old connection's end comes late");
        assert!(attachment.is_attached_to(SECOND));
        assert!(attachment.detach(SECOND, start + TTL));
        assert_eq!(attachment.resume(FIRST, start + TTL + TTL), Ok(false));
        assert_eq!(attachment.resume(FIRST, start), Ok(false), "an ended session stays ended");
    }

    #[test]
    fn a_client_says_how_long_its_session_is_kept() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert_eq!(attachment.kept_for(), None);
        attachment.keep_for(TTL * 100);
        attachment.detach(FIRST, start);
        assert_eq!(
            (attachment.hold_ends_at(), attachment.expires_at()),
            (Some(start + HOLD), Some(start + TTL * 100))
        );
        assert_eq!(attachment.resume(SECOND, start + TTL * 99), Ok(true));
        let again = start + TTL * 99;
        attachment.detach(SECOND, again);
        assert_eq!(attachment.expires_at(), Some(again + TTL * 100), "a resume alone changes nothing");
        assert_eq!(attachment.resume(FIRST, again), Ok(true));
        attachment.keep_for(Duration::from_secs(1));
        attachment.detach(FIRST, again);
        let end = again + Duration::from_secs(1);
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), (Some(end), Some(end)));
    }

    #[test]
    fn a_session_that_is_not_to_be_kept_ends_when_it_detaches() {
        let now = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        attachment.keep_for(Duration::ZERO);
        assert!(attachment.take_over(SECOND, now), "it never was detached");
        attachment.detach(SECOND, now);
        assert_eq!(attachment.expires_at(), Some(now));
        assert!(!attachment.take_over(FIRST, now));
        assert_eq!(attachment.resume(FIRST, now), Ok(false));
    }

    #[test]
    fn a_takeover_needs_no_leave() {
        let now = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert!(attachment.take_over(SECOND, now));
        assert!(attachment.is_attached_to(SECOND) && !attachment.is_attached_to(FIRST));
        assert!(!attachment.detach(FIRST, now), "the old connection's end comes late");
        attachment.detach(SECOND, now);
        assert!(attachment.take_over(FIRST, now + HOLD), "nobody is attached");
        assert!(attachment.is_attached_to(FIRST));
        attachment.end();
        assert!(!attachment.take_over(SECOND, now));
    }

    #[test]
    fn an_observer_changes_nothing() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        let beside = attachment.observe(None, start).unwrap();
        assert!(attachment.is_attached_to(FIRST));
        attachment.detach(FIRST, start);
        let alone = attachment.observe(None, start + HOLD).unwrap();
        let times = (Some(start + HOLD), Some(start + TTL));
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), times);
        attachment.observer_left(beside, start + HOLD);
        attachment.observer_left(alone, start + HOLD);
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), times);
        assert_eq!(attachment.observe(None, start + TTL), None, "its time is over");
        assert!(attachment.has_ended());
    }

    #[test]
    fn an_observer_that_says_so_makes_the_session_outlive_it() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        attachment.detach(FIRST, start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let keep = Duration::from_secs(100);
        let observer = attachment.observe(Some(keep), at(20)).unwrap();
        assert_eq!(attachment.expires_at(), None, "it may be about to start something");
        attachment.observer_left(observer, at(50));
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), (Some(start + HOLD), Some(at(150))));
    }

    #[test]
    fn nobody_makes_room_who_would_lose_something() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        attachment.keep_for(TTL * 100);
        assert_eq!(attachment.makes_room(Contents::Nothing, start), None, "its client is there");
        attachment.detach(FIRST, start);
        let at = |contents, now| attachment.makes_room(contents, now).map(|(_, since)| since);
        assert_eq!(at(Contents::Nothing, start), Some(start));
        assert_eq!(at(Contents::Leftovers, start + TTL - Duration::from_nanos(1)), None);
        assert_eq!(at(Contents::Leftovers, start + TTL), Some(start));
        assert_eq!(at(Contents::Work, start + TTL * 99), None);
        let observer = attachment.observe(None, start).unwrap();
        assert_eq!(attachment.makes_room(Contents::Nothing, start), None, "somebody looks at it");
        attachment.observer_left(observer, start);
        assert!(
            attachment.makes_room(Contents::Nothing, start) < attachment.makes_room(Contents::Leftovers, start + TTL)
        );
    }

    #[test]
    fn ends_once() {
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert!(attachment.end());
        assert!(!attachment.end());
        assert!(!attachment.is_attached());
    }
}
