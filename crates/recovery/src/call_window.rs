//! Limits how many requests a client may have in flight at once. A broken connection loses every request in flight.
//! Suppose that each connection breaks after a few kilobytes. Then many requests at once would use up these kilobytes
//! before an answer comes, and every connection would carry the same requests again.

/// Limits how many requests of one kind are in flight, over all connections of one client. The client has one
/// `CallWindow`, for requests about files.
#[derive(Debug, Default)]
pub struct CallWindow {
    /// `None` if there is no limit.
    limit: Option<usize>,
    /// Answers that came since the limit was set.
    answers: usize,
}

impl CallWindow {
    /// A limit that would reach this number is removed: the connections last long enough for any number of requests.
    const UNLIMITED_FROM: usize = 512;
    /// The limit doubles after `limit * ROUNDS` answers without a lost connection. With fewer answers, the limit would grow too early for
    /// connections that break after 5,000 bytes.
    const ROUNDS: usize = 4;

    /// How many requests may be in flight; `usize::MAX` if there is no limit.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(usize::MAX)
    }

    /// A request was answered.
    pub fn handle_answer(&mut self) {
        let Some(limit) = self.limit else { return };
        self.answers += 1;
        if self.answers >= limit * Self::ROUNDS {
            self.answers = 0;
            self.limit = Some(limit * 2).filter(|limit| *limit < Self::UNLIMITED_FROM);
        }
    }

    /// A connection was lost before a request was answered. Requests go one at a time from now on.
    pub fn note_connection_lost(&mut self) {
        *self = Self { limit: Some(1), answers: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_limit_until_a_connection_is_lost() {
        let mut window = CallWindow::default();
        window.handle_answer();
        assert_eq!(window.limit(), usize::MAX);
        window.note_connection_lost();
        assert_eq!(window.limit(), 1);
    }

    #[test]
    fn answers_without_a_loss_remove_the_limit_again() {
        let mut window = CallWindow::default();
        window.note_connection_lost();
        let mut answers = 0;
        while window.limit() != usize::MAX {
            window.handle_answer();
            answers += 1;
        }
        assert_eq!(answers, CallWindow::ROUNDS * (CallWindow::UNLIMITED_FROM - 1));
    }

    /// Every connection breaks after the same number of messages.
    #[test]
    fn all_requests_are_answered_over_many_short_connections() {
        for capacity in [2_usize, 3, 5, 40] {
            let (mut window, mut left, mut connections) = (CallWindow::default(), 2_000_usize, 0);
            while left > 0 {
                let mut room = capacity;
                connections += 1;
                loop {
                    // Each request and each answer is one message. All requests are sent before the first answer comes.
                    let sent = window.limit().min(left);
                    let Some(rest) = room.checked_sub(sent) else { break window.note_connection_lost() };
                    let answered = rest.min(sent);
                    (room, left) = (rest - answered, left - answered);
                    (0..answered).for_each(|_| window.handle_answer());
                    if answered < sent {
                        break window.note_connection_lost();
                    }
                    if left == 0 {
                        break;
                    }
                }
                assert!(connections < 4_000, "{capacity} messages per connection, {left} requests left");
            }
        }
    }
}
