//! A message stream, and how to make one without a listener: over any two byte streams, or in memory.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::framing::Framing;
use crate::message::MessageLimits;
use crate::peer::PeerLabel;
use crate::reader::Reader;
use crate::writer::Writer;

/// Capacity of each direction of an in-memory pair, about that of a socket. A writer waits when it is full.
const IN_MEMORY_BYTES: usize = 64 * 1024;

/// Both directions of a connection. The reader and the writer are independent and can be moved to different tasks.
#[derive(Debug)]
pub struct MessageStream {
    /// Returns the messages that the peer sends.
    pub reader: Reader,
    /// Sends bytes to the peer, which the caller has framed with `framing`.
    pub writer: Writer,
    /// Turns messages into the bytes for `writer`.
    pub framing: Framing,
    /// The peer, for logs and errors.
    pub peer: PeerLabel,
}

impl MessageStream {
    pub(crate) fn new<R, W>(
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
        Self { reader: Reader::new(read, framing, already_read, limits), writer: Writer::new(write), framing, peer }
    }
}

/// A message stream with one message per line over any two byte streams, such as two pipes.
pub fn lines<R, W>(read: R, write: W, peer: PeerLabel, limits: MessageLimits) -> MessageStream
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    MessageStream::new((read, write), Framing::Lines, Bytes::new(), peer, limits)
}

/// Two connected streams with WebSocket framing: the one of the server, then the one of the client.
pub fn in_memory(limits: MessageLimits) -> (MessageStream, MessageStream) {
    let (server, client) = tokio::io::duplex(IN_MEMORY_BYTES);
    let stream =
        |io, framing| MessageStream::new(tokio::io::split(io), framing, Bytes::new(), PeerLabel::Memory, limits);
    (stream(server, Framing::WebSocketServer), stream(client, Framing::WebSocketClient))
}
