//! The values that [`crate::Reader`] returns, the same for every transport: messages, control frames, the close, and read errors.

use std::io;

use bytes::Bytes;

use crate::websocket::Violation;

/// Length of the longest prefix that is reported of a message over the limit. A request usually has its id in this
/// prefix, so that the caller can answer it.
pub(crate) const PREFIX_BYTES: usize = 1024;

/// Limits of one message stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// Length of the longest message that is delivered, in bytes, without its framing. 64 MiB by default.
    pub message_bytes: usize,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self { message_bytes: 64 * 1024 * 1024 }
    }
}

/// One message or control frame from the peer, or the end of the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEvent {
    /// A complete message. Text and binary frames are treated alike.
    ///
    /// The text is not checked for UTF-8, although RFC 6455 (section 8.1) demands to close the connection over text that is not UTF-8. The
    /// code that parses the messages checks it instead, in frames of both kinds and in lines. That code can answer with an error and keep
    /// the connection, so that one bad message does not interrupt everything else that the peer does.
    Message(Bytes),
    /// A message that is longer than [`MessageLimits::message_bytes`]. The rest of it is discarded as it arrives, and the next message is
    /// read as usual.
    TooLarge {
        /// The first bytes of the message, at most 1 KiB.
        prefix: Bytes,
    },
    /// A WebSocket ping. The caller has to answer it with a pong that has the same payload ([`crate::Framing::pong`]).
    Ping(Bytes),
    /// A WebSocket pong, with the payload of the ping that it answers.
    Pong(Bytes),
    /// The stream has ended: with a WebSocket close frame and its reason, or, if `None`, with the end of the byte stream.
    /// Every later read returns `Closed(None)`, also after an error.
    Closed(Option<CloseReason>),
}

/// Why the peer closed a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// The WebSocket status code; 1005 if the close frame has none.
    pub code: u16,
    /// The text that the peer sent with the code; empty if it sent none.
    pub reason: String,
}

/// Why a message could not be read. After an error, the reader returns only [`ReadEvent::Closed`].
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Reading from the connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The peer sent a frame that RFC 6455 forbids. The caller should close with [`Violation::close_code`].
    #[error("the peer broke the WebSocket protocol: {0}")]
    Violation(#[from] Violation),
    /// The byte stream ended inside a WebSocket frame, or before the last frame of a message.
    #[error("the connection ended in the middle of a message")]
    Truncated,
}
