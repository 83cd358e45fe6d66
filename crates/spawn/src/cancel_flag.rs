//! A flag that cancels the start of a process. Once the new child has executed the program, the flag has no effect.
//! Any thread may set the flag, and the child reads it; see [`CancelFlag`] for the order that makes this reliable.

use std::sync::atomic::{AtomicBool, Ordering, fence};

/// Cancels the start of a process. Any thread may set the flag at any time.
///
/// The first thing a child does is to set its tag, a number by which the child and its descendants are found (see
/// `tag`). The last thing before it executes the program is to read this flag. So a thread can set the flag and then
/// kill all processes with that tag, and the program does not run afterwards: if the child read the flag before it
/// was set, the child has its tag, and the kill finds it.
#[derive(Debug, Default)]
pub struct CancelFlag(AtomicBool);

impl CancelFlag {
    /// Sets the flag. It cannot be unset.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::SeqCst);
        // The flag must be visible before the caller starts to search for the tag.
        fence(Ordering::SeqCst);
    }

    /// Whether the flag is set. Makes no system call and takes no lock, so that a child that shares the memory of the server may call it.
    pub fn is_cancelled(&self) -> bool {
        // The child must have set its tag before it reads the flag.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst)
    }
}
