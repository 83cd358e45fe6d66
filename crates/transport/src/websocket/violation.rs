//! The ways in which a peer can break the rules for frames. The message of each is short enough for the reason of a close frame.

/// A frame, or a sequence of frames, that RFC 6455 forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Reserved bits are set, although no extension was negotiated.
    #[error("a frame has reserved bits set")]
    ReservedBits,
    /// The opcode, which is the value here, is not defined.
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
    #[error("a message begins before the last one has ended")]
    InterruptedMessage,
    /// The payload of a close frame is one byte, and a status code has two.
    #[error("a close frame has half a status code")]
    HalfStatusCode,
}
