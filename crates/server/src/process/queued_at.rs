//! Where a process that has something to say stands in line: at one connection, at most once.

use std::sync::atomic::{AtomicU64, Ordering};

use session::ConnectionNumber;

/// The connection in whose line a process stands; 0 is none. It is told apart by number, so that an old connection that
/// ends late cannot keep the process out of the line of the new one.
#[derive(Debug, Default)]
pub(super) struct QueuedAt(AtomicU64);

impl QueuedAt {
    /// Takes a place at a connection. False if it stands there already.
    pub(super) fn enter(&self, connection: ConnectionNumber) -> bool {
        self.0.swap(connection.0, Ordering::AcqRel) != connection.0
    }

    /// Gives the place up, unless it is at another connection by now.
    pub(super) fn leave(&self, connection: ConnectionNumber) {
        let _elsewhere = self.0.compare_exchange(connection.0, 0, Ordering::AcqRel, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: ConnectionNumber = ConnectionNumber(1);
    const NEW: ConnectionNumber = ConnectionNumber(2);

    #[test]
    fn stands_once_until_it_leaves() {
        let place = QueuedAt::default();
        assert!(place.enter(OLD));
        assert!(!place.enter(OLD));
        place.leave(OLD);
        assert!(place.enter(OLD));
    }

    #[test]
    fn an_old_connection_that_never_serves_it_does_not_keep_it_from_the_new_one() {
        let place = QueuedAt::default();
        assert!(place.enter(OLD), "lined up by the old writer, which then ends");
        assert!(place.enter(NEW));
        place.leave(OLD);
        assert!(!place.enter(NEW), "it stands at the new one, whatever the old one does late");
        place.leave(NEW);
        assert!(place.enter(NEW));
    }
}
