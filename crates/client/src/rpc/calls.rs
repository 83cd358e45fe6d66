//! The requests of one connection that wait for their answers, by request id.

use std::collections::HashMap;

use bytes::Bytes;
use protocol::WireError;
use tokio::sync::oneshot;

/// The most ordinary calls of one connection at the same time.
pub(crate) const MAX_CALLS: usize = 1024;
/// The most cleanup calls of one connection at the same time. The client sends them one after the other.
const MAX_CLEANUPS: usize = 1;

/// The JSON text of the result, or the error.
pub(super) type RpcAnswer = Result<Bytes, WireError>;
pub(super) type AnswerReceiver = oneshot::Receiver<RpcAnswer>;

/// The limit that a call counts towards. Cleanup calls have a limit of their own, so that the client can clean up
/// however many other calls wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallSlot {
    Ordinary,
    Cleanup,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallRefused {
    TooMany,
    Ended,
}

#[derive(Default)]
pub(super) struct Calls {
    waiting: HashMap<i64, oneshot::Sender<RpcAnswer>>,
    last_id: i64,
    /// Slots in use. A slot is free again when the caller drops its call. An answer alone frees no slot, so that the number of answers that
    /// wait for slow callers is limited.
    ordinary: usize,
    cleanup: usize,
    has_ended: bool,
}

impl Calls {
    pub(super) fn register(&mut self, slot: CallSlot) -> Result<(i64, AnswerReceiver), CallRefused> {
        if self.has_ended {
            return Err(CallRefused::Ended);
        }
        let (used, limit) = match slot {
            CallSlot::Ordinary => (&mut self.ordinary, MAX_CALLS),
            CallSlot::Cleanup => (&mut self.cleanup, MAX_CLEANUPS),
        };
        if *used >= limit {
            return Err(CallRefused::TooMany);
        }
        *used += 1;
        self.last_id += 1;
        let (sender, reply) = oneshot::channel();
        self.waiting.insert(self.last_id, sender);
        Ok((self.last_id, reply))
    }

    /// The caller has its answer, or has dropped the call.
    pub(super) fn forget(&mut self, id: i64, slot: CallSlot) {
        self.waiting.remove(&id);
        match slot {
            CallSlot::Ordinary => self.ordinary -= 1,
            CallSlot::Cleanup => self.cleanup -= 1,
        }
    }

    /// Gives an answer to its caller. An answer without a caller is ignored, because the caller may have dropped the call.
    pub(super) fn settle(&mut self, id: i64, answer: RpcAnswer) {
        if let Some(caller) = self.waiting.remove(&id) {
            let _caller_is_gone = caller.send(answer);
        }
    }

    /// The connection has ended: no caller gets an answer any more.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_reserved_for_cleanups() {
        let mut calls = Calls::default();
        let replies: Vec<_> = (0..MAX_CALLS).map(|_| calls.register(CallSlot::Ordinary).unwrap()).collect();
        assert_eq!(calls.register(CallSlot::Ordinary).unwrap_err(), CallRefused::TooMany);
        calls.settle(1, Ok(Bytes::from_static(b"{}")));
        assert_eq!(
            calls.register(CallSlot::Ordinary).unwrap_err(),
            CallRefused::TooMany,
            "the caller has not taken the answer"
        );
        let (cleanup, _reply) = calls.register(CallSlot::Cleanup).unwrap();
        assert_eq!(calls.register(CallSlot::Cleanup).unwrap_err(), CallRefused::TooMany);
        calls.forget(cleanup, CallSlot::Cleanup);
        calls.register(CallSlot::Cleanup).unwrap();
        calls.forget(replies[0].0, CallSlot::Ordinary);
        assert!(calls.register(CallSlot::Ordinary).is_ok());
    }

    #[test]
    fn answers_find_their_callers_in_any_order() {
        let mut calls = Calls::default();
        let (first, mut first_reply) = calls.register(CallSlot::Ordinary).unwrap();
        let (second, mut second_reply) = calls.register(CallSlot::Ordinary).unwrap();
        calls.settle(second, Ok(Bytes::from_static(b"2")));
        calls.settle(99, Ok(Bytes::from_static(b"no caller")));
        calls.settle(first, Ok(Bytes::from_static(b"1")));
        assert_eq!(first_reply.try_recv().unwrap().unwrap(), "1");
        assert_eq!(second_reply.try_recv().unwrap().unwrap(), "2");
    }

    #[test]
    fn an_answer_before_the_end_of_the_connection_counts() {
        let mut calls = Calls::default();
        let (first, mut answered) = calls.register(CallSlot::Ordinary).unwrap();
        let (_, mut unanswered) = calls.register(CallSlot::Ordinary).unwrap();
        calls.settle(first, Ok(Bytes::from_static(b"1")));
        calls.end();
        assert!(answered.try_recv().is_ok() && unanswered.try_recv().is_err());
        assert_eq!(calls.register(CallSlot::Ordinary).unwrap_err(), CallRefused::Ended);
    }
}
