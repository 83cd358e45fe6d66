//! How many requests may be on their way at once. A connection that breaks takes all of them along. Where connections carry little, many
//! requests at once would never leave room for the answer to one of them, and every connection would carry the same requests again.

/// The window of the requests of one kind, over the connections of one client.
#[derive(Debug, Default)]
pub struct CallWindow {
    /// None: as many as are wanted.
    limit: Option<usize>,
    /// Answers since the limit was set.
    answers: usize,
}

impl CallWindow {
    /// With so many at once, nobody has to wait for another one any more.
    const ENOUGH: usize = 512;
    /// The window doubles when it was answered so many times over without a loss. Fewer would let it grow, and break, in the middle of
    /// what a connection of 5,000 bytes can carry.
    const ROUNDS: usize = 4;

    /// How many requests may be on their way.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or(usize::MAX)
    }

    /// A request was answered.
    pub fn handle_answer(&mut self) {
        let Some(limit) = self.limit else { return };
        self.answers += 1;
        if self.answers >= limit * Self::ROUNDS {
            self.answers = 0;
            self.limit = Some(limit * 2).filter(|limit| *limit < Self::ENOUGH);
        }
    }

    /// A connection was lost before a request was answered.
    pub fn handle_lost(&mut self) {
        *self = Self { limit: Some(1), answers: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_goes_at_once_until_something_is_lost() {
        let mut window = CallWindow::default();
        window.handle_answer();
        assert_eq!(window.limit(), usize::MAX);
        window.handle_lost();
        assert_eq!(window.limit(), 1);
    }

    #[test]
    fn a_connection_that_holds_opens_it_again() {
        let mut window = CallWindow::default();
        window.handle_lost();
        let mut answers = 0;
        while window.limit() != usize::MAX {
            window.handle_answer();
            answers += 1;
        }
        assert_eq!(answers, CallWindow::ROUNDS * (CallWindow::ENOUGH - 1));
    }

    /// A link that cuts every connection after the same number of requests answers all of them in the end.
    #[test]
    fn every_connection_brings_the_work_further() {
        for capacity in [2_usize, 3, 5, 40] {
            let (mut window, mut left, mut connections) = (CallWindow::default(), 2_000_usize, 0);
            while left > 0 {
                let mut room = capacity;
                connections += 1;
                loop {
                    // Requests and answers count alike, and the requests come first.
                    let sent = window.limit().min(left);
                    let Some(rest) = room.checked_sub(sent) else { break window.handle_lost() };
                    let answered = rest.min(sent);
                    (room, left) = (rest - answered, left - answered);
                    (0..answered).for_each(|_| window.handle_answer());
                    if answered < sent {
                        break window.handle_lost();
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
