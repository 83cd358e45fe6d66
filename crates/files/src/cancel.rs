//! How a long operation learns that nobody wants its result any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::FileError;

/// A flag that the operation looks at between steps. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A flag that nobody has raised.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks the operation to end.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it was asked to.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once it was asked to, for `?` between steps.
    pub fn check(&self) -> Result<(), FileError> {
        if self.is_cancelled() { Err(FileError::cancelled()) } else { Ok(()) }
    }
}
