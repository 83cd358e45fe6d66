//! Checks that must succeed for any bytes that arrive as a message between the server and the launcher of a sandbox. Used by
//! the fuzz target and by the test that replays the corpus.
//!
//! The first byte of an input chooses the kind of message. The other bytes are the message.

use std::fmt::Debug;

use sandbox::{BuildReply, EnforcementPlan, MalformedMessage, StartReply, StartRequest};

/// Panics if one of the checks fails for these bytes.
pub(crate) fn check(input: &[u8]) {
    let Some((kind, message)) = input.split_first() else { return };
    match kind % 4 {
        0 => round_trip(message, EnforcementPlan::decode, EnforcementPlan::encode),
        1 => round_trip(message, StartRequest::decode, StartRequest::encode),
        2 => round_trip(message, BuildReply::decode, BuildReply::encode),
        _ => round_trip(message, StartReply::decode, |reply| reply.encode()),
    }
}

/// What was decoded survives encoding and decoding. A message that is cut is refused, because every message has one end.
fn round_trip<T: PartialEq + Debug>(
    message: &[u8],
    decode: impl Fn(&[u8]) -> Result<T, MalformedMessage>,
    encode: impl Fn(&T) -> Vec<u8>,
) {
    let Ok(value) = decode(message) else { return };
    assert_eq!(decode(&encode(&value)).as_ref(), Ok(&value));
    if let Some((_, cut)) = message.split_last() {
        assert_eq!(decode(cut), Err(MalformedMessage), "a cut message is accepted");
    }
}
