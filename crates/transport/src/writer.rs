//! The writing half of a message stream. It takes bytes that [`crate::Framing`] has already framed and adds nothing to them.

use std::fmt;
use std::io;

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// Writes framed bytes.
pub struct Writer {
    sink: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Writer {
    pub(crate) fn new(sink: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { sink: Box::new(sink) }
    }

    /// Hands all of `bytes` to the transport, in one system call where it takes them at once. Not cancel safe: a dropped call
    /// may have written a part.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes).await?;
        // TLS and stdout keep bytes of their own; for sockets this does nothing.
        self.sink.flush().await
    }

    /// Tells the peer that nothing more will come. A peer that is gone already is no failure.
    pub async fn shutdown(&mut self) {
        if let Err(error) = self.sink.shutdown().await {
            tracing::trace!(%error, "shutting down a connection that was gone");
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}
