//! Limits the bytes of requests that wait, for example until a process reads its stdin. All waiting requests of a
//! connection are counted in one number. The limit for this number depends on what the new request waits for.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::{ErrorData, WireError, error_kind};

use crate::connection::Connection;
use crate::limits::WAITING_STDIN_FACTOR;

/// The error for a write to stdin that was not accepted because too many bytes wait. The client may send it again.
pub(super) fn input_crowded(message: impl Into<String>) -> WireError {
    WireError::invalid_request(message).with_data(ErrorData::of_kind(error_kind::INPUT_CROWDED))
}

/// Counts the bytes of one waiting request until this value is dropped.
pub(crate) struct WaitingBytes {
    connection: Arc<Connection>,
    bytes: usize,
}

impl WaitingBytes {
    /// Counts a write that waits until its process reads its stdin. Refused if too many bytes wait already.
    pub(super) fn for_stdin(connection: &Arc<Connection>, bytes: usize) -> Result<Self, WireError> {
        let queue_bytes = connection.shared.config.max_queued_stdin;
        let limit = queue_bytes.saturating_mul(WAITING_STDIN_FACTOR);
        Self::begin(connection, bytes, limit).map_err(|before| {
            input_crowded(format!(
                "{before} bytes of earlier writes wait for their processes to read them, at most {WAITING_STDIN_FACTOR} times {queue_bytes} bytes may wait (--max-queued-stdin); wait for their answers"
            ))
        })
    }

    /// Counts a request that waits until its process is started. Refused if too many bytes wait already.
    pub(super) fn for_start(connection: &Arc<Connection>, bytes: usize) -> Result<Self, WireError> {
        let limit = connection.shared.config.max_message_bytes;
        Self::begin(connection, bytes, limit).map_err(|before| {
            WireError::invalid_request(format!(
                "{before} bytes of earlier requests wait for their processes, at most {limit} bytes may wait (--max-message-bytes); wait for their answers"
            ))
        })
    }

    /// Counts a write to a file that waits for the disk. Refused if too many bytes wait already.
    pub(super) fn for_disk(connection: &Arc<Connection>, bytes: usize) -> Result<Self, WireError> {
        let limit = connection.shared.config.max_message_bytes;
        Self::begin(connection, bytes, limit).map_err(|before| {
            WireError::invalid_request(format!(
                "{before} bytes of earlier requests wait for the disk, at most {limit} bytes may wait (--max-message-bytes); wait for their answers"
            ))
        })
    }

    /// Counts the bytes of a request that begins to wait. If no other request waits, this request may have any size.
    /// Fails with the number of bytes that wait already.
    fn begin(connection: &Arc<Connection>, bytes: usize, limit: usize) -> Result<Self, usize> {
        let before = connection.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting = Self { connection: Arc::clone(connection), bytes };
        if before == 0 || before + bytes <= limit { Ok(waiting) } else { Err(before) }
    }
}

impl Drop for WaitingBytes {
    fn drop(&mut self) {
        self.connection.waiting_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
