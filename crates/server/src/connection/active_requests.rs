//! Requests under way to which later messages of the same connection refer, and requests that are answered together.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Call;
use crate::session::Session;

/// Ends a search.
#[derive(Clone, Default)]
pub(crate) struct SearchCancel {
    /// For the threads that search.
    pub(crate) running: files::Cancel,
    /// For the task that waits until the search may begin.
    pub(crate) waiting: CancellationToken,
}

impl SearchCancel {
    pub(crate) fn cancel(&self) {
        self.running.cancel();
        self.waiting.cancel();
    }
}

/// An HTTP request that `http/cancel` can end and `http/flow` can pause.
#[derive(Clone)]
pub(crate) struct ActiveHttpRequest {
    pub(crate) cancel: CancellationToken,
    pub(crate) paused: Arc<watch::Sender<bool>>,
    pub(crate) is_streamed: bool,
}

/// A request for the metadata of a file. It is answered together with the others that arrived in the same turn.
pub(crate) struct MetadataRequest {
    pub(crate) call: Call,
    pub(crate) path: PathBuf,
    pub(crate) session: Arc<Session>,
}
