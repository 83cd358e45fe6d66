//! The ways a peer can break the framing rules. Each is a sentence that can be sent back in a close frame.

/// What the peer did that RFC 6455 forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// No extension was negotiated that could use them.
    #[error("a frame has reserved bits set")]
    ReservedBits,
    /// An opcode without a meaning.
    #[error("a frame has the unknown opcode {0}")]
    UnknownOpcode(u8),
    /// Clients must mask.
    #[error("a frame from a client is not masked")]
    Unmasked,
    /// Servers must not mask.
    #[error("a frame from a server is masked")]
    Masked,
    /// A length with its highest bit set.
    #[error("a frame has an impossible length")]
    ImpossibleLength,
    /// Ping, pong or close in pieces.
    #[error("a control frame is fragmented")]
    FragmentedControl,
    /// Ping, pong or close with more than 125 bytes.
    #[error("a control frame is longer than 125 bytes")]
    LongControl,
    /// A continuation that continues nothing.
    #[error("a continuation frame has no message to continue")]
    LoneContinuation,
    /// A new message inside an unfinished one.
    #[error("a message begins before the last one has ended")]
    InterruptedMessage,
    /// A status code is two bytes.
    #[error("a close frame has half a status code")]
    HalfStatusCode,
}
