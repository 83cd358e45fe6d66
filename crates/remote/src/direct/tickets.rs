//! The tickets that an executor has issued and that were not used. Each lets one stream use one direct path, within
//! [`VALID_FOR`]. A value without IO; `S` is a stream.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a ticket can be used after it was issued.
const VALID_FOR: Duration = Duration::from_secs(10);

/// While a ticket of a stream is unused, the stream gets another one only after this time.
const PAUSE: Duration = Duration::from_millis(200);

/// The tickets that were issued and not used.
#[derive(Debug)]
pub(crate) struct DirectTickets<S> {
    by_ticket: HashMap<String, IssuedTicket<S>>,
}

#[derive(Debug)]
struct IssuedTicket<S> {
    stream_id: String,
    stream: S,
    answer: String,
    issued: Instant,
}

impl<S> Default for DirectTickets<S> {
    fn default() -> Self {
        Self { by_ticket: HashMap::new() }
    }
}

impl<S> DirectTickets<S> {
    /// Whether the stream may get a ticket now. If so, its earlier ticket is dropped, so there are never more tickets
    /// than streams.
    pub(crate) fn may_issue(&mut self, stream_id: &str, now: Instant) -> bool {
        self.by_ticket.retain(|_, issued| now.saturating_duration_since(issued.issued) < VALID_FOR);
        let earlier = self.by_ticket.iter().find(|(_, issued)| issued.stream_id == stream_id);
        let Some((ticket, issued)) = earlier else { return true };
        let may = now.saturating_duration_since(issued.issued) >= PAUSE;
        if may {
            let ticket = ticket.clone();
            self.by_ticket.remove(&ticket);
        }
        may
    }

    /// Adds a ticket. `answer` is sent to the program that uses the ticket.
    pub(crate) fn add(&mut self, ticket: String, answer: String, stream_id: &str, stream: S, now: Instant) {
        let issued = IssuedTicket { stream_id: stream_id.to_owned(), stream, answer, issued: now };
        self.by_ticket.insert(ticket, issued);
    }

    /// Removes a ticket. Returns its stream and its answer. `None`: there is no such ticket, or it is too old.
    pub(crate) fn take(&mut self, ticket: &str, now: Instant) -> Option<(S, String)> {
        let issued = self.by_ticket.remove(ticket)?;
        let is_valid = now.saturating_duration_since(issued.issued) < VALID_FOR;
        is_valid.then_some((issued.stream, issued.answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue(tickets: &mut DirectTickets<u8>, ticket: &str, stream: u8, now: Instant) -> bool {
        let stream_id = stream.to_string();
        let may = tickets.may_issue(&stream_id, now);
        if may {
            tickets.add(ticket.to_owned(), format!("answer to {ticket}"), &stream_id, stream, now);
        }
        may
    }

    #[test]
    fn a_ticket_works_once_and_only_for_a_while() {
        let now = Instant::now();
        let mut tickets = DirectTickets::default();
        assert!(issue(&mut tickets, "one", 1, now) && issue(&mut tickets, "two", 2, now));
        assert_eq!(tickets.take("other", now), None);
        assert_eq!(tickets.take("one", now), Some((1, "answer to one".to_owned())));
        assert_eq!(tickets.take("one", now), None);
        assert_eq!(tickets.take("two", now + VALID_FOR), None);
        assert_eq!(tickets.take("two", now), None, "a late use uses it up too");
    }

    #[test]
    fn a_stream_has_one_ticket_and_gets_another_after_a_pause() {
        let mut now = Instant::now();
        let mut tickets = DirectTickets::default();
        assert!(issue(&mut tickets, "one", 1, now));
        assert!(!issue(&mut tickets, "two", 1, now));
        now += PAUSE;
        assert!(issue(&mut tickets, "three", 1, now));
        assert_eq!(tickets.take("one", now), None);
        assert!(issue(&mut tickets, "four", 2, now));
        now += VALID_FOR;
        assert!(tickets.may_issue("5", now));
        assert!(tickets.by_ticket.is_empty(), "old tickets are forgotten");
    }
}
