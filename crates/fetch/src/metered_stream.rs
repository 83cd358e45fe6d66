//! A byte stream that fails when an HTTP/2 server sends too many frames that belong to no response: pings, settings,
//! headers of streams that are closed. An HTTP/2 connection must read such frames even while no caller takes a body.
//! The windows of HTTP/2 do not limit these frames, and h2 does not count them. Start with [`MeteredStream`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connect::ByteStream;

/// Limit for the bytes that arrive on a connection while no request gets a part of its response. It is twice the sum
/// of the windows of all streams, because data that no caller takes is counted too.
pub const MAX_UNASKED_BYTES: usize = 64 << 20;

/// Counts the bytes that arrive on a connection while no request gets a part of its response.
#[derive(Default)]
pub(crate) struct ProgressMeter(AtomicUsize);

impl ProgressMeter {
    /// Sets the count to 0, because a request got headers or data.
    pub(crate) fn note_progress(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Adds to the count. Fails if it is then over [`MAX_UNASKED_BYTES`].
    fn count(&self, bytes: usize) -> io::Result<()> {
        if self.0.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > MAX_UNASKED_BYTES {
            let text = format!("{MAX_UNASKED_BYTES} bytes came that are part of no response");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(())
    }
}

/// The byte stream of an HTTP/2 connection. Counts the bytes that are read from it, and fails when they are too many.
pub(crate) struct MeteredStream {
    stream: Box<dyn ByteStream>,
    meter: Arc<ProgressMeter>,
}

impl MeteredStream {
    pub(crate) fn new(stream: Box<dyn ByteStream>, meter: Arc<ProgressMeter>) -> Self {
        Self { stream, meter }
    }
}

impl AsyncRead for MeteredStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        Poll::Ready(self.meter.count(buffer.filled().len() - before))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
