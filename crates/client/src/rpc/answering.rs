//! Requests of the server that this client is answering, by their ids. A value without tasks: `reading` asks it whether
//! a request may be answered.

use std::collections::HashSet;

use protocol::RequestId;

/// Limit for the requests of the server that are answered at the same time.
const MAX_ANSWERING: usize = 256;

/// The ids of the requests that are being answered.
#[derive(Debug, Default)]
pub(super) struct Answering(HashSet<i64>);

/// What to do with a request of the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerAdmission {
    /// Answer the request, and then call [`Answering::finish`].
    Admitted(i64),
    /// Refuse the request at once, because too many are being answered.
    Full(i64),
    /// The server has broken the protocol. The text becomes the reason for which the connection ends.
    Broken(&'static str),
}

impl Answering {
    /// The server has sent a request with this id.
    pub(super) fn begin(&mut self, id: &RequestId) -> AnswerAdmission {
        let RequestId::Integer(id @ 0..) = *id else {
            return AnswerAdmission::Broken("exec-server sent an invalid request ID");
        };
        if self.0.contains(&id) {
            return AnswerAdmission::Broken("exec-server reused an in-flight request ID");
        }
        if self.0.len() >= MAX_ANSWERING {
            return AnswerAdmission::Full(id);
        }
        self.0.insert(id);
        AnswerAdmission::Admitted(id)
    }

    /// The request was answered.
    pub(super) fn finish(&mut self, id: i64) {
        self.0.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_must_be_integers_that_are_not_negative_and_not_in_use() {
        let mut answering = Answering::default();
        for strange in [RequestId::Integer(-1), RequestId::Integer(i64::MIN), RequestId::Text("1".into())] {
            let broken = AnswerAdmission::Broken("exec-server sent an invalid request ID");
            assert_eq!(answering.begin(&strange), broken, "{strange}");
        }
        let id = RequestId::Integer(0);
        assert_eq!(answering.begin(&id), AnswerAdmission::Admitted(0));
        assert_eq!(answering.begin(&id), AnswerAdmission::Broken("exec-server reused an in-flight request ID"));
        answering.finish(0);
        assert_eq!(answering.begin(&id), AnswerAdmission::Admitted(0), "an id is free after its answer");
    }

    #[test]
    fn too_many_requests_are_refused() {
        let mut answering = Answering::default();
        for id in 0..256 {
            assert_eq!(answering.begin(&RequestId::Integer(id)), AnswerAdmission::Admitted(id));
        }
        assert_eq!(answering.begin(&RequestId::Integer(256)), AnswerAdmission::Full(256));
        answering.finish(7);
        assert_eq!(answering.begin(&RequestId::Integer(256)), AnswerAdmission::Admitted(256));
    }
}
