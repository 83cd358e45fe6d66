//! What a reader hands out, and how reading fails. These are plain values, the same for every transport.

use std::io;

use bytes::Bytes;

use crate::websocket::Violation;

/// How much of an over-long message is kept, enough to find the id of a request in it.
pub(crate) const PREFIX_BYTES: usize = 1024;

/// The bounds a message stream keeps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageLimits {
    /// The longest message that is handed out; framing is not counted.
    pub message_bytes: usize,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self { message_bytes: 64 * 1024 * 1024 }
    }
}

/// One thing that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEvent {
    /// A whole message, text or binary alike; not checked for UTF-8.
    Message(Bytes),
    /// A message over the limit. Its rest is discarded as it arrives and the next message is read as usual.
    TooLarge {
        /// Up to 1 KiB of the message's start.
        prefix: Bytes,
    },
    /// The peer asks for a pong with this payload.
    Ping(Bytes),
    /// The peer answers a ping.
    Pong(Bytes),
    /// Nothing more will come: a close frame with its reason, or the end of the byte stream.
    Closed(Option<CloseReason>),
}

/// Why the peer closed a WebSocket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloseReason {
    /// The status code; 1005 if the peer gave none.
    pub code: u16,
    /// The peer's words, possibly empty.
    pub reason: String,
}

/// Why no more can be read. After one of these the stream only reports [`ReadEvent::Closed`].
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection itself failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The peer broke the WebSocket protocol; close with status 1002.
    #[error("the peer broke the WebSocket protocol: {0}")]
    Violation(#[from] Violation),
    /// The peer vanished before it had finished a message.
    #[error("the connection ended in the middle of a message")]
    Truncated,
}
