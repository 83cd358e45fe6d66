//! Bytes of requests that wait: what one connection may make the server keep for it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use protocol::{ErrorData, WireError, error_kind};

use crate::connection::Connection;
use crate::limits::WAITING_QUEUES;

/// Refuses a write of which nothing was taken and that may be sent again.
pub(super) fn input_crowded(message: impl Into<String>) -> WireError {
    WireError::invalid_request(message).with_data(ErrorData::of_kind(error_kind::INPUT_CROWDED))
}

/// A request that waits, as part of what its connection may have waiting.
pub(crate) struct Waiting {
    connection: Arc<Connection>,
    bytes: usize,
}

impl Waiting {
    /// Lets a write wait for its process to read.
    pub(super) fn for_room(connection: &Arc<Connection>, bytes: usize) -> Result<Self, WireError> {
        let unit = connection.shared.config.max_queued_stdin;
        Self::begin(connection, bytes, unit.saturating_mul(WAITING_QUEUES)).map_err(|before| {
            input_crowded(format!(
                "{before} bytes of earlier writes wait for their processes to read them, at most {WAITING_QUEUES} times {unit} may (--max-queued-stdin); wait for their answers"
            ))
        })
    }

    /// Lets a request wait for its process to start.
    pub(super) fn for_start(connection: &Arc<Connection>, bytes: usize) -> Result<Self, WireError> {
        let limit = connection.shared.config.max_message_bytes;
        Self::begin(connection, bytes, limit).map_err(|before| {
            WireError::invalid_request(format!(
                "{before} bytes of earlier requests wait for their processes, at most {limit} may (--max-message-bytes); wait for their answers"
            ))
        })
    }

    /// Lets a write wait for the disk.
    pub(super) fn for_disk(connection: &Arc<Connection>, bytes: usize) -> Result<Self, WireError> {
        let limit = connection.shared.config.max_message_bytes;
        Self::begin(connection, bytes, limit).map_err(|before| {
            WireError::invalid_request(format!(
                "{before} bytes of earlier requests wait for the disk, at most {limit} may (--max-message-bytes); wait for their answers"
            ))
        })
    }

    /// One that is alone may have any size. Fails with how much waits already.
    fn begin(connection: &Arc<Connection>, bytes: usize, limit: usize) -> Result<Self, usize> {
        let before = connection.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        let waiting = Self { connection: Arc::clone(connection), bytes };
        if before == 0 || before + bytes <= limit { Ok(waiting) } else { Err(before) }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.connection.waiting_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
