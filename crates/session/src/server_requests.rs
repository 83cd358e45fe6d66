//! The requests of the server that wait for an answer of the client, on one connection. Each has a deadline. An answer
//! to a request that is no longer waited for is ignored; an answer to a request that was never made breaks the
//! protocol. This value knows neither messages nor timers: the caller passes the time in.

use std::collections::BTreeMap;
use std::time::Instant;

use protocol::RequestId;

/// Limit for the unanswered requests of the server on one connection.
pub const MAX_SERVER_REQUESTS: usize = 256;

/// The unanswered requests of one connection. `W` is what the caller needs to pass an answer on.
#[derive(Debug)]
pub struct ServerRequests<W> {
    /// The id of the newest request. Ids are 1, 2, 3 and so on.
    last_id: i64,
    waiting: BTreeMap<i64, WaitingRequest<W>>,
    is_closed: bool,
}

#[derive(Debug)]
struct WaitingRequest<W> {
    waiter: W,
    deadline: Instant,
}

/// What an answer of the client belongs to.
#[derive(Debug, PartialEq, Eq)]
pub enum AnswerMatch<W> {
    /// A request that waits for it.
    Waiting(W),
    /// A request that was given up, or that was answered before. The answer is ignored.
    TooLate,
    /// No request. The client has broken the protocol.
    NeverRequested,
}

/// Why no further request can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestRefused {
    /// Too many requests are unanswered.
    TooMany,
    /// The connection has ended, so no answer can come.
    Closed,
}

impl<W> Default for ServerRequests<W> {
    fn default() -> Self {
        Self { last_id: 0, waiting: BTreeMap::new(), is_closed: false }
    }
}

impl<W> ServerRequests<W> {
    /// Notes a request, and returns its id.
    pub fn begin(&mut self, waiter: W, deadline: Instant) -> Result<i64, RequestRefused> {
        if self.is_closed {
            return Err(RequestRefused::Closed);
        }
        if self.waiting.len() >= MAX_SERVER_REQUESTS {
            return Err(RequestRefused::TooMany);
        }
        self.last_id += 1;
        self.waiting.insert(self.last_id, WaitingRequest { waiter, deadline });
        Ok(self.last_id)
    }

    /// The client has sent an answer with this id.
    pub fn handle_answer(&mut self, id: &RequestId) -> AnswerMatch<W> {
        let RequestId::Integer(id) = id else { return AnswerMatch::NeverRequested };
        match self.waiting.remove(id) {
            Some(request) => AnswerMatch::Waiting(request.waiter),
            None if (1..=self.last_id).contains(id) => AnswerMatch::TooLate,
            None => AnswerMatch::NeverRequested,
        }
    }

    /// Gives up a request. Its answer is ignored when it comes.
    pub fn withdraw(&mut self, id: i64) {
        self.waiting.remove(&id);
    }

    /// The time of the next [`Self::handle_timeout`]. None: no request waits.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.values().map(|request| request.deadline).min()
    }

    /// Gives up the requests whose deadline has come, and returns their waiters.
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<W> {
        let expired = self.waiting.extract_if(.., |_, request| request.deadline <= now);
        expired.map(|(_, request)| request.waiter).collect()
    }

    /// No answer can come any more. Returns the waiters, oldest request first, and refuses further requests. Answers
    /// that are handled later are too late.
    pub fn close(&mut self) -> Vec<W> {
        self.is_closed = true;
        std::mem::take(&mut self.waiting).into_values().map(|request| request.waiter).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn id(number: i64) -> RequestId {
        RequestId::Integer(number)
    }

    #[test]
    fn answers_find_their_requests_in_any_order() {
        let mut requests = ServerRequests::default();
        let later = Instant::now() + SECOND;
        for (waiter, expected) in [("a", 1), ("b", 2), ("c", 3)] {
            assert_eq!(requests.begin(waiter, later), Ok(expected));
        }
        for (number, waiter) in [(3, "c"), (1, "a"), (2, "b")] {
            assert_eq!(requests.handle_answer(&id(number)), AnswerMatch::Waiting(waiter));
        }
        assert_eq!(requests.poll_timeout(), None);
    }

    #[test]
    fn an_answer_to_a_request_that_was_never_made_breaks_the_protocol() {
        let mut requests = ServerRequests::default();
        requests.begin((), Instant::now()).unwrap();
        for strange in [id(0), id(-1), id(2), id(i64::MAX), id(i64::MIN), RequestId::Text("1".into())] {
            assert_eq!(requests.handle_answer(&strange), AnswerMatch::NeverRequested, "{strange}");
        }
        assert_eq!(requests.handle_answer(&id(1)), AnswerMatch::Waiting(()));
        assert_eq!(requests.handle_answer(&id(1)), AnswerMatch::TooLate, "a second answer changes nothing");
    }

    #[test]
    fn a_request_is_given_up_at_its_deadline_and_a_late_answer_is_ignored() {
        let mut requests = ServerRequests::default();
        let start = Instant::now();
        requests.begin("slow", start + SECOND * 9).unwrap();
        requests.begin("fast", start + SECOND * 3).unwrap();
        assert_eq!(requests.poll_timeout(), Some(start + SECOND * 3));
        assert_eq!(requests.handle_timeout(start + SECOND * 3 - Duration::from_nanos(1)), [""; 0]);
        assert_eq!(requests.handle_timeout(start + SECOND * 3), ["fast"]);
        assert_eq!(requests.handle_answer(&id(2)), AnswerMatch::TooLate);
        assert_eq!(requests.poll_timeout(), Some(start + SECOND * 9));
        assert_eq!(requests.handle_timeout(start + SECOND * 100), ["slow"]);
        assert_eq!(requests.begin("next", start), Ok(3), "ids are not used twice");
    }

    #[test]
    fn the_number_of_unanswered_requests_is_limited() {
        let mut requests = ServerRequests::default();
        let later = Instant::now() + SECOND;
        for _ in 0..256 {
            requests.begin((), later).unwrap();
        }
        assert_eq!(requests.begin((), later), Err(RequestRefused::TooMany));
        requests.withdraw(7);
        assert_eq!(requests.begin((), later), Ok(257), "a withdrawn request makes room");
        assert_eq!(requests.handle_answer(&id(7)), AnswerMatch::TooLate);
        assert_eq!(requests.begin((), later), Err(RequestRefused::TooMany));
    }

    #[test]
    fn closing_returns_every_waiter_and_refuses_further_requests() {
        let mut requests = ServerRequests::default();
        let later = Instant::now() + SECOND;
        for waiter in ["a", "b", "c"] {
            requests.begin(waiter, later).unwrap();
        }
        assert_eq!(requests.handle_answer(&id(2)), AnswerMatch::Waiting("b"), "an answer before the end counts");
        assert_eq!(requests.close(), ["a", "c"]);
        assert_eq!(requests.begin("d", later), Err(RequestRefused::Closed));
        assert_eq!(requests.handle_answer(&id(1)), AnswerMatch::TooLate);
        assert_eq!(requests.handle_answer(&id(4)), AnswerMatch::NeverRequested);
        assert_eq!((requests.close(), requests.poll_timeout()), (Vec::new(), None));
    }
}
