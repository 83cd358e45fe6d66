//! The writing half of a message stream. It takes bytes that [`crate::Framing`] has already framed and adds nothing to them.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;

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

    /// As [`write_all`](Self::write_all). `drained` is called each time the transport was full and took bytes again: then the peer, or
    /// the network before it, has taken some.
    pub async fn write_all_observed(&mut self, bytes: &[u8], mut drained: impl FnMut()) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let mut was_full = false;
            let taken = poll_fn(|cx| {
                let polled = Pin::new(&mut self.sink).poll_write(cx, rest);
                was_full |= polled.is_pending();
                polled
            });
            let count = taken.await?;
            if count == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            if was_full {
                drained();
            }
            rest = &rest[count..];
        }
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
