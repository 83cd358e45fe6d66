//! The streams of a process as those of tokio.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use protocol::{Stream, WriteStatus};
use recovery::WriteSize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::entry::Entry;
use super::event::ExecProcessEvent;
use super::follow::ProcessEvents;
use crate::client::Handle;
use crate::error::ExecServerError;

/// What a process writes to one of its streams. Reading slowly makes the process wait, as a pipe does.
pub struct ProcessReader {
    events: ProcessEvents,
    is_wanted: fn(Stream) -> bool,
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

type Writing = Pin<Box<dyn Future<Output = Result<WriteStatus, ExecServerError>> + Send + Sync>>;

/// The stdin of a process. A write is done when the server has taken it; shutting down ends the stdin.
pub struct ProcessStdin {
    handle: Arc<Handle>,
    entry: Arc<Entry>,
    writing: Option<Writing>,
    /// What a write that was begun will have taken.
    taken: usize,
    is_shut_down: bool,
}

impl ProcessStdin {
    pub(crate) fn new(handle: &Arc<Handle>, entry: &Arc<Entry>) -> Self {
        let (handle, entry) = (Arc::clone(handle), Arc::clone(entry));
        Self { handle, entry, writing: None, taken: 0, is_shut_down: false }
    }

    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(writing) = &mut self.writing else { return Poll::Ready(Ok(())) };
        let written = ready!(writing.as_mut().poll(cx));
        self.writing = None;
        Poll::Ready(match written {
            Ok(WriteStatus::Accepted | WriteStatus::Starting) => Ok(()),
            Ok(WriteStatus::StdinClosed | WriteStatus::UnknownProcess) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(error) => Err(io::Error::other(error)),
        })
    }
}

impl AsyncWrite for ProcessStdin {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        // One write is on its way while the caller prepares the next.
        ready!(self.poll_written(cx))?;
        if self.is_shut_down {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let piece = bytes[..bytes.len().min(WriteSize::MOST_BYTES)].to_vec();
        self.taken = piece.len();
        let (handle, entry) = (Arc::clone(&self.handle), Arc::clone(&self.entry));
        self.writing = Some(Box::pin(async move { super::start::write(&handle.shared, &entry, piece).await }));
        // It is begun now, not at the next call.
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
        let (handle, entry) = (Arc::clone(&self.handle), Arc::clone(&self.entry));
        self.writing = Some(Box::pin(async move {
            super::start::close_stdin(&handle.shared, &entry.id).await.map(|()| WriteStatus::Accepted)
        }));
        self.poll_written(cx)
    }
}
