//! `process/write` and `process/closeStdin`: in wire order, each write once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use protocol::{NoResult, TargetParams, WireError, WriteId, WriteParams, WriteResult, WriteStatus};
use session::Offer;

use super::poll_once::poll_once;
use super::{Found, unknown_process};
use crate::connection::{Call, Connection};
use crate::process::Process;
use crate::session::Session;

/// Writes of one connection that may wait for room, in units of what one process may have queued. A client that waits
/// for its answers has one write waiting for each process that does not read.
const WAITING_QUEUES: usize = 4;

pub(super) fn write(call: Call, params: WriteParams, _: &Arc<Session>, found: Found) {
    let limit = call.connection.shared.config.max_id_bytes;
    if let Some(id) = &params.write_id {
        if id.as_str().is_empty() {
            return call.finish::<()>(Err(WireError::invalid_params("writeId must not be empty")));
        }
        if id.as_str().len() > limit {
            let error = format!("writeId exceeds the limit of {limit} bytes (--max-id-bytes)");
            return call.finish::<()>(Err(WireError::invalid_params(error)));
        }
    }
    let Some(process) = found.process() else {
        return call.finish(Ok(WriteResult { status: WriteStatus::UnknownProcess }));
    };
    offer(call, process, params.write_id, params.chunk.0.into(), |call, offer| {
        let status = if offer == Offer::Accepted { WriteStatus::Accepted } else { WriteStatus::StdinClosed };
        call.finish(Ok(WriteResult { status }));
    });
}

/// Offers a write in its turn and answers when it was taken or refused.
pub(super) fn offer(
    call: Call,
    process: Arc<Process>,
    id: Option<WriteId>,
    bytes: Bytes,
    answer: impl FnOnce(Call, Offer) + Send + 'static,
) {
    let mut turn = Box::pin(Arc::clone(&process.stdin_lane).lock_owned());
    let lane = poll_once(turn.as_mut());
    if lane.is_some() {
        match process.offer(id.as_ref(), &bytes) {
            Offer::Full => {}
            taken => return answer(call, taken),
        }
    }
    let connection = Arc::clone(&call.connection);
    let waiting = match Waiting::begin(&connection, bytes.len()) {
        Ok(waiting) => waiting,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    connection.spawn(async move {
        let _waiting = waiting;
        let lane = match lane {
            Some(lane) => lane,
            None => turn.await,
        };
        answer(call, process.offer_when_there_is_room(id, bytes, lane).await);
    });
}

pub(super) fn close(call: Call, params: TargetParams, _: &Arc<Session>, found: Found) {
    let Some(process) = found.process() else {
        return call.finish::<()>(Err(unknown_process(&params.process_id)));
    };
    let mut turn = Box::pin(Arc::clone(&process.stdin_lane).lock_owned());
    if poll_once(turn.as_mut()).is_some() {
        process.end_stdin();
        return call.finish(Ok(NoResult {}));
    }
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let _lane = turn.await;
        process.end_stdin();
        call.finish(Ok(NoResult {}));
    });
}

/// Bytes of a write that waits, as part of what its connection may have waiting.
struct Waiting {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Waiting {
    /// Lets a write wait, whatever its size if it is the only one.
    fn begin(connection: &Arc<Connection>, bytes: usize) -> Result<Self, WireError> {
        let unit = connection.shared.config.max_queued_stdin;
        let limit = unit.saturating_mul(WAITING_QUEUES);
        let before = connection.waiting_stdin.fetch_add(bytes, Ordering::Relaxed);
        let waiting = Self { connection: Arc::clone(connection), bytes };
        if before == 0 || before + bytes <= limit {
            return Ok(waiting);
        }
        Err(WireError::invalid_request(format!(
            "{before} bytes of earlier writes wait for their processes to read them, at most {WAITING_QUEUES} times {unit} may (--max-queued-stdin); wait for their answers"
        )))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.connection.waiting_stdin.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
