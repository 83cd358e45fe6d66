//! Requests that wait for their answers.

use std::collections::HashMap;

use bytes::Bytes;
use protocol::WireError;
use tokio::sync::oneshot;

/// Ordinary calls at once.
pub(crate) const MAX_CALLS: usize = 1024;

/// An answer: the result's JSON, or the error.
pub(super) type Answer = Result<Bytes, WireError>;
pub(super) type Reply = oneshot::Receiver<Answer>;

/// Which of the places a call takes. One is kept for what must be cleaned up, however many other calls wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Ordinary,
    Cleanup,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    TooMany,
    Ended,
}

#[derive(Default)]
pub(super) struct Calls {
    waiting: HashMap<i64, oneshot::Sender<Answer>>,
    last_id: i64,
    /// Places are counted until the caller is done, so a peer that answers what it was not asked frees none.
    ordinary: usize,
    cleanup: usize,
    has_ended: bool,
}

impl Calls {
    pub(super) fn register(&mut self, slot: Slot) -> Result<(i64, Reply), Refused> {
        if self.has_ended {
            return Err(Refused::Ended);
        }
        let (used, most) = match slot {
            Slot::Ordinary => (&mut self.ordinary, MAX_CALLS),
            Slot::Cleanup => (&mut self.cleanup, MAX_CLEANUPS),
        };
        if *used >= most {
            return Err(Refused::TooMany);
        }
        *used += 1;
        self.last_id += 1;
        let (sender, reply) = oneshot::channel();
        self.waiting.insert(self.last_id, sender);
        Ok((self.last_id, reply))
    }

    /// The caller has its answer, or no longer wants it.
    pub(super) fn forget(&mut self, id: i64, slot: Slot) {
        self.waiting.remove(&id);
        match slot {
            Slot::Ordinary => self.ordinary -= 1,
            Slot::Cleanup => self.cleanup -= 1,
        }
    }

    /// An answer came. One that nobody waits for is ignored: the caller may have given up.
    pub(super) fn settle(&mut self, id: i64, answer: Answer) {
        if let Some(caller) = self.waiting.remove(&id) {
            let _gave_up_meanwhile = caller.send(answer);
        }
    }

    /// No answer will come any more.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        self.waiting.clear();
    }
}

/// Cleanups at once; the client sends them one after the other.
const MAX_CLEANUPS: usize = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_kept_for_cleaning_up() {
        let mut calls = Calls::default();
        let replies: Vec<_> = (0..MAX_CALLS).map(|_| calls.register(Slot::Ordinary).unwrap()).collect();
        assert_eq!(calls.register(Slot::Ordinary).unwrap_err(), Refused::TooMany);
        calls.settle(1, Ok(Bytes::from_static(b"{}")));
        assert_eq!(calls.register(Slot::Ordinary).unwrap_err(), Refused::TooMany, "answered, not yet taken");
        let (cleanup, _reply) = calls.register(Slot::Cleanup).unwrap();
        assert_eq!(calls.register(Slot::Cleanup).unwrap_err(), Refused::TooMany);
        calls.forget(cleanup, Slot::Cleanup);
        calls.register(Slot::Cleanup).unwrap();
        calls.forget(replies[0].0, Slot::Ordinary);
        assert!(calls.register(Slot::Ordinary).is_ok());
    }

    #[test]
    fn answers_find_their_callers_in_any_order() {
        let mut calls = Calls::default();
        let (first, mut first_reply) = calls.register(Slot::Ordinary).unwrap();
        let (second, mut second_reply) = calls.register(Slot::Ordinary).unwrap();
        calls.settle(second, Ok(Bytes::from_static(b"2")));
        calls.settle(99, Ok(Bytes::from_static(b"nobody's")));
        calls.settle(first, Ok(Bytes::from_static(b"1")));
        assert_eq!(first_reply.try_recv().unwrap().unwrap(), "1");
        assert_eq!(second_reply.try_recv().unwrap().unwrap(), "2");
    }

    #[test]
    fn an_answer_before_the_end_counts() {
        let mut calls = Calls::default();
        let (first, mut answered) = calls.register(Slot::Ordinary).unwrap();
        let (_, mut unanswered) = calls.register(Slot::Ordinary).unwrap();
        calls.settle(first, Ok(Bytes::from_static(b"1")));
        calls.end();
        assert!(answered.try_recv().is_ok() && unanswered.try_recv().is_err());
        assert_eq!(calls.register(Slot::Ordinary).unwrap_err(), Refused::Ended);
    }
}
