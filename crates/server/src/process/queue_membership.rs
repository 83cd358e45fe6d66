//! Remembers which send queue a process with unsent events is in, so that no queue contains the process twice. After
//! another connection has resumed the session, only the queue of that connection counts.

use std::sync::atomic::{AtomicU64, Ordering};

use session::ConnectionNumber;

/// Number of the connection whose send queue a process entered last; 0 if the process has left that queue. Because
/// the number identifies the connection, an old connection that ends late cannot keep the process out of the queue of
/// a new connection.
#[derive(Debug, Default)]
pub(super) struct QueueMembership(AtomicU64);

impl QueueMembership {
    /// The process enters the queue of a connection. Returns false if it is in that queue already.
    pub(super) fn enter(&self, connection: ConnectionNumber) -> bool {
        self.0.swap(connection.0, Ordering::AcqRel) != connection.0
    }

    /// The process leaves the queue of a connection. Nothing changes if it has entered the queue of another
    /// connection meanwhile.
    pub(super) fn leave(&self, connection: ConnectionNumber) {
        let _previous_number = self.0.compare_exchange(connection.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: ConnectionNumber = ConnectionNumber(1);
    const NEW: ConnectionNumber = ConnectionNumber(2);

    #[test]
    fn a_process_can_enter_a_queue_again_only_after_it_has_left() {
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
