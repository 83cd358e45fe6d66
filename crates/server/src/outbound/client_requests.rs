//! Requests of the server to the client, over one connection. The rules are in [`session::ServerRequests`]; this
//! module has the messages and the timer.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use protocol::{RequestId, encode_request};
use serde::Serialize;
use serde::de::DeserializeOwned;
use session::{AnswerMatch, ServerRequests};
use tokio::sync::oneshot;

use super::Outbound;
use crate::limits::MAX_CLIENT_ANSWER_BYTES;

/// A longer patience counts as this one, so that computing the deadline cannot overflow.
const LONGEST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// The unanswered requests of a connection. A waiter gets the JSON text of the result.
#[derive(Default)]
pub(super) struct ClientRequests(Mutex<ServerRequests<oneshot::Sender<Box<str>>>>);

/// Whether an answer belongs to a request of this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerOrigin {
    /// The request waits for its answer, or did so once.
    Requested,
    /// This server has sent no such request.
    Unrequested,
}

/// Withdraws a request when its caller stops waiting.
struct OpenRequest<'a> {
    requests: &'a ClientRequests,
    id: i64,
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        self.requests.0.lock().withdraw(self.id);
    }
}

impl Outbound {
    /// Sends a request to the client and waits for the result. None if there is none within `patience`: the client
    /// has not answered, has answered with an error or with something else, or has too many unanswered requests; or
    /// the connection has ended. The time also runs while the client does not read. Dropping the future withdraws the
    /// request.
    pub(crate) async fn ask<R: DeserializeOwned>(
        &self,
        method: &str,
        params: &impl Serialize,
        patience: Duration,
    ) -> Option<R> {
        let deadline = Instant::now() + patience.min(LONGEST_PATIENCE);
        let (waiter, answer) = oneshot::channel();
        let id = self.client_requests.0.lock().begin(waiter, deadline).ok()?;
        let _open = OpenRequest { requests: &self.client_requests, id };
        let answered = async {
            self.send_in_room(encode_request(&RequestId::Integer(id), method, params)).await?;
            // The sender is dropped if the client has answered with an error, or if no answer can come.
            answer.await.ok()
        };
        let result = tokio::select! {
            // An answer that came together with the deadline counts.
            biased;
            result = answered => result?,
            () = tokio::time::sleep_until(deadline.into()) => {
                drop(self.client_requests.0.lock().handle_timeout(Instant::now()));
                return None;
            }
        };
        serde_json::from_str(&result).ok()
    }

    /// The client has sent an answer. `result` is its JSON text, and None if it is an error.
    pub(crate) fn take_client_answer(&self, id: &RequestId, result: Option<&str>) -> AnswerOrigin {
        match self.client_requests.0.lock().handle_answer(id) {
            AnswerMatch::Waiting(waiter) => {
                // No result that this server asks for is so long.
                if let Some(result) = result.filter(|result| result.len() <= MAX_CLIENT_ANSWER_BYTES) {
                    let _caller_is_gone = waiter.send(result.into());
                }
                AnswerOrigin::Requested
            }
            AnswerMatch::TooLate => AnswerOrigin::Requested,
            AnswerMatch::NeverRequested => AnswerOrigin::Unrequested,
        }
    }

    /// No answer can come any more, so all requests are given up.
    pub(crate) fn give_up_client_requests(&self) {
        drop(self.client_requests.0.lock().close());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::{Incoming, decode};
    use serde_json::{Value, json};
    use session::ConnectionNumber;
    use tokio::task::JoinHandle;
    use transport::{Framing, ProofOfReceipt};

    use super::super::Outgoing;
    use super::*;

    fn outbound() -> Arc<Outbound> {
        let outbound = Outbound::new(ConnectionNumber(1), Framing::WebSocketServer, ProofOfReceipt::Pong, 1 << 20);
        Arc::new(outbound)
    }

    fn ask(outbound: &Arc<Outbound>, patience: Duration) -> JoinHandle<Option<Value>> {
        let outbound = Arc::clone(outbound);
        tokio::spawn(async move { outbound.ask("method/name", &json!({"a": 1}), patience).await })
    }

    /// The id of the next request that is sent.
    async fn sent_id(outbound: &Outbound) -> RequestId {
        loop {
            outbound.wait_for_work().await;
            let Some(Outgoing::Answer(answer)) = outbound.next() else { continue };
            let Ok(Incoming::Request(request)) = decode(&answer.message) else { panic!("not a request") };
            assert_eq!((request.method.as_ref(), request.params.unwrap().get()), ("method/name", r#"{"a":1}"#));
            return request.id;
        }
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn each_request_gets_its_own_answer() {
        let outbound = outbound();
        let first = ask(&outbound, MINUTE);
        assert_eq!(sent_id(&outbound).await, RequestId::Integer(1));
        let second = ask(&outbound, MINUTE);
        assert_eq!(sent_id(&outbound).await, RequestId::Integer(2));
        for (id, result) in [(2, "\"two\""), (1, "\"one\"")] {
            let origin = outbound.take_client_answer(&RequestId::Integer(id), Some(result));
            assert_eq!(origin, AnswerOrigin::Requested);
        }
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (Some(json!("one")), Some(json!("two"))));
    }

    #[tokio::test(start_paused = true)]
    async fn errors_other_results_and_huge_results_are_no_answer() {
        let outbound = outbound();
        let huge = format!("\"{}\"", "x".repeat(MAX_CLIENT_ANSWER_BYTES));
        for result in [None, Some("not JSON"), Some(huge.as_str())] {
            let asked = ask(&outbound, MINUTE);
            let id = sent_id(&outbound).await;
            assert_eq!(outbound.take_client_answer(&id, result), AnswerOrigin::Requested);
            assert_eq!(asked.await.unwrap(), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_waited_for_as_long_as_the_caller_says() {
        let outbound = outbound();
        let begun = tokio::time::Instant::now();
        let asked = ask(&outbound, MINUTE);
        let id = sent_id(&outbound).await;
        assert_eq!(asked.await.unwrap(), None);
        assert_eq!(begun.elapsed().as_secs(), 60);
        assert_eq!(outbound.take_client_answer(&id, Some("1")), AnswerOrigin::Requested, "it is only late");
        let next = outbound.take_client_answer(&RequestId::Integer(2), Some("1"));
        assert_eq!(next, AnswerOrigin::Unrequested);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_connection_ends_all_requests() {
        let outbound = outbound();
        let asked = ask(&outbound, MINUTE);
        sent_id(&outbound).await;
        outbound.end_now();
        assert_eq!(asked.await.unwrap(), None);
        assert_eq!(ask(&outbound, MINUTE).await.unwrap(), None, "a later request is not even sent");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_before_the_end_of_the_connection_counts() {
        let outbound = outbound();
        let asked = ask(&outbound, MINUTE);
        let id = sent_id(&outbound).await;
        outbound.take_client_answer(&id, Some("\"in time\""));
        outbound.end_now();
        assert_eq!(asked.await.unwrap(), Some(json!("in time")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_costs_time_and_no_memory() {
        let outbound = outbound();
        // Other messages have filled the room of the connection.
        let room = outbound.room_for_reply(usize::MAX).await;
        let asked = ask(&outbound, MINUTE);
        tokio::task::yield_now().await;
        assert!(outbound.next().is_none(), "the request waits for room");
        assert_eq!(asked.await.unwrap(), None);
        drop(room);
        assert!(outbound.next().is_none(), "a request that was given up is not sent");
    }
}
