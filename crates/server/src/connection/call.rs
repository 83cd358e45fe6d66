//! A call: a request from its arrival to its answer. Every call is answered exactly once, unless its connection ends before.

use std::sync::Arc;
use std::time::Instant;

use protocol::{ErrorData, Method, RequestId, WireError, encode_error, encode_response, error_kind};
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::Connection;
use crate::metrics::RequestOutcome;
use crate::outbound::{CoveredEvents, ReplyRoom};

/// An unanswered request. If a call is dropped without an answer, the client gets an error: another connection has resumed the session, or
/// the handler has panicked. If the connection has ended, the call is only counted as disconnected.
pub(crate) struct Call {
    pub(crate) connection: Arc<Connection>,
    id: RequestId,
    pub(crate) method: Method,
    started: Instant,
    /// `disconnected` until the call is answered.
    outcome: RequestOutcome,
    /// One of the permits of `--max-requests`. None when the answer is about to be queued.
    permit: Option<OwnedSemaphorePermit>,
    /// Dropped after the answer was queued, so that the connection can wait for its last answers.
    _unanswered: TaskTrackerToken,
}

impl Call {
    /// Begins a call. If the connection has too many unanswered requests, the request is refused and None returned.
    pub(crate) fn begin(connection: &Arc<Connection>, id: RequestId, method: Method) -> Option<Self> {
        match Arc::clone(&connection.requests).try_acquire_owned() {
            Ok(permit) => Some(Self {
                connection: Arc::clone(connection),
                id,
                method,
                started: Instant::now(),
                outcome: RequestOutcome::disconnected,
                permit: Some(permit),
                _unanswered: connection.calls.token(),
            }),
            Err(_) => {
                let limit = connection.shared.config.max_requests;
                let error = WireError::invalid_request(format!(
                    "connection has reached its limit of {limit} unanswered requests (--max-requests)"
                ));
                connection.outbound.reply(encode_error(&id, &error));
                None
            }
        }
    }

    /// Queues the answer: a result or an error.
    pub(crate) fn finish<R: Serialize>(self, result: Result<R, WireError>) {
        self.finish_covering(result, None, None);
    }

    /// The id that the client gave the request.
    pub(crate) fn id(&self) -> &RequestId {
        &self.id
    }

    /// Bytes of the id in the answer. An id can be much shorter than `--max-id-bytes`, and longer as JSON than it is itself.
    pub(crate) fn encoded_id_bytes(&self) -> usize {
        serde_json::to_vec(&self.id).map_or(0, |json| json.len())
    }

    /// Queues an answer that is already encoded. `room` is held until the answer has been sent.
    pub(crate) fn finish_encoded(self, message: Vec<u8>, room: Option<ReplyRoom>) {
        self.send(message, RequestOutcome::success, None, room);
    }

    /// Queues an answer: a result or an error. `room`, the memory permits of the answer, is held until the answer has
    /// been sent.
    pub(crate) fn finish_in_room<R: Serialize>(self, result: Result<R, WireError>, room: Option<ReplyRoom>) {
        self.finish_covering(result, None, room);
    }

    /// Queues an answer. `covers` are the events in the answer, which need not be sent as notifications. `room`, the memory permits of the
    /// answer, is held until the answer has been sent. Returns false if the answer was too large and an error is sent instead.
    pub(crate) fn finish_covering<R: Serialize>(
        self,
        result: Result<R, WireError>,
        covers: Option<CoveredEvents>,
        room: Option<ReplyRoom>,
    ) -> bool {
        let (message, outcome) = self.encode(&result);
        drop(result);
        self.send(message, outcome, covers, room)
    }

    /// Queues the answers to several requests of one connection together, so that they are sent in one write.
    pub(crate) fn finish_together<R: Serialize>(
        connection: &Connection,
        answered: Vec<(Self, Result<R, WireError>)>,
    ) {
        // The calls are dropped after their answers were queued, see `_unanswered`.
        let (_calls, messages): (Vec<Self>, Vec<Vec<u8>>) = answered
            .into_iter()
            .map(|(mut call, result)| {
                let (message, outcome) = call.encode(&result);
                let message = call.conclude(message, outcome).unwrap_or_else(|refusal| refusal);
                (call, message)
            })
            .unzip();
        connection.outbound.reply_together(messages);
    }

    fn encode<R: Serialize>(&self, result: &Result<R, WireError>) -> (Vec<u8>, RequestOutcome) {
        match result {
            Ok(result) => (encode_response(&self.id, result), RequestOutcome::success),
            Err(error) => (encode_error(&self.id, error), RequestOutcome::error),
        }
    }

    fn send(
        mut self,
        message: Vec<u8>,
        outcome: RequestOutcome,
        covers: Option<CoveredEvents>,
        room: Option<ReplyRoom>,
    ) -> bool {
        let (message, covers, is_queued) = match self.conclude(message, outcome) {
            Ok(message) => (message, covers, true),
            Err(refusal) => (refusal, None, false),
        };
        self.connection.outbound.reply_covering(message, covers, room);
        is_queued
    }

    /// Sets the outcome and frees the permit of the call. The permit is freed before the answer is sent, so that a
    /// client that has received the answer can send another request. If the answer is too large for a message, an
    /// error is returned as `Err` to be sent instead.
    fn conclude(&mut self, message: Vec<u8>, outcome: RequestOutcome) -> Result<Vec<u8>, Vec<u8>> {
        self.permit = None;
        let limit = self.connection.shared.config.max_message_bytes;
        if message.len() <= limit {
            self.outcome = outcome;
            return Ok(message);
        }
        self.outcome = RequestOutcome::error;
        let error = WireError::invalid_request(format!(
            "the answer has {} bytes and exceeds the limit of {limit} bytes (--max-message-bytes)",
            message.len()
        ));
        Err(encode_error(&self.id, &error))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.outcome == RequestOutcome::disconnected {
            let reason = if self.connection.outbound.is_displaced() {
                Some(resumed_elsewhere())
            } else if !self.connection.has_ended() {
                Some(WireError::internal("the server has failed to carry out this request; its log says why"))
            } else {
                None
            };
            if let Some(reason) = reason {
                self.outcome = RequestOutcome::error;
                self.connection.outbound.reply(encode_error(&self.id, &reason));
            }
        }
        self.connection.shared.metrics.request_finished(self.method.name(), self.outcome, self.started.elapsed());
    }
}

/// The error for requests of a connection whose session another connection has resumed.
pub(crate) fn resumed_elsewhere() -> WireError {
    WireError::invalid_request("session has been resumed by another connection")
        .with_data(ErrorData::of_kind(error_kind::SESSION_RESUMED_ELSEWHERE))
}
