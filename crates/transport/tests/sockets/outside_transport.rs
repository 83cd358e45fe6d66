//! A transport that is made outside the crate `transport`: byte streams in memory whose flush waits until the peer
//! has acknowledged everything that was written.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::{AsyncWrite, DuplexStream, WriteHalf};
use transport::{Framing, MessageLimits, MessageStream, PeerLabel, ProofOfReceipt, ReadEvent};

use crate::support::send;

const PIPE_BYTES: usize = 1024;

/// How many bytes the peer has acknowledged, and the task that waits for more.
#[derive(Default)]
struct PeerAcknowledgement {
    bytes: usize,
    waiting: Option<std::task::Waker>,
}

/// A byte stream to the peer whose flush waits for the acknowledgement of all written bytes.
struct AcknowledgedWrites {
    sink: WriteHalf<DuplexStream>,
    written_bytes: usize,
    acknowledged: Arc<Mutex<PeerAcknowledgement>>,
}

impl AsyncWrite for AcknowledgedWrites {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.sink).poll_write(cx, bytes);
        if let Poll::Ready(Ok(count)) = &written {
            self.written_bytes += count;
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut acknowledged = self.acknowledged.lock().unwrap();
        if acknowledged.bytes >= self.written_bytes {
            return Poll::Ready(Ok(()));
        }
        acknowledged.waiting = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.sink).poll_shutdown(cx)
    }
}

fn message_stream(io: DuplexStream, acknowledged: &Arc<Mutex<PeerAcknowledgement>>) -> MessageStream {
    let (read, sink) = tokio::io::split(io);
    let write = AcknowledgedWrites { sink, written_bytes: 0, acknowledged: Arc::clone(acknowledged) };
    let peer = PeerLabel::new("outside");
    MessageStream::new(read, write, Framing::Lines, ProofOfReceipt::Flush, peer, MessageLimits::default())
}

#[tokio::test]
async fn sending_a_message_waits_until_the_peer_has_acknowledged_it() {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (acknowledged_by_them, acknowledged_by_us) = (Arc::default(), Arc::default());
    let mut ours = message_stream(ours, &acknowledged_by_them);
    let mut theirs = message_stream(theirs, &acknowledged_by_us);
    assert_eq!(ours.proof_of_receipt, ProofOfReceipt::Flush);

    let mut sending = Box::pin(send(&mut ours, b"{}"));
    let received = tokio::select! {
        received = theirs.reader.next() => received.unwrap(),
        () = &mut sending => panic!("the write has ended before the peer acknowledged it"),
    };
    assert_eq!(received, ReadEvent::Message("{}".into()));
    let waiting = {
        let mut acknowledged = acknowledged_by_them.lock().unwrap();
        acknowledged.bytes = "{}\n".len();
        acknowledged.waiting.take()
    };
    waiting.expect("the write waits for the peer").wake();
    sending.await;
}
