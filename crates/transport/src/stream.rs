//! A message stream, and how to make one without a listener: over any two byte streams, or in memory.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::framing::Framing;
use crate::message::MessageLimits;
use crate::peer::PeerLabel;
use crate::reader::{Reader, ReceiptSource};
use crate::writer::Writer;

/// Capacity of each direction of an in-memory pair, about that of a socket. A writer waits while its direction is
/// full.
const IN_MEMORY_BYTES: usize = 64 * 1024;

/// Both directions of a connection. The reader and the writer are independent and can be moved to different tasks.
#[derive(Debug)]
pub struct MessageStream {
    /// Returns the messages that the peer sends.
    pub reader: Reader,
    /// Sends bytes that the caller has framed with `framing`.
    pub writer: Writer,
    /// Turns messages into the bytes for `writer`.
    pub framing: Framing,
    /// The event that proves that the peer has received a message.
    pub proof_of_receipt: ProofOfReceipt,
    /// The peer, for logs and errors.
    pub peer: PeerLabel,
}

/// The event that proves to the sender that the peer has received a message. A sender that keeps messages until they
/// are received drops them when it sees this event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProofOfReceipt {
    /// A pong. The peer answers pings in order, so a pong proves that the peer has read everything that was sent
    /// before the ping that it answers. The framing must have pings ([`Framing::supports_ping`]). A transport that
    /// acknowledges bytes answers the pings itself ([`MessageStream::with_receipts`]).
    Pong,
    /// The return of [`Writer::write_all`], which ends with a flush. On a pipe or Unix socket the flush returns when
    /// the kernel has the bytes. The peer is then on this machine and loses them only if it ends.
    Flush,
}

impl MessageStream {
    /// A message stream over any two byte streams, for transports that this crate does not have. The caller says with
    /// `proof_of_receipt` which event is the proof.
    pub fn new<R, W>(
        read: R,
        write: W,
        framing: Framing,
        proof_of_receipt: ProofOfReceipt,
        peer: PeerLabel,
        limits: MessageLimits,
    ) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        debug_assert!(
            proof_of_receipt != ProofOfReceipt::Pong || framing.supports_ping(),
            "no pong can arrive with this framing"
        );
        let reader = Reader::new(read, framing, Bytes::new(), limits);
        Self { reader, writer: Writer::new(write), framing, proof_of_receipt, peer }
    }

    /// A message stream over a stream of bytes that the peer acknowledges. Pings are not sent to the peer:
    /// `receipts` answers each when everything before it is acknowledged. The framing is [`Framing::LengthPrefixed`].
    pub fn with_receipts<R, W>(
        read: R,
        write: W,
        receipts: impl ReceiptSource + 'static,
        peer: PeerLabel,
        limits: MessageLimits,
    ) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let framing = Framing::LengthPrefixed;
        let reader = Reader::new(read, framing, Bytes::new(), limits).with_receipts(receipts);
        Self { reader, writer: Writer::new(write), framing, proof_of_receipt: ProofOfReceipt::Pong, peer }
    }

    /// A WebSocket after its upgrade. `already_read` are the bytes that were read after the headers of the upgrade.
    pub(crate) fn upgraded<R, W>(
        (read, write): (R, W),
        framing: Framing,
        already_read: Bytes,
        peer: PeerLabel,
        limits: MessageLimits,
    ) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let reader = Reader::new(read, framing, already_read, limits);
        Self { reader, writer: Writer::new(write), framing, proof_of_receipt: ProofOfReceipt::Pong, peer }
    }
}

/// A message stream with one message per line over two byte streams between processes of one machine, such as two pipes.
pub fn lines<R, W>(read: R, write: W, peer: PeerLabel, limits: MessageLimits) -> MessageStream
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    MessageStream::new(read, write, Framing::Lines, ProofOfReceipt::Flush, peer, limits)
}

/// Two connected streams with WebSocket framing: the one of the server, then the one of the client.
pub fn in_memory(limits: MessageLimits) -> (MessageStream, MessageStream) {
    let (server, client) = tokio::io::duplex(IN_MEMORY_BYTES);
    let stream = |io, framing| {
        let (read, write) = tokio::io::split(io);
        MessageStream::new(read, write, framing, ProofOfReceipt::Pong, PeerLabel::new("memory"), limits)
    };
    (stream(server, Framing::WebSocketServer), stream(client, Framing::WebSocketClient))
}
