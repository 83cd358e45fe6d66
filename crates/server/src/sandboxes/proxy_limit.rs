//! Counts the sandboxes of a session that belong to one command with a network proxy each.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::limits::MAX_PROXY_SANDBOXES;

/// How long a start waits for room. The sandbox of a command that has just ended is ended in the background, and still counts meanwhile.
const ENDING_PATIENCE: Duration = Duration::from_millis(100);

/// How many sandboxes of commands with a network proxy a session has.
#[derive(Default)]
pub(super) struct ProxySandboxCount {
    count: Mutex<usize>,
    freed: Condvar,
}

impl ProxySandboxCount {
    /// Counts one more sandbox. None if there are [`MAX_PROXY_SANDBOXES`]. Blocks for a moment.
    pub(super) fn take_share(self: &Arc<Self>) -> Option<ProxySandboxShare> {
        let mut count = self.count.lock();
        let is_full = |count: &mut usize| *count >= MAX_PROXY_SANDBOXES;
        if self.freed.wait_while_for(&mut count, is_full, ENDING_PATIENCE).timed_out() && is_full(&mut count) {
            return None;
        }
        *count += 1;
        Some(ProxySandboxShare { all: Arc::clone(self) })
    }
}

/// Counts as one sandbox until it is dropped.
pub(super) struct ProxySandboxShare {
    all: Arc<ProxySandboxCount>,
}

impl Drop for ProxySandboxShare {
    fn drop(&mut self) {
        *self.all.count.lock() -= 1;
        self.all.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_waits_for_a_sandbox_that_is_ending() {
        let count = Arc::<ProxySandboxCount>::default();
        let mut shares: Vec<_> = (0..MAX_PROXY_SANDBOXES).map(|_| count.take_share().unwrap()).collect();
        assert!(count.take_share().is_none());
        let ending = shares.pop();
        let end = std::thread::spawn(move || drop(ending));
        assert!(count.take_share().is_some());
        end.join().unwrap();
    }
}
