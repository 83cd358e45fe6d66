//! Remembers which connection has a process with unsent events in its send queue. A process is in at most one queue,
//! and there only once.

use std::sync::atomic::{AtomicU64, Ordering};

use session::ConnectionNumber;

/// Number of the connection in whose send queue a process is; 0 if the process is in no queue. Because the number
/// identifies the connection, an old connection that ends late cannot keep the process out of the queue of a new
/// connection.
#[derive(Debug, Default)]
pub(super) struct QueueMembership(AtomicU64);

impl QueueMembership {
    /// The process enters the queue of a connection. Returns false if it is in that queue already.
    pub(super) fn enter(&self, connection: ConnectionNumber) -> bool {
        self.0.swap(connection.0, Ordering::AcqRel) != connection.0
    }

    /// The process leaves the queue of a connection. Nothing changes if it is in the queue of another connection by
    /// now.
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
        let membership = QueueMembership::default();
        assert!(membership.enter(OLD));
        assert!(!membership.enter(OLD));
        membership.leave(OLD);
        assert!(membership.enter(OLD));
    }

    #[test]
    fn an_old_connection_does_not_keep_a_process_out_of_the_queue_of_a_new_one() {
        let membership = QueueMembership::default();
        assert!(membership.enter(OLD), "the process is queued at the old connection, which then ends");
        assert!(membership.enter(NEW));
        membership.leave(OLD);
        assert!(!membership.enter(NEW), "the process is still queued at the new connection");
        membership.leave(NEW);
        assert!(membership.enter(NEW));
    }
}
