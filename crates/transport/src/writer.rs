//! The writing half of a message stream. It takes bytes that [`crate::Framing`] has already framed and adds nothing to them.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncWrite, AsyncWriteExt};

/// What a write found out about the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteProgress {
    /// The transport takes no more bytes until the peer has taken some.
    Blocked,
    /// The transport takes bytes again.
    Resumed,
}

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

    /// Like [`Writer::write_all`], and tells `watch` whenever the transport stops and begins again to take bytes.
    pub async fn write_all_watched(
        &mut self,
        mut bytes: &[u8],
        mut watch: impl FnMut(WriteProgress),
    ) -> io::Result<()> {
        let mut is_blocked = false;
        poll_fn(|cx| {
            let step = self.poll_write_all(&mut bytes, cx, &mut || {
                if std::mem::take(&mut is_blocked) {
                    watch(WriteProgress::Resumed);
                }
            });
            if step.is_pending() && !std::mem::replace(&mut is_blocked, true) {
                watch(WriteProgress::Blocked);
            }
            step
        })
        .await
    }

    /// Calls `taken` each time the transport has taken something.
    fn poll_write_all(
        &mut self,
        bytes: &mut &[u8],
        cx: &mut Context<'_>,
        taken: &mut impl FnMut(),
    ) -> Poll<io::Result<()>> {
        while !bytes.is_empty() {
            let count = ready!(Pin::new(&mut self.sink).poll_write(cx, bytes))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *bytes = &bytes[count..];
            taken();
        }
        ready!(Pin::new(&mut self.sink).poll_flush(cx))?;
        taken();
        Poll::Ready(Ok(()))
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

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_reads_now_and_then_is_seen_to_do_so() {
        let (ours, mut theirs) = tokio::io::duplex(4);
        let mut writer = Writer::new(ours);
        let mut seen = Vec::new();
        let writing = writer.write_all_watched(b"0123456789", |progress| seen.push(progress));
        let reading = async {
            let mut piece = [0; 4];
            for _ in 0..2 {
                // The writer gets its turn before the next read.
                tokio::task::yield_now().await;
                theirs.read_exact(&mut piece).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(writing, reading);
        written.unwrap();
        let twice = [WriteProgress::Blocked, WriteProgress::Resumed].repeat(2);
        assert_eq!(seen, twice);
    }

    #[tokio::test]
    async fn a_write_that_never_waits_says_nothing() {
        let (ours, _theirs) = tokio::io::duplex(64);
        let mut writer = Writer::new(ours);
        writer.write_all_watched(b"0123456789", |progress| panic!("{progress:?}")).await.unwrap();
    }
}
