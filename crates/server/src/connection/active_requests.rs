//! Requests under way that later messages of the same connection can cancel or pause, and requests that are answered together.

use std::path::PathBuf;
use std::sync::Arc;

use files::FileRoot;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Call;
use crate::port_stream::ForwardedStream;
use crate::session::Session;

/// Cancels a search.
#[derive(Clone, Default)]
pub(crate) struct SearchCancel {
    /// Stops the threads that search.
    pub(crate) running: files::Cancel,
    /// Stops the task that waits until the search may begin.
    pub(crate) waiting: CancellationToken,
}

impl SearchCancel {
    pub(crate) fn cancel(&self) {
        self.running.cancel();
        self.waiting.cancel();
    }
}

/// An HTTP request that `http/cancel` can cancel, and whose answer `http/flow` can pause.
#[derive(Clone)]
pub(crate) struct ActiveHttpRequest {
    pub(crate) cancel: CancellationToken,
    /// Whether the client has paused the body of the answer.
    pub(crate) paused: Arc<watch::Sender<bool>>,
    /// Whether the body of the answer is sent in pieces, as notifications.
    pub(crate) is_streamed: bool,
}

/// A TCP stream whose id is in use.
pub(crate) enum PortEntry {
    /// The stream is being connected, or is open in at least one direction.
    Open(Arc<ForwardedStream>),
    /// This server has closed the stream, and the client has not confirmed that yet.
    Closing,
}

/// A request for the metadata of a file. Requests that arrive directly one after the other are answered together.
pub(crate) struct FileMetadataRequest {
    pub(crate) call: Call,
    /// The root in which `path` is resolved.
    pub(crate) root: FileRoot,
    pub(crate) path: PathBuf,
    pub(crate) session: Arc<Session>,
}
