//! The stream of an HTTP connection to a target. It bounds what hyper reads: the bytes before the headers of the
//! response are complete, because hyper skips any number of informational responses (status 1xx) in a loop that keeps
//! a thread busy; and the bytes of one read, because the buffers of hyper grow with them. Start with
//! [`bound_reads`].

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, Join, ReadBuf, join};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::limits::{HTTP_READ_BYTES, MAX_RESPONSE_HEAD_BYTES};

/// Limit for the bytes that are read before the headers of the response are complete. It is larger than the limit for
/// the headers, because hyper may read the beginning of the body before [`ResponseHeadCount::end`] is called.
const MAX_BYTES_BEFORE_BODY: usize = MAX_RESPONSE_HEAD_BYTES + HTTP_READ_BYTES;

/// A stream that reads no more than a [`ResponseHeadCount`] allows.
pub(crate) type TargetStream = Join<BoundedReadHalf, OwnedWriteHalf>;

/// How many more bytes may be read before the headers of the response are complete. `usize::MAX` once they are.
pub(crate) struct ResponseHeadCount(Arc<AtomicUsize>);

/// Reads from a target, at most [`HTTP_READ_BYTES`] at once.
pub(crate) struct BoundedReadHalf {
    socket: OwnedReadHalf,
    allowed: Arc<AtomicUsize>,
}

/// Makes a stream for hyper, on which one request is sent, and the count of the bytes before the body of its response.
pub(crate) fn bound_reads(target: TcpStream) -> (TargetStream, ResponseHeadCount) {
    let (socket, writing) = target.into_split();
    let allowed = Arc::new(AtomicUsize::new(MAX_BYTES_BEFORE_BODY));
    (join(BoundedReadHalf { socket, allowed: Arc::clone(&allowed) }, writing), ResponseHeadCount(allowed))
}

impl ResponseHeadCount {
    /// Ends the count, because the headers of the response have come. Any number of bytes may follow.
    pub(crate) fn end(self) {
        self.0.store(usize::MAX, Ordering::Relaxed);
    }
}

impl AsyncRead for BoundedReadHalf {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let allowed = self.allowed.load(Ordering::Relaxed);
        if allowed == 0 {
            let text = format!("{MAX_BYTES_BEFORE_BODY} bytes came, and the headers are still not complete");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        let room = buf.remaining().min(HTTP_READ_BYTES).min(allowed);
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        buf.advance(count);
        if allowed != usize::MAX {
            self.allowed.store(allowed - count, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}
