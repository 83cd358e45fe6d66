//! Known answers, and handshakes that must fail.

use std::cell::Cell;

use clatter::traits::{CryptoRng, RngCore};
use serde_json::Value;

use super::*;
use crate::record::RecordFailure;

const BINDING: StreamBinding<'static> =
    StreamBinding { environment_id: "env-1", registration_id: "registration-1", stream_id: "stream-1" };

thread_local! {
    /// The next byte of [`CountingRandomness`]. `clatter` makes a source for each handshake, and all go on counting.
    static NEXT_BYTE: Cell<u8> = const { Cell::new(0) };
}

/// "Randomness" that counts 0, 1, 2 and so on, as the known answers have it.
#[derive(Clone, Default)]
struct CountingRandomness;

impl RngCore for CountingRandomness {
    fn next_u32(&mut self) -> u32 {
        unreachable!("keys are made from bytes")
    }

    fn next_u64(&mut self) -> u64 {
        unreachable!("keys are made from bytes")
    }

    fn fill_bytes(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            *byte = NEXT_BYTE.get();
            NEXT_BYTE.set(byte.wrapping_add(1));
        }
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), rand_core::Error> {
        self.fill_bytes(bytes);
        Ok(())
    }
}

impl CryptoRng for CountingRandomness {}

/// The answers that `testdata/hybrid_ik.json` has, from an independent implementation.
fn known() -> Value {
    serde_json::from_str(include_str!("../../testdata/hybrid_ik.json")).unwrap()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref())
}

/// The static keys of harness and executor in the known answers. Both X25519 keys were made before the ML-KEM keys.
fn known_identities() -> (RelayIdentity, RelayIdentity) {
    let identity = |x25519_begins, mlkem768_begins| {
        NEXT_BYTE.set(x25519_begins);
        let x25519 = <X25519 as clatter::traits::Dh>::genkey_rng(&mut CountingRandomness).unwrap();
        NEXT_BYTE.set(mlkem768_begins);
        let mlkem768 = <MlKem768 as clatter::traits::Kem>::genkey_rng(&mut CountingRandomness).unwrap();
        RelayIdentity { x25519, mlkem768 }
    };
    let identities = (identity(0, 64), identity(32, 128));
    // The first byte after those of the static keys.
    NEXT_BYTE.set(192);
    identities
}

#[test]
fn the_handshake_gives_the_known_answers() {
    let known = known();
    let (harness, executor) = known_identities();
    assert_eq!(hex(&BINDING.prologue()), known["prologue_hex"]);
    let (harness_key, executor_key) = (harness.public_key(), executor.public_key());
    assert_eq!(hex(&harness_key.x25519), known["harness_x25519_pub"]);
    assert_eq!(hex(&executor_key.x25519), known["executor_x25519_pub"]);
    assert_eq!(sha256(&*harness_key.mlkem768), known["harness_mlkem_pub_sha256"]);
    assert_eq!(sha256(&*executor_key.mlkem768), known["executor_mlkem_pub_sha256"]);

    let (waiting, first) = HarnessHandshake::<CountingRandomness>::begin_with_randomness(
        &harness,
        &executor_key,
        BINDING,
        "authorization-1",
    )
    .unwrap();
    assert_eq!((first.len(), sha256(&first)), (3583, known["msg1_sha256"].as_str().unwrap().to_owned()));
    let read = ExecutorHandshake::<CountingRandomness>::read_with_randomness(&executor, BINDING, &first).unwrap();
    assert_eq!((read.harness_key(), read.authorization()), (&harness_key, "authorization-1"));
    let (second, mut at_executor) = read.accept().unwrap();
    assert_eq!((second.len(), sha256(&second)), (3424, known["msg2_sha256"].as_str().unwrap().to_owned()));
    let mut at_harness = waiting.finish(&second).unwrap();

    let initialize = br#"{"id":1,"method":"initialize","params":{"clientName":"kat"}}"#;
    let framed = [&(initialize.len() as u32).to_be_bytes()[..], initialize].concat();
    for (answer, plaintext) in [("transport_i2r_0", &framed[..]), ("transport_i2r_1", b"\0\0\0\x02[]")] {
        let mut record = plaintext.to_vec();
        at_harness.sealer.seal(&mut record).unwrap();
        assert_eq!(hex(&record), known[answer], "{answer}");
        assert_eq!(at_executor.opener.open(&mut record).unwrap(), plaintext, "{answer}");
    }
    let mut record = b"\0\0\0\x02{}".to_vec();
    at_executor.sealer.seal(&mut record).unwrap();
    assert_eq!(hex(&record), known["transport_r2i_0"]);
    assert_eq!(at_harness.opener.open(&mut record).unwrap(), b"\0\0\0\x02{}");
}

/// A finished handshake between new identities.
fn channels() -> (Channel, Channel) {
    let (harness, executor) = (RelayIdentity::generate().unwrap(), RelayIdentity::generate().unwrap());
    let (waiting, first) = HarnessHandshake::begin(&harness, &executor.public_key(), BINDING, "grant").unwrap();
    let (second, at_executor) = ExecutorHandshake::read(&executor, BINDING, &first).unwrap().accept().unwrap();
    (waiting.finish(&second).unwrap(), at_executor)
}

#[test]
fn an_altered_byte_in_any_part_of_either_message_ends_the_handshake() {
    let (harness, executor) = (RelayIdentity::generate().unwrap(), RelayIdentity::generate().unwrap());
    let (_, first) = HarnessHandshake::begin(&harness, &executor.public_key(), BINDING, "grant").unwrap();
    // The first and the last byte of each part of the message, and some between.
    for place in (0..first.len()).step_by(97).chain([
        1087,
        1088,
        1119,
        1120,
        2303,
        2304,
        2351,
        2352,
        3551,
        3552,
        first.len() - 1,
    ]) {
        let mut altered = first.clone();
        altered[place] ^= 1;
        let read = ExecutorHandshake::read(&executor, BINDING, &altered);
        assert_eq!(read.err(), Some(HandshakeFailure::Message), "byte {place}");
    }
    for place in (0..3424).step_by(97).chain([1087, 1088, 2191, 2192, 2223, 2224, 3407, 3408, 3423]) {
        let (waiting, first) = HarnessHandshake::begin(&harness, &executor.public_key(), BINDING, "grant").unwrap();
        let (mut second, _) = ExecutorHandshake::read(&executor, BINDING, &first).unwrap().accept().unwrap();
        second[place] ^= 1;
        assert_eq!(waiting.finish(&second).err(), Some(HandshakeFailure::Message), "byte {place}");
    }
}

#[test]
fn messages_of_a_wrong_length_are_refused_without_a_panic() {
    let (harness, executor) = (RelayIdentity::generate().unwrap(), RelayIdentity::generate().unwrap());
    let (_, first) = HarnessHandshake::begin(&harness, &executor.public_key(), BINDING, "").unwrap();
    assert_eq!(first.len(), 3568);
    for length in [0, 1, 1087, 3567] {
        let read = ExecutorHandshake::read(&executor, BINDING, &first[..length]);
        assert_eq!(read.err(), Some(HandshakeFailure::Message), "{length} bytes");
    }
    for length in [3569, MAX_NOISE_BYTES, MAX_NOISE_BYTES + 1, 200_000] {
        let mut longer = first.clone();
        longer.resize(length, 0);
        let read = ExecutorHandshake::read(&executor, BINDING, &longer);
        assert_eq!(read.err(), Some(HandshakeFailure::Message), "{length} bytes");
    }
    for length in [0, 3423, 3425, 70_000] {
        let (waiting, _) = HarnessHandshake::begin(&harness, &executor.public_key(), BINDING, "").unwrap();
        assert_eq!(waiting.finish(&vec![0; length]).err(), Some(HandshakeFailure::Message), "{length} bytes");
    }
}

#[test]
fn another_key_or_another_stream_ends_the_handshake() {
    let [harness, executor, stranger] = [(); 3].map(|()| RelayIdentity::generate().unwrap());
    let (_, first) = HarnessHandshake::begin(&harness, &executor.public_key(), BINDING, "grant").unwrap();
    assert_eq!(ExecutorHandshake::read(&stranger, BINDING, &first).err(), Some(HandshakeFailure::Message));
    for other in [
        StreamBinding { environment_id: "env-2", ..BINDING },
        StreamBinding { registration_id: "registration-2", ..BINDING },
        StreamBinding { stream_id: "stream-2", ..BINDING },
    ] {
        let read = ExecutorHandshake::read(&executor, other, &first);
        assert_eq!(read.err(), Some(HandshakeFailure::Message), "{other:?}");
    }
    // A relay that answers itself does not have the key that the harness expects.
    let (waiting, _) = HarnessHandshake::begin(&harness, &executor.public_key(), BINDING, "grant").unwrap();
    let (_, to_stranger) = HarnessHandshake::begin(&harness, &stranger.public_key(), BINDING, "grant").unwrap();
    let (answer, _) = ExecutorHandshake::read(&stranger, BINDING, &to_stranger).unwrap().accept().unwrap();
    assert_eq!(waiting.finish(&answer).err(), Some(HandshakeFailure::Message));
}

#[test]
fn an_answer_fits_only_to_its_own_handshake() {
    let (harness, executor) = (RelayIdentity::generate().unwrap(), RelayIdentity::generate().unwrap());
    let begin = || HarnessHandshake::begin(&harness, &executor.public_key(), BINDING, "grant").unwrap();
    let ((_, first), (second_waiting, _)) = (begin(), begin());
    let (answer_to_first, _) = ExecutorHandshake::read(&executor, BINDING, &first).unwrap().accept().unwrap();
    assert_eq!(second_waiting.finish(&answer_to_first).err(), Some(HandshakeFailure::Message));
}

#[test]
fn an_authorization_of_4096_bytes_passes_and_one_of_4097_is_refused_by_both_ends() {
    let (harness, executor) = (RelayIdentity::generate().unwrap(), RelayIdentity::generate().unwrap());
    let key = executor.public_key();
    let longest = "x".repeat(MAX_AUTHORIZATION_BYTES);
    let (_, first) = HarnessHandshake::begin(&harness, &key, BINDING, &longest).unwrap();
    assert_eq!(ExecutorHandshake::read(&executor, BINDING, &first).unwrap().authorization(), longest);
    let too_long = HarnessHandshake::begin(&harness, &key, BINDING, &format!("{longest}x"));
    assert_eq!(too_long.err(), Some(HandshakeFailure::Authorization));
    // Another implementation may send what ours refuses to send.
    for payload in [&[b'x'; MAX_AUTHORIZATION_BYTES + 1][..], b"\xff"] {
        let prologue = BINDING.prologue();
        let params = HybridHandshakeParams::new(noise_hybrid_ik(), true)
            .with_prologue(&prologue)
            .with_s(harness.x25519.clone())
            .with_s_kem(harness.mlkem768.clone())
            .with_rs(key.x25519)
            .with_rs_kem(HeapArray::from_slice(&*key.mlkem768));
        let first = write(&mut Noise::<DefaultRng>::new(params).unwrap(), payload).unwrap();
        let read = ExecutorHandshake::read(&executor, BINDING, &first);
        assert_eq!(read.err(), Some(HandshakeFailure::Authorization));
    }
}

#[test]
fn keys_of_the_executor_that_cannot_be_used_are_refused() {
    let (harness, executor) = (RelayIdentity::generate().unwrap(), RelayIdentity::generate().unwrap());
    let mut zero = executor.public_key();
    zero.x25519 = [0; 32];
    let mut outside = executor.public_key();
    outside.mlkem768[..3].copy_from_slice(&[0xff; 3]);
    for key in [zero, outside] {
        let begun = HarnessHandshake::begin(&harness, &key, BINDING, "grant");
        assert_eq!(begun.err(), Some(HandshakeFailure::PeerKey));
    }
}

#[test]
fn static_keys_of_the_harness_that_cannot_be_used_are_refused_before_anything_is_sent() {
    let (harness, executor) = (RelayIdentity::generate().unwrap(), RelayIdentity::generate().unwrap());
    // As another implementation could send it: the public keys do not belong to the secret ones.
    let read = |harness: &RelayIdentity| {
        let (_, first) = HarnessHandshake::begin(harness, &executor.public_key(), BINDING, "grant").unwrap();
        ExecutorHandshake::read(&executor, BINDING, &first)
    };
    let mut zero = harness.clone();
    zero.x25519.public = [0; 32];
    assert_eq!(read(&zero).err(), Some(HandshakeFailure::Message));
    let mut outside = harness.clone();
    let mut bytes = harness.public_key().mlkem768;
    bytes[..3].copy_from_slice(&[0xff; 3]);
    outside.mlkem768.public = HeapArray::from_slice(&*bytes);
    assert_eq!(read(&outside).err(), Some(HandshakeFailure::PeerKey));
    assert!(read(&harness).is_ok());
}

#[test]
fn a_record_is_refused_if_it_is_altered_repeated_swapped_or_reflected() {
    let (mut harness, mut executor) = channels();
    let mut seal = |text: &[u8]| {
        let mut record = text.to_vec();
        harness.sealer.seal(&mut record).unwrap();
        record
    };
    let (first, second) = (seal(b"one"), seal(b"two"));
    let mut altered = first.clone();
    altered[1] ^= 1;
    assert_eq!(executor.opener.open(&mut altered), Err(RecordFailure::Altered));
    assert_eq!(executor.opener.open(&mut second.clone()), Err(RecordFailure::Altered));
    // A record that was refused uses no number.
    assert_eq!(executor.opener.open(&mut first.clone()), Ok(&b"one"[..]));
    assert_eq!(executor.opener.open(&mut first.clone()), Err(RecordFailure::Altered));
    assert_eq!(executor.opener.open(&mut second.clone()), Ok(&b"two"[..]));
    assert_eq!(harness.opener.open(&mut first.clone()), Err(RecordFailure::Altered));
}

#[test]
fn records_have_a_longest_and_a_shortest_length() {
    let (mut harness, mut executor) = channels();
    let longest = vec![7; crate::limits::MAX_RECORD_BYTES];
    let mut record = longest.clone();
    harness.sealer.seal(&mut record).unwrap();
    assert_eq!(executor.opener.open(&mut record), Ok(&longest[..]));
    assert_eq!(harness.sealer.seal(&mut [&longest[..], b"x"].concat()), Err(RecordFailure::Length));
    for length in [0, 15, MAX_NOISE_BYTES + 1] {
        assert_eq!(executor.opener.open(&mut vec![0; length]), Err(RecordFailure::Length), "{length} bytes");
    }
    // A record may be empty.
    let mut record = Vec::new();
    harness.sealer.seal(&mut record).unwrap();
    assert_eq!(executor.opener.open(&mut record), Ok(&b""[..]));
}

#[test]
fn after_the_last_number_no_record_can_be_sealed() {
    let (mut harness, _) = channels();
    harness.sealer.skip_to(u32::MAX - 1);
    assert_eq!(harness.sealer.seal(&mut vec![1]), Ok(u32::MAX - 1));
    assert_eq!(harness.sealer.seal(&mut vec![1]), Err(RecordFailure::Exhausted));
}

#[test]
fn debug_output_has_no_secret() {
    let identity = RelayIdentity::generate().unwrap();
    let executor = RelayIdentity::generate().unwrap();
    let (waiting, first) = HarnessHandshake::begin(&identity, &executor.public_key(), BINDING, "the-grant").unwrap();
    let read = ExecutorHandshake::read(&executor, BINDING, &first).unwrap();
    let (harness, _) = channels();
    let text = format!("{identity:?} {waiting:?} {read:?} {harness:?}");
    assert!(!text.contains("the-grant") && text.len() < 600, "{text}");
}
