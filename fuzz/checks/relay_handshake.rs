//! Checks that must succeed for any bytes that arrive as a message of the Noise handshake. Used by the fuzz target and
//! by the test that replays the corpus.
//!
//! The first byte of an input chooses who reads the message, and what the message is: the other bytes, or a valid
//! message that the other bytes alter. They are pairs of a place (two bytes) and a value that is combined with the byte
//! at this place by exclusive or.

use std::sync::OnceLock;

use relay::{ExecutorHandshake, HarnessHandshake, RelayIdentity, StreamBinding};

const BINDING: StreamBinding<'static> =
    StreamBinding { environment_id: "env", registration_id: "registration", stream_id: "stream" };

/// Panics if one of the checks fails for these bytes.
pub(crate) fn check(input: &[u8]) {
    static IDENTITIES: OnceLock<[RelayIdentity; 2]> = OnceLock::new();
    let [harness, executor] =
        IDENTITIES.get_or_init(|| [(); 2].map(|()| RelayIdentity::generate().expect("the system has randomness")));
    let Some((kind, rest)) = input.split_first() else { return };
    let (waiting, first) = HarnessHandshake::begin(harness, &executor.public_key(), BINDING, "authorization")
        .expect("the keys are right");
    let is_raw = kind & 1 == 1;
    if kind & 2 == 0 {
        let message = if is_raw { rest.to_vec() } else { altered(&first, rest) };
        let read = ExecutorHandshake::read(executor, BINDING, &message);
        // Whatever arrives, the executor takes only the message that the harness has sent.
        assert_eq!(read.is_ok(), message == first);
    } else {
        let read = ExecutorHandshake::read(executor, BINDING, &first).expect("the message is right");
        let (second, _) = read.accept().expect("the keys are right");
        let message = if is_raw { rest.to_vec() } else { altered(&second, rest) };
        assert_eq!(waiting.finish(&message).is_ok(), message == second);
    }
}

fn altered(message: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut altered = message.to_vec();
    for change in changes.chunks_exact(3) {
        let place = usize::from(u16::from_be_bytes([change[0], change[1]])) % altered.len();
        altered[place] ^= change[2];
    }
    altered
}
