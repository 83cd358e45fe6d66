//! Writing to the stdin of a process, each byte once. If a connection is lost, the write goes on over the next
//! connection.

use std::time::Duration;

use protocol::{Base64Bytes, ProcessId, ProcessIdParams, WriteParams, WriteResult, WriteStatus, error_kind, methods};
use recovery::WriteSize;

use crate::client_core::{CallOptions, ClientCore};
use crate::error::ExecServerError;
use crate::records::ProcessRecord;

/// First wait before a write is sent again, if the input queues of the server are full (crowded). Each further wait
/// is twice as long.
const FIRST_CROWDED_WAIT: Duration = Duration::from_millis(10);
/// The longest of these waits. A process that reads again gets input within this time.
const LONGEST_CROWDED_WAIT: Duration = Duration::from_secs(1);

/// Writes each byte once. Input that is too large for a message, or for connections that break early, is sent in
/// pieces; no other call of this function for the same process comes between the pieces. While the input queues of
/// the server are full, the write waits and is sent again. If the future is dropped, the process may have got the
/// first pieces.
pub(crate) async fn write(
    core: &ClientCore,
    record: &ProcessRecord,
    bytes: Vec<u8>,
) -> Result<WriteStatus, ExecServerError> {
    // Whether a piece that a lost connection did not carry can be sent again in smaller pieces. A write of at most
    // `LEAST_BYTES` is always one piece. Then the value does not matter, and the client need not know the capability.
    let can_resend_smaller = bytes.len() <= WriteSize::LEAST_BYTES || core.capabilities().await?.process_write_query;
    let mut rest = bytes.as_slice();
    let _write_lock = record.writing.lock().await;
    let (mut most_if_crowded, mut wait) = (usize::MAX, FIRST_CROWDED_WAIT);
    loop {
        let most = core.write_size.lock().bytes(can_resend_smaller).min(most_if_crowded);
        let (piece, others) = rest.split_at(most.min(rest.len()));
        match write_piece(core, record, piece, can_resend_smaller).await {
            // The server has not got the piece. The next piece is smaller.
            Ok(None) => {}
            Ok(Some(WriteStatus::Accepted)) if !others.is_empty() => (rest, wait) = (others, FIRST_CROWDED_WAIT),
            Ok(Some(status)) => return Ok(status),
            Err(error) if error.is_of_kind(error_kind::INPUT_CROWDED) => {
                most_if_crowded = WriteSize::ALWAYS_ACCEPTED_BYTES;
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(LONGEST_CROWDED_WAIT);
            }
            Err(error) if error.is_of_kind(error_kind::MESSAGE_TOO_LARGE) => {
                if !core.write_size.lock().handle_too_large(piece.len()) {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Writes one piece. Returns `None` if the server has not got it and a smaller piece should be sent.
async fn write_piece(
    core: &ClientCore,
    record: &ProcessRecord,
    piece: &[u8],
    can_resend_smaller: bool,
) -> Result<Option<WriteStatus>, ExecServerError> {
    let (process_id, write_id) = (record.id.clone(), Some(record.next_write_id()));
    let mut params = WriteParams { process_id, chunk: Base64Bytes(piece.to_vec()), write_id };
    if let Some(WriteResult { status, .. }) =
        core.call_until_lost::<methods::ProcessWrite>(&params, CallOptions::WAIT).await?
    {
        core.write_size.lock().note_carried(piece.len());
        return Ok(Some(status));
    }
    core.write_size.lock().note_connection_lost();
    if can_resend_smaller && piece.len() > WriteSize::LEAST_BYTES {
        // An empty write with the same id only asks whether the first write has come. The answer is final, because
        // the server accepts no more requests from the lost connection.
        params.chunk = Base64Bytes(Vec::new());
        let known = core.call::<methods::ProcessWrite>(&params, CallOptions::WAIT).await?;
        return Ok(match known {
            WriteResult { status: WriteStatus::Accepted, repeated: false } => None,
            WriteResult { status, .. } => Some(status),
        });
    }
    // The server recognises a repeated write by its id and takes it only once.
    let result = core.call::<methods::ProcessWrite>(&params, CallOptions::WAIT).await?;
    core.write_size.lock().note_carried(piece.len());
    Ok(Some(result.status))
}

/// Closes the stdin of a process. Closing it a second time changes nothing.
pub(crate) async fn close_stdin(core: &ClientCore, process_id: &ProcessId) -> Result<(), ExecServerError> {
    let params = ProcessIdParams { process_id: process_id.clone() };
    core.call::<methods::ProcessCloseStdin>(&params, CallOptions::WAIT).await.map(drop)
}
