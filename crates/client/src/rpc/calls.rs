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

/// The limit that a call counts towards. A cleanup call kills a process that nobody uses any more, or tells the
/// server to forget the session of a client that closes. Cleanup calls have a limit of their own, so that the client
/// can still make them when it has reached the limit for ordinary calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallSlot {
    Ordinary,
    Cleanup,
}

/// The reason why a call was not registered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CallRefused {
    /// All slots of the requested kind are in use.
    TooMany,
    ConnectionEnded,
}

#[derive(Default)]
pub(super) struct Calls {
    waiting: HashMap<i64, oneshot::Sender<RpcAnswer>>,
    last_id: i64,
    /// Number of slots in use. [`forget`](Self::forget) frees a slot. An answer alone frees no slot, so that the
    /// number of answers that wait for slow callers is limited.
    ordinary_in_use: usize,
    cleanup_in_use: usize,
    /// The connection has ended.
    has_ended: bool,
}

impl Calls {
    /// Takes a slot, and returns a new request id and the receiver of the answer.
    pub(super) fn register(&mut self, slot: CallSlot) -> Result<(i64, AnswerReceiver), CallRefused> {
        if self.has_ended {
            return Err(CallRefused::ConnectionEnded);
        }
        let (used, limit) = match slot {
            CallSlot::Ordinary => (&mut self.ordinary_in_use, MAX_CALLS),
            CallSlot::Cleanup => (&mut self.cleanup_in_use, MAX_CLEANUPS),
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

    /// Frees the slot of a call. Called when the caller drops its `PendingCall`, whether or not the answer has come.
    pub(super) fn forget(&mut self, id: i64, slot: CallSlot) {
        self.waiting.remove(&id);
        match slot {
            CallSlot::Ordinary => self.ordinary_in_use -= 1,
            CallSlot::Cleanup => self.cleanup_in_use -= 1,
        }
    }

    /// Gives an answer to its caller. An answer without a caller is ignored, because the caller may have dropped the
    /// call.
    pub(super) fn settle(&mut self, id: i64, answer: RpcAnswer) {
        if let Some(caller) = self.waiting.remove(&id) {
            let _sent_unless_caller_is_gone = caller.send(answer);
        }
    }

    /// The connection has ended: calls that wait for an answer fail, and new calls are refused.
    pub(super) fn end(&mut self) {
        self.has_ended = true;
        self.waiting.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_and_cleanup_calls_have_separate_limits() {
        let mut calls = Calls::default();
        for _ in 0..MAX_CALLS {
            calls.register(CallSlot::Ordinary).unwrap();
        }
        assert_eq!(calls.register(CallSlot::Ordinary).unwrap_err(), CallRefused::TooMany);
        calls.register(CallSlot::Cleanup).unwrap();
        assert_eq!(calls.register(CallSlot::Cleanup).unwrap_err(), CallRefused::TooMany);
    }

    #[test]
    fn a_forgotten_call_frees_its_slot_but_an_answer_does_not() {
        for (slot, limit) in [(CallSlot::Ordinary, MAX_CALLS), (CallSlot::Cleanup, MAX_CLEANUPS)] {
            let mut calls = Calls::default();
            let ids: Vec<i64> = (0..limit).map(|_| calls.register(slot).unwrap().0).collect();
            calls.settle(ids[0], Ok(Bytes::from_static(b"{}")));
            assert_eq!(calls.register(slot).unwrap_err(), CallRefused::TooMany);
            calls.forget(ids[0], slot);
            assert!(calls.register(slot).is_ok());
        }
    }

    #[test]
    fn answers_find_their_callers_in_any_order_and_an_answer_without_a_caller_is_ignored() {
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
    fn when_the_connection_ends_answered_calls_keep_their_answers_and_all_others_fail() {
        let mut calls = Calls::default();
        let (first, mut answered) = calls.register(CallSlot::Ordinary).unwrap();
        let (_, mut unanswered) = calls.register(CallSlot::Ordinary).unwrap();
        calls.settle(first, Ok(Bytes::from_static(b"1")));
        calls.end();
        assert!(answered.try_recv().is_ok() && unanswered.try_recv().is_err());
        assert_eq!(calls.register(CallSlot::Ordinary).unwrap_err(), CallRefused::ConnectionEnded);
    }
}
