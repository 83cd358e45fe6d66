//! `process/write` and `process/closeStdin`. Such requests for one process take effect in the order of their arrival.
//! A write that is repeated with the same write id takes effect once.

use std::sync::Arc;

use bytes::Bytes;
use protocol::{NoResult, ProcessIdParams, RequestOrder, WireError, WriteId, WriteParams, WriteResult, WriteStatus};
use session::OfferResult;

use super::poll_once::poll_once;
use super::waiting::input_crowded;
use super::{NamedProcess, WaitingBytes, unknown_process};
use crate::connection::Call;
use crate::process::Process;
use crate::session::Session;

pub(super) fn write(call: Call, params: WriteParams, _: &Arc<Session>, named: NamedProcess) {
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
    let Some(process) = named.process() else {
        return call.finish(Ok(WriteResult { status: WriteStatus::UnknownProcess, repeated: false }));
    };
    offer(call, process, params.write_id, params.chunk.0.into(), |call, offer| {
        let repeated = offer == OfferResult::Repeated;
        let is_accepted = repeated || offer == OfferResult::Accepted;
        let status = if is_accepted { WriteStatus::Accepted } else { WriteStatus::StdinClosed };
        call.finish(Ok(WriteResult { status, repeated }));
    });
}

/// Offers a write to the stdin queue of the process after all earlier writes. Calls `answer` when the write was
/// accepted, or when stdin is closed. If too many bytes wait already, the call is answered with an error here.
pub(super) fn offer(
    call: Call,
    process: Arc<Process>,
    id: Option<WriteId>,
    bytes: Bytes,
    answer: impl FnOnce(Call, OfferResult) + Send + 'static,
) {
    debug_assert_eq!(
        call.method.order(),
        RequestOrder::Stdin,
        "the method table must give this method the order `Stdin`"
    );
    let answer = move |call: Call, result| match result {
        OfferResult::TotalLimitReached => {
            let error = "input that waits for processes has reached the limit for all processes together (--max-queued-stdin-total); try again later";
            call.finish::<()>(Err(input_crowded(error)));
        }
        result => answer(call, result),
    };
    let mut locking = Box::pin(Arc::clone(&process.stdin_lock).lock_owned());
    let guard = poll_once(locking.as_mut());
    // With the lock, no earlier write waits for room in the queue.
    if guard.is_some() {
        match process.offer(id.as_ref(), &bytes) {
            OfferResult::Full => {}
            decided => return answer(call, decided),
        }
    }
    let connection = Arc::clone(&call.connection);
    let waiting = match WaitingBytes::for_stdin(&connection, bytes.len()) {
        Ok(waiting) => waiting,
        Err(error) => return call.finish::<()>(Err(error)),
    };
    connection.spawn(async move {
        let _waiting = waiting;
        let guard = match guard {
            Some(guard) => guard,
            None => locking.await,
        };
        answer(call, process.offer_when_there_is_room(id, bytes, guard).await);
    });
}

pub(super) fn close(call: Call, params: ProcessIdParams, _: &Arc<Session>, named: NamedProcess) {
    let Some(process) = named.process() else {
        return call.finish::<()>(Err(unknown_process(&params.process_id)));
    };
    let mut locking = Box::pin(Arc::clone(&process.stdin_lock).lock_owned());
    if poll_once(locking.as_mut()).is_some() {
        process.end_stdin();
        return call.finish(Ok(NoResult {}));
    }
    let connection = Arc::clone(&call.connection);
    connection.spawn(async move {
        let _guard = locking.await;
        process.end_stdin();
        call.finish(Ok(NoResult {}));
    });
}
