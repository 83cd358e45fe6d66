//! A message stream and the ways to make one without a listener: over any pair of pipes, or in memory.

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::framing::Framing;
use crate::message::MessageLimits;
use crate::peer::PeerLabel;
use crate::reader::Reader;
use crate::writer::Writer;

/// What an in-memory pair holds in each direction before the writer waits, about what a socket would.
const IN_MEMORY_BYTES: usize = 64 * 1024;

/// Both directions of a connection. The halves are independent and can live in different tasks.
#[derive(Debug)]
pub struct MessageStream {
    /// What the peer sends.
    pub reader: Reader,
    /// What we send, framed by `framing`.
    pub writer: Writer,
    /// How messages for `writer` are framed.
    pub framing: Framing,
    /// Who the peer is.
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

/// Lines over any two byte streams, such as the pipes of a child.
pub fn lines<R, W>(read: R, write: W, peer: PeerLabel, limits: MessageLimits) -> MessageStream
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    MessageStream::new((read, write), Framing::Lines, Bytes::new(), peer, limits)
}

/// Two connected streams with WebSocket framing, the server's end first.
pub fn in_memory(limits: MessageLimits) -> (MessageStream, MessageStream) {
    let (server, client) = tokio::io::duplex(IN_MEMORY_BYTES);
    let end =
        |io, framing| MessageStream::new(tokio::io::split(io), framing, Bytes::new(), PeerLabel::Memory, limits);
    (end(server, Framing::WebSocketServer), end(client, Framing::WebSocketClient))
}
