//! Cancelling a long operation from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::FileError;

/// A flag that a running operation checks between steps. Clones share the flag, and it is never cleared.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag. The operation returns at its next check, with an error or with its results so far.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`cancel`](Self::cancel) was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails with an error of kind `ErrorKind::Interrupted` once the flag is set.
    pub fn check(&self) -> Result<(), FileError> {
        if self.is_cancelled() { Err(FileError::cancelled()) } else { Ok(()) }
    }
}

/// Sets its flag when it is dropped. The caller of an operation holds this value, and gives the flag to the thread
/// that does the work. So the work ends when the caller goes away.
#[derive(Debug, Default)]
pub struct CancelOnDrop(Cancel);

impl CancelOnDrop {
    /// Holds a new flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The flag for the thread that does the work.
    pub fn flag(&self) -> Cancel {
        self.0.clone()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
