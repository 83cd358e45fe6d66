//! Ends work on files when the request that asked for it is dropped.

use files::Cancel;

/// Held by the task of a request. Its flag is given to the threads that work for the request.
pub(crate) struct CancelOnDrop(Cancel);

impl CancelOnDrop {
    pub(crate) fn new() -> Self {
        Self(Cancel::new())
    }

    pub(crate) fn flag(&self) -> Cancel {
        self.0.clone()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
