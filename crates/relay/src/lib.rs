//! What travels through a relay, as values without IO: frames, the Noise channel between the two ends, its records, and
//! the stream that survives a lost socket.
//!
//! A harness and an executor that cannot reach each other both connect to a relay, and the relay passes binary
//! messages between them. Each message is a *frame* ([`Frame`]) of one *stream*, and each stream is one connection of a
//! harness to an executor. A stream begins with a Noise handshake ([`HarnessHandshake`], [`ExecutorHandshake`]). It
//! proves to both ends which static key the other one has ([`RelayIdentity`], [`RelayPublicKey`]), and makes the keys of
//! a *channel* ([`Channel`]). After that, the bytes of both directions are cut into *records*, and each record is
//! encrypted. So the relay sees the header of each frame (stream, record numbers, acknowledgements, reasons of resets),
//! lengths and times, and no plaintext.
//!
//! Everything here is compatible with `codex exec-server`, with one addition: if both ends announce that they
//! acknowledge records ([`Features`]), a record is kept until the other end has it, and is sent again after the socket
//! was replaced ([`RelayStream`]).

#![forbid(unsafe_code)]

mod acknowledgement;
mod base64_bytes;
mod cipher_suite;
mod frame;
mod handshake;
mod identity_seed;
mod limits;
mod ordered_records;
mod prologue;
mod public_key;
mod record;
mod stream;
mod unacknowledged;
mod wire;

pub use frame::{EncodedFrame, Features, Frame, FrameBody, FrameError, FrameProblem};
pub use handshake::{Channel, ExecutorHandshake, HandshakeFailure, HarnessHandshake};
pub use identity_seed::IdentitySeed;
pub use limits::*;
pub use prologue::StreamBinding;
pub use public_key::{RelayIdentity, RelayPublicKey};
pub use record::{RecordFailure, RecordOpener, RecordSealer};
pub use stream::{RelayStream, StreamFailure};
