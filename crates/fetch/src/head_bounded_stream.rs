//! A byte stream that fails when an HTTP/1.1 server sends too many bytes before the headers of its response are
//! complete. hyper limits the headers of one message, but skips any number of informational responses (status 1xx)
//! before it, in a loop that keeps a thread busy for as long as they arrive. Start with [`HeadBoundedStream`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connect::ByteStream;
use crate::http1::MAX_HEAD_BYTES;

/// Limit for the bytes that are read before the headers of a response are complete. It is larger than the limit for
/// the headers, because hyper may read the beginning of the body before [`HeadAllowance::lift`] is called.
const MAX_BYTES_BEFORE_BODY: usize = MAX_HEAD_BYTES + (16 << 10);

/// How many more bytes may be read before the headers of the response are complete. `usize::MAX`: any number, because
/// the client does not wait for headers.
pub(crate) struct HeadAllowance(AtomicUsize);

impl HeadAllowance {
    /// Any number of bytes may be read.
    pub(crate) fn unlimited() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    /// Begins to count, because a request is sent.
    pub(crate) fn begin(&self) {
        self.0.store(MAX_BYTES_BEFORE_BODY, Ordering::Relaxed);
    }

    /// Ends the count, because the headers of the response have come.
    pub(crate) fn lift(&self) {
        self.0.store(usize::MAX, Ordering::Relaxed);
    }
}

/// The byte stream of an HTTP/1.1 connection. Fails when the allowance is used up.
pub(crate) struct HeadBoundedStream {
    stream: Box<dyn ByteStream>,
    allowance: Arc<HeadAllowance>,
}

impl HeadBoundedStream {
    pub(crate) fn new(stream: Box<dyn ByteStream>, allowance: Arc<HeadAllowance>) -> Self {
        Self { stream, allowance }
    }
}

impl AsyncRead for HeadBoundedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let allowed = self.allowance.0.load(Ordering::Relaxed);
        if allowed == usize::MAX {
            return Pin::new(&mut self.stream).poll_read(cx, buffer);
        }
        if allowed == 0 {
            let text =
                format!("{MAX_BYTES_BEFORE_BODY} bytes came, and the headers of the answer are still not complete");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        let room = allowed.min(buffer.remaining());
        let mut part = ReadBuf::new(buffer.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        buffer.advance(count);
        self.allowance.0.store(allowed - count, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HeadBoundedStream {
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
