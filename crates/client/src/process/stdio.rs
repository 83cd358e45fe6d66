//! The standard streams of a process, as tokio's [`AsyncRead`] and [`AsyncWrite`].

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use protocol::{Stream, WriteStatus};
use recovery::WriteSize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::follow::ProcessEvents;
use super::write;
use crate::client_core::ClientHandle;
use crate::error::ExecServerError;
use crate::records::{ExecProcessEvent, ProcessRecord};

/// The output of a process on one of its streams. Reading slowly makes the process wait, as with a pipe, if the
/// server has the extension `processFlow`.
pub struct ProcessReader {
    events: ProcessEvents,
    is_wanted: fn(Stream) -> bool,
    /// The part of the current chunk that was not read yet.
    chunk: Bytes,
}

impl ProcessReader {
    pub(crate) fn new(events: ProcessEvents, is_wanted: fn(Stream) -> bool) -> Self {
        Self { events, is_wanted, chunk: Bytes::new() }
    }
}

impl AsyncRead for ProcessReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        while self.chunk.is_empty() {
            match ready!(self.events.poll_next(cx)) {
                Some(ExecProcessEvent::Output(output)) if (self.is_wanted)(output.stream) => {
                    self.chunk = output.chunk;
                }
                Some(ExecProcessEvent::Failed(text)) => return Poll::Ready(Err(io::Error::other(text))),
                Some(_) => {}
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = self.chunk.len().min(buffer.remaining());
        buffer.put_slice(&self.chunk[..count]);
        self.chunk.advance(count);
        Poll::Ready(Ok(()))
    }
}

type WriteFuture = Pin<Box<dyn Future<Output = Result<WriteStatus, ExecServerError>> + Send + Sync>>;

/// The stdin of a process. A flush returns when the server has accepted the last write. A shutdown closes the stdin.
pub struct ProcessStdin {
    handle: Arc<ClientHandle>,
    record: Arc<ProcessRecord>,
    /// The current write, or the closing of the stdin.
    writing: Option<WriteFuture>,
    /// Number of bytes that the current write has taken from the caller.
    taken: usize,
    is_shut_down: bool,
}

impl ProcessStdin {
    pub(crate) fn new(handle: &Arc<ClientHandle>, record: &Arc<ProcessRecord>) -> Self {
        let (handle, record) = (Arc::clone(handle), Arc::clone(record));
        Self { handle, record, writing: None, taken: 0, is_shut_down: false }
    }

    /// Waits until the server has accepted the current write, if there is one.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let written = ready!(writing.as_mut().poll(cx));
        self.writing = None;
        Poll::Ready(match written {
            Ok(WriteStatus::Accepted) => Ok(()),
            Ok(WriteStatus::StdinClosed | WriteStatus::UnknownProcess) => Err(io::ErrorKind::BrokenPipe.into()),
            // The server has taken no byte.
            Ok(WriteStatus::Starting) => Err(io::ErrorKind::NotConnected.into()),
            Err(error) => Err(io::Error::other(error)),
        })
    }
}

impl AsyncWrite for ProcessStdin {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // One write is in flight while the caller prepares the next write.
        ready!(self.poll_written(cx))?;
        if self.is_shut_down {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let piece = bytes[..bytes.len().min(WriteSize::MOST_BYTES)].to_vec();
        self.taken = piece.len();
        let (handle, record) = (Arc::clone(&self.handle), Arc::clone(&self.record));
        self.writing = Some(Box::pin(async move { write::write(&handle.core, &record, piece).await }));
        // This first poll sends the request now, and not only when the caller writes again.
        if let Poll::Ready(Err(error)) = self.poll_written(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(self.taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_written(cx))?;
        if self.is_shut_down {
            return Poll::Ready(Ok(()));
        }
        self.is_shut_down = true;
        let (handle, record) = (Arc::clone(&self.handle), Arc::clone(&self.record));
        self.writing = Some(Box::pin(async move {
            write::close_stdin(&handle.core, &record.id).await.map(|()| WriteStatus::Accepted)
        }));
        self.poll_written(cx)
    }
}
