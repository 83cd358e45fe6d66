//! Notes in which connection's send queue a process with unsent events stands. A process is in at most one queue, and there only once.

use std::sync::atomic::{AtomicU64, Ordering};

use session::ConnectionNumber;

/// Number of the connection in whose queue a process stands; 0 if it is in no queue. Because the number identifies the connection, an old
/// connection that ends late cannot keep the process out of the queue of a new connection.
#[derive(Debug, Default)]
pub(super) struct QueuedAt(AtomicU64);

impl QueuedAt {
    /// The process enters the queue of a connection. Returns false if it is in that queue already.
    pub(super) fn enter(&self, connection: ConnectionNumber) -> bool {
        self.0.swap(connection.0, Ordering::AcqRel) != connection.0
    }

    /// The process leaves the queue of a connection. Nothing changes if it is in the queue of another connection by now.
    pub(super) fn leave(&self, connection: ConnectionNumber) {
        let _in_another_queue = self.0.compare_exchange(connection.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: ConnectionNumber = ConnectionNumber(1);
    const NEW: ConnectionNumber = ConnectionNumber(2);

    #[test]
    fn a_process_enters_a_queue_once_until_it_leaves() {
        let queued_at = QueuedAt::default();
        assert!(queued_at.enter(OLD));
        assert!(!queued_at.enter(OLD));
        queued_at.leave(OLD);
        assert!(queued_at.enter(OLD));
    }

    #[test]
    fn an_old_connection_does_not_keep_a_process_out_of_the_queue_of_a_new_one() {
        let queued_at = QueuedAt::default();
        assert!(queued_at.enter(OLD), "the process is queued at the old connection, which then ends");
        assert!(queued_at.enter(NEW));
        queued_at.leave(OLD);
        assert!(!queued_at.enter(NEW), "the process is still queued at the new connection");
        queued_at.leave(NEW);
        assert!(queued_at.enter(NEW));
    }
}
