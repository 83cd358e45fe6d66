//! A stream through a relay as a stream of messages, which server and client use like a WebSocket.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use relay::StreamFailure;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::{MessageLimits, MessageStream, PeerLabel, ReceiptSource};

use crate::relayed_stream::RelayedStream;

/// What happens when all parts of the message stream are dropped.
type OnDrop = Box<dyn FnOnce(&RelayedStream) + Send + Sync>;

/// Keeps a stream, and ends it when the reader and the writer are dropped.
struct HeldStream {
    slot: Arc<RelayedStream>,
    on_drop: Option<OnDrop>,
}

impl Drop for HeldStream {
    fn drop(&mut self) {
        if let Some(on_drop) = self.on_drop.take() {
            on_drop(&self.slot);
        }
    }
}

struct StreamReader(Arc<HeldStream>);
struct StreamWriter(Arc<HeldStream>);
struct StreamReceipts(Arc<HeldStream>);

/// The message stream over a stream. `on_drop` is called when the message stream is dropped.
pub(crate) fn message_stream(
    slot: Arc<RelayedStream>,
    peer: PeerLabel,
    limits: MessageLimits,
    on_drop: impl FnOnce(&RelayedStream) + Send + Sync + 'static,
) -> MessageStream {
    let held = Arc::new(HeldStream { slot, on_drop: Some(Box::new(on_drop)) });
    let (reader, writer) = (StreamReader(Arc::clone(&held)), StreamWriter(Arc::clone(&held)));
    MessageStream::with_receipts(reader, writer, StreamReceipts(held), peer, limits)
}

impl AsyncRead for StreamReader {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = ready!(self.0.slot.poll_read(cx, |bytes| {
            let count = bytes.len().min(out.remaining());
            out.put_slice(&bytes[..count]);
            bytes.advance(count);
        }));
        Poll::Ready(read.map_err(broken))
    }
}

impl AsyncWrite for StreamWriter {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.slot.poll_write(cx, bytes).map_err(broken)
    }

    /// Frames are sent as soon as the socket takes them.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Waits until the peer has everything, because the stream ends when it is dropped.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.slot.poll_received(cx).map_err(broken)
    }
}

impl ReceiptSource for StreamReceipts {
    fn poll_receipt(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        self.0.slot.poll_receipt(cx)
    }
}

fn broken(failure: StreamFailure) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, failure)
}
