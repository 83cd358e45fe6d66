//! Keeps track of which connections a session has, and decides when a session without connections ends.
//!
//! At most one connection is attached: the server sends it the events of the session. Any number of other connections may observe. An
//! observer does not prolong the session, unless it asks for a lifetime: then the session lives for that long after the observer has
//! left. [`Attachment`] knows no processes and no sockets.

use std::time::{Duration, Instant};

/// Number of a connection, unique for the life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionNumber(pub u64);

/// A resume was refused because this connection is still attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillAttached(pub ConnectionNumber);

/// The attachment of one session.
#[derive(Debug)]
pub struct Attachment {
    phase: AttachmentPhase,
    /// How long the session lives after its connection has ended, if no client asks for another lifetime.
    ttl: Duration,
    /// The lifetime that a client has asked for.
    keep: Option<Duration>,
    /// How long processes wait for a lost client before their oldest output is dropped.
    hold: Duration,
    /// Number of connections that observe.
    observers: usize,
    /// Number of observers that have asked for a lifetime. The session does not end while one of them is connected.
    keepers: usize,
}

#[derive(Clone, Copy, Debug)]
enum AttachmentPhase {
    Attached(ConnectionNumber),
    Detached {
        /// When the attached connection was lost.
        lost_at: Instant,
        /// When the lifetime began to run: when the attached connection ended, or when an observer that had asked for a lifetime left.
        since: Instant,
    },
    Ended,
}

/// Stands for a connection that observes. The caller passes it to [`Attachment::observer_left`] when the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observer {
    /// Whether this observer has asked for a lifetime of the session.
    keeps: bool,
}

/// What a session holds, in the order in which sessions are evicted from a full server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SessionContents {
    /// The session has no processes, files or watches.
    Nothing,
    /// Only closed processes, open files or watches.
    Leftovers,
    /// At least one process that is not closed.
    Work,
}

impl Attachment {
    /// A new session, attached to the connection that asked for it.
    pub fn new(connection: ConnectionNumber, ttl: Duration, hold: Duration) -> Self {
        Self { phase: AttachmentPhase::Attached(connection), ttl, keep: None, hold, observers: 0, keepers: 0 }
    }

    /// A client resumes the session over this connection. `Ok(false)` means that the session has ended.
    pub fn resume(&mut self, connection: ConnectionNumber, now: Instant) -> Result<bool, StillAttached> {
        match self.phase {
            AttachmentPhase::Attached(current) => return Err(StillAttached(current)),
            AttachmentPhase::Detached { .. } if self.is_alive(now) => {
                self.phase = AttachmentPhase::Attached(connection);
            }
            AttachmentPhase::Detached { .. } => {
                self.phase = AttachmentPhase::Ended;
                return Ok(false);
            }
            AttachmentPhase::Ended => return Ok(false),
        }
        Ok(true)
    }

    fn is_alive(&self, now: Instant) -> bool {
        !matches!(self.phase, AttachmentPhase::Ended) && self.expires_at().is_none_or(|end| now < end)
    }

    /// A connection begins to observe. `keep` is the lifetime that it asks for: the session lives for this long after
    /// the connection has ended. `None` means that the session has ended.
    pub fn observe(&mut self, keep: Option<Duration>, now: Instant) -> Option<Observer> {
        if !self.is_alive(now) {
            self.phase = AttachmentPhase::Ended;
            return None;
        }
        self.keep = keep.or(self.keep);
        self.observers += 1;
        self.keepers += usize::from(keep.is_some());
        Some(Observer { keeps: keep.is_some() })
    }

    /// The connection of an observer has ended.
    pub fn observer_left(&mut self, observer: Observer, now: Instant) {
        self.observers -= 1;
        if observer.keeps {
            self.keepers -= 1;
            if let AttachmentPhase::Detached { since, .. } = &mut self.phase {
                *since = now;
            }
        }
    }

    /// A client takes the session over, whether or not another connection is attached. Returns false if the session has ended.
    pub fn take_over(&mut self, connection: ConnectionNumber, now: Instant) -> bool {
        if self.is_attached() {
            self.phase = AttachmentPhase::Attached(connection);
        }
        self.is_attached() || self.resume(connection, now) == Ok(true)
    }

    /// The client asks for a lifetime: the session lives for this long after its connection has ended. Replaces an
    /// earlier request.
    pub fn keep_for(&mut self, keep: Duration) {
        self.keep = Some(keep);
    }

    /// The lifetime that a client has asked for.
    pub fn requested_lifetime(&self) -> Option<Duration> {
        self.keep
    }

    fn lifetime(&self) -> Duration {
        self.keep.unwrap_or(self.ttl)
    }

    /// A connection has ended. Returns false, and changes nothing, if it was not the attached one.
    pub fn detach(&mut self, connection: ConnectionNumber, now: Instant) -> bool {
        if !self.is_attached_to(connection) {
            return false;
        }
        self.phase = AttachmentPhase::Detached { lost_at: now, since: now };
        true
    }

    /// Ends the session for good. Returns false if it had ended before.
    pub fn end(&mut self) -> bool {
        !matches!(std::mem::replace(&mut self.phase, AttachmentPhase::Ended), AttachmentPhase::Ended)
    }

    /// Whether this connection is the attached one.
    pub fn is_attached_to(&self, connection: ConnectionNumber) -> bool {
        matches!(self.phase, AttachmentPhase::Attached(current) if current == connection)
    }

    /// Whether the session has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, AttachmentPhase::Ended)
    }

    /// Whether a connection is attached.
    pub fn is_attached(&self) -> bool {
        matches!(self.phase, AttachmentPhase::Attached(_))
    }

    /// Whether the session has not ended and no connection is attached to it.
    pub fn is_detached(&self) -> bool {
        matches!(self.phase, AttachmentPhase::Detached { .. })
    }

    /// When the session ends if no client resumes it before. `None` while a connection keeps the session alive, and after the session has
    /// ended.
    pub fn expires_at(&self) -> Option<Instant> {
        match self.phase {
            AttachmentPhase::Detached { since, .. } if self.keepers == 0 => Some(since + self.lifetime()),
            AttachmentPhase::Detached { .. } | AttachmentPhase::Attached(_) | AttachmentPhase::Ended => None,
        }
    }

    /// The rank of this session when a full server evicts a session. The session with the lowest rank is evicted first: the contents
    /// decide, and then the time since which the session is detached. `None` if the session must not be evicted: a connection is attached
    /// or observes, or a process runs. An empty session may be evicted at once, because its client loses nothing; a session with leftovers
    /// may be evicted after the default lifetime.
    pub fn eviction_order(&self, contents: SessionContents, now: Instant) -> Option<(SessionContents, Instant)> {
        let AttachmentPhase::Detached { since, .. } = self.phase else { return None };
        let may_be_evicted = match contents {
            SessionContents::Nothing => true,
            SessionContents::Leftovers => now >= since + self.ttl,
            SessionContents::Work => false,
        };
        (may_be_evicted && self.observers == 0).then_some((contents, since))
    }

    /// When processes stop waiting for the lost client. `None` while a connection is attached, and after the session has ended.
    pub fn hold_ends_at(&self) -> Option<Instant> {
        match self.phase {
            AttachmentPhase::Detached { lost_at, .. } => Some(lost_at + self.hold.min(self.lifetime())),
            AttachmentPhase::Attached(_) | AttachmentPhase::Ended => None,
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
    fn a_resume_does_not_displace_an_attached_connection() {
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert_eq!(attachment.resume(SECOND, Instant::now()), Err(StillAttached(FIRST)));
        assert!(attachment.is_attached_to(FIRST));
    }

    #[test]
    fn a_detached_session_ends_after_its_ttl() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert!(attachment.detach(FIRST, start));
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), (Some(start + HOLD), Some(start + TTL)));
        assert_eq!(attachment.resume(SECOND, start + TTL - Duration::from_nanos(1)), Ok(true));
        assert!(!attachment.detach(FIRST, start + TTL), "the end of the old connection is reported late");
        assert!(attachment.is_attached_to(SECOND));
        assert!(attachment.detach(SECOND, start + TTL));
        assert_eq!(attachment.resume(FIRST, start + TTL + TTL), Ok(false));
        assert_eq!(attachment.resume(FIRST, start), Ok(false), "an ended session stays ended");
    }

    #[test]
    fn a_client_chooses_the_lifetime_of_its_session() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert_eq!(attachment.requested_lifetime(), None);
        attachment.keep_for(TTL * 100);
        attachment.detach(FIRST, start);
        assert_eq!(
            (attachment.hold_ends_at(), attachment.expires_at()),
            (Some(start + HOLD), Some(start + TTL * 100))
        );
        assert_eq!(attachment.resume(SECOND, start + TTL * 99), Ok(true));
        let again = start + TTL * 99;
        attachment.detach(SECOND, again);
        assert_eq!(attachment.expires_at(), Some(again + TTL * 100), "a resume does not change the lifetime");
        assert_eq!(attachment.resume(FIRST, again), Ok(true));
        attachment.keep_for(Duration::from_secs(1));
        attachment.detach(FIRST, again);
        let end = again + Duration::from_secs(1);
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), (Some(end), Some(end)));
    }

    #[test]
    fn a_session_with_a_lifetime_of_zero_ends_when_it_detaches() {
        let now = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        attachment.keep_for(Duration::ZERO);
        assert!(attachment.take_over(SECOND, now), "the session was not detached in between");
        attachment.detach(SECOND, now);
        assert_eq!(attachment.expires_at(), Some(now));
        assert!(!attachment.take_over(FIRST, now));
        assert_eq!(attachment.resume(FIRST, now), Ok(false));
    }

    #[test]
    fn a_takeover_displaces_an_attached_connection() {
        let now = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert!(attachment.take_over(SECOND, now));
        assert!(attachment.is_attached_to(SECOND) && !attachment.is_attached_to(FIRST));
        assert!(!attachment.detach(FIRST, now), "the end of the old connection is reported late");
        attachment.detach(SECOND, now);
        assert!(attachment.take_over(FIRST, now + HOLD), "no connection is attached");
        assert!(attachment.is_attached_to(FIRST));
        attachment.end();
        assert!(!attachment.take_over(SECOND, now));
    }

    #[test]
    fn an_observer_does_not_prolong_the_session() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        let early_observer = attachment.observe(None, start).unwrap();
        assert!(attachment.is_attached_to(FIRST));
        attachment.detach(FIRST, start);
        let late_observer = attachment.observe(None, start + HOLD).unwrap();
        let times = (Some(start + HOLD), Some(start + TTL));
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), times);
        attachment.observer_left(early_observer, start + HOLD);
        attachment.observer_left(late_observer, start + HOLD);
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), times);
        assert_eq!(attachment.observe(None, start + TTL), None, "the lifetime is over");
        assert!(attachment.has_ended());
    }

    #[test]
    fn an_observer_that_asks_for_a_lifetime_prolongs_the_session() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        attachment.detach(FIRST, start);
        let at = |seconds| start + Duration::from_secs(seconds);
        let keep = Duration::from_secs(100);
        let observer = attachment.observe(Some(keep), at(20)).unwrap();
        assert_eq!(attachment.expires_at(), None, "the observer may be about to start a process");
        attachment.observer_left(observer, at(50));
        assert_eq!((attachment.hold_ends_at(), attachment.expires_at()), (Some(start + HOLD), Some(at(150))));
    }

    #[test]
    fn only_a_session_without_connections_and_work_is_evicted_and_leftovers_only_after_the_ttl() {
        let start = Instant::now();
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        attachment.keep_for(TTL * 100);
        assert_eq!(attachment.eviction_order(SessionContents::Nothing, start), None, "its client is connected");
        attachment.detach(FIRST, start);
        let evictable_since = |contents, now| attachment.eviction_order(contents, now).map(|(_, since)| since);
        assert_eq!(evictable_since(SessionContents::Nothing, start), Some(start));
        assert_eq!(evictable_since(SessionContents::Leftovers, start + TTL - Duration::from_nanos(1)), None);
        assert_eq!(evictable_since(SessionContents::Leftovers, start + TTL), Some(start));
        assert_eq!(evictable_since(SessionContents::Work, start + TTL * 99), None);
        let observer = attachment.observe(None, start).unwrap();
        assert_eq!(attachment.eviction_order(SessionContents::Nothing, start), None, "an observer is connected");
        attachment.observer_left(observer, start);
        assert!(
            attachment.eviction_order(SessionContents::Nothing, start)
                < attachment.eviction_order(SessionContents::Leftovers, start + TTL)
        );
    }

    #[test]
    fn a_session_ends_once() {
        let mut attachment = Attachment::new(FIRST, TTL, HOLD);
        assert!(attachment.end());
        assert!(!attachment.end());
        assert!(!attachment.is_attached());
    }
}
