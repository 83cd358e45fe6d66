//! The writing half of a message stream. It sends bytes that the caller has framed with [`crate::Framing`], and adds nothing to them.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// A change during a write or its flush: the writer has to wait for the transport, or can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteProgress {
    /// The transport accepts no more bytes, or its flush has to wait. Usually the peer has to read first.
    Blocked,
    /// The transport has accepted bytes or finished its flush, after it was blocked.
    Resumed,
}

/// Sends framed bytes to the peer.
pub struct Writer {
    sink: Box<dyn AsyncWrite + Send + Unpin>,
}

impl Writer {
    pub(crate) fn new(sink: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        Self { sink: Box::new(sink) }
    }

    /// Writes all of `bytes` and flushes. On a socket or pipe without TLS this is one system call if the kernel
    /// accepts all bytes at once. Not cancel safe: a dropped future may have written a part of the bytes.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.sink.write_all(bytes).await?;
        // TLS and tokio's stdout have buffers of their own. For sockets and pipes this does nothing.
        self.sink.flush().await
    }

    /// Like [`Writer::write_all`], and calls `watch` each time the write has to wait for the transport or goes on.
    pub async fn write_all_watched(
        &mut self,
        mut bytes: &[u8],
        mut watch: impl FnMut(WriteProgress),
    ) -> io::Result<()> {
        let mut is_blocked = false;
        poll_fn(|cx| {
            let written = self.poll_write_all(&mut bytes, cx, &mut || {
                if std::mem::take(&mut is_blocked) {
                    watch(WriteProgress::Resumed);
                }
            });
            if written.is_pending() && !std::mem::replace(&mut is_blocked, true) {
                watch(WriteProgress::Blocked);
            }
            written
        })
        .await
    }

    /// Writes the rest of `bytes` and flushes. Calls `accepted` each time the transport has accepted bytes, and after
    /// the flush.
    fn poll_write_all(
        &mut self,
        bytes: &mut &[u8],
        cx: &mut Context<'_>,
        accepted: &mut impl FnMut(),
    ) -> Poll<io::Result<()>> {
        while !bytes.is_empty() {
            let count = ready!(Pin::new(&mut self.sink).poll_write(cx, bytes))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *bytes = &bytes[count..];
            accepted();
        }
        ready!(Pin::new(&mut self.sink).poll_flush(cx))?;
        accepted();
        Poll::Ready(Ok(()))
    }

    /// Closes the writing direction, so that the peer sees the end of the byte stream. Errors are only logged,
    /// because most likely the peer has closed the connection already.
    pub async fn shutdown(&mut self) {
        if let Err(error) = self.sink.shutdown().await {
            tracing::trace!(%error, "cannot shut down a connection, most likely because the peer has closed it");
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn each_stop_and_resume_of_a_write_to_a_slow_peer_is_reported() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut writer = Writer::new(ours);
        let mut seen = Vec::new();
        let writing = writer.write_all_watched(b"0123456789", |progress| seen.push(progress));
        let reading = async {
            let mut piece = [0; 4];
            for _ in 0..2 {
                // Lets the writer run before the next read.
                tokio::task::yield_now().await;
                theirs.read_exact(&mut piece).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(writing, reading);
        written.unwrap();
        let expected = [WriteProgress::Blocked, WriteProgress::Resumed].repeat(2);
        assert_eq!(seen, expected);
    }

    #[tokio::test]
    async fn a_write_that_does_not_wait_reports_nothing() {
        let (ours, _theirs) = tokio::io::duplex(64);
        let mut writer = Writer::new(ours);
        writer.write_all_watched(b"0123456789", |progress| panic!("{progress:?}")).await.unwrap();
    }
}
