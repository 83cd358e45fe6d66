//! The ways in which a peer can break the rules for frames. The error text of each is short enough for
//! the reason of a close frame.

/// A frame, or a sequence of frames, that RFC 6455 forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Reserved bits are set, although no extension was negotiated.
    #[error("a frame has reserved bits set")]
    ReservedBits,
    /// The opcode is not defined. Holds the opcode.
    #[error("a frame has the unknown opcode {0}")]
    UnknownOpcode(u8),
    /// A client sent a frame without a mask.
    #[error("a frame from a client is not masked")]
    Unmasked,
    /// A server sent a frame with a mask.
    #[error("a frame from a server is masked")]
    Masked,
    /// The highest bit of a 64-bit length is set.
    #[error("a frame has an impossible length")]
    ImpossibleLength,
    /// The length of the payload is written in 16 or 64 bits although it needs fewer (RFC 6455, section 5.2).
    #[error("a frame has its length in more bytes than needed")]
    LongLengthForm,
    /// A ping, pong or close is fragmented.
    #[error("a control frame is fragmented")]
    FragmentedControl,
    /// A ping, pong or close has more than 125 bytes of payload.
    #[error("a control frame is longer than 125 bytes")]
    LongControl,
    /// A continuation frame arrived while no fragmented message was open.
    #[error("a continuation frame has no message to continue")]
    LoneContinuation,
    /// A new message began before the last frame of a fragmented one.
    #[error("a message begins before the previous one has ended")]
    InterruptedMessage,
    /// The payload of a close frame is one byte, and a status code has two.
    #[error("a close frame has half a status code")]
    HalfStatusCode,
    /// A close frame has a status code that no peer may send: a code below 1000 or above 4999, or a code in between
    /// that is reserved or not defined (RFC 6455, section 7.4). Holds the code.
    #[error("a close frame has the reserved status code {0}")]
    ReservedStatusCode(u16),
    /// A message after its length has the length 0, and is no control frame.
    #[error("a message has the length 0")]
    EmptyMessage,
    /// The reason in a close frame is not UTF-8 (RFC 6455, section 8.1).
    #[error("the reason of a close frame is not UTF-8")]
    ReasonNotUtf8,
}

impl Violation {
    /// The status code with which the connection has to be closed.
    pub fn close_code(self) -> u16 {
        const PROTOCOL_ERROR: u16 = 1002;
        const INVALID_DATA: u16 = 1007;
        if self == Self::ReasonNotUtf8 { INVALID_DATA } else { PROTOCOL_ERROR }
    }
}
