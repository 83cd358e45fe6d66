//! The WebSocket wire format (RFC 6455): frame headers, masking, the decoder and the key of the upgrade handshake. There is no I/O here.
//!
//! The implementation is our own for two reasons: a message over the limit is skipped and the connection stays usable, and payloads are
//! encoded directly into their frame. Start reading at `decoder`; encoding is in [`crate::Framing`].

mod decoder;
mod handshake;
mod header;
mod mask;
mod random;
mod violation;

pub(crate) use decoder::{TextMessages, WebSocketDecoder, close_reason};
pub(crate) use handshake::{accept_key, new_key};
pub(crate) use header::{FragmentPosition, MAX_CONTROL_BYTES, Opcode, write_fragment_header, write_header};
pub(crate) use mask::apply_mask;
pub(crate) use random::mask_key;
pub use violation::Violation;

/// Our role in the connection. A client masks its frames, and a server does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebSocketRole {
    Server,
    Client,
}
