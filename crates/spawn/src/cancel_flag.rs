//! A start that somebody gives up while it waits for its turn or hangs.

use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Says that a start is not wanted any more. Any thread may set it at any time.
///
/// A child looks at it last before it executes its program, and first sets its tag. So a thread that sets the flag and then kills the tree
/// with that tag knows that the program does not run any more: a child that has not seen the flag is found by its tag.
#[derive(Debug, Default)]
pub struct CancelFlag(AtomicBool);

impl CancelFlag {
    /// Sets the flag, for good.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
        // Before the look for the tag that follows.
        fence(Ordering::SeqCst);
    }

    /// Whether the flag is set. Makes no system call and takes no lock, so that a child that shares our memory may ask.
    pub fn is_cancelled(&self) -> bool {
        // After the tag was set.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst)
    }
}
