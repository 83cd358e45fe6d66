//! The WebSocket wire format (RFC 6455) as values: frame headers, masking, the decoder and the handshake key.
//!
//! It is our own because an over-long message must be skipped with the connection left usable, and because payloads are
//! written straight into their frame. There is no IO in here.

mod decoder;
mod handshake;
mod header;
mod mask;
mod random;
mod violation;

pub(crate) use decoder::Decoder;
pub(crate) use handshake::{accept_key, new_key};
pub(crate) use header::{MAX_CONTROL_BYTES, Opcode, write_header};
pub(crate) use mask::apply_mask;
pub(crate) use random::mask_key;
pub use violation::Violation;

/// Which end of the connection we are. Clients mask what they send, servers do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Server,
    Client,
}
