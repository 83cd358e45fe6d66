//! Runs the checks of the fuzz targets `websocket` and `lines`, which test the two message decoders, on the committed
//! corpora of these targets and on random bytes.
#![expect(clippy::expect_used, clippy::panic, reason = "a test that fails should fail loudly and at once")]

#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/message_streams.rs"]
mod message_streams;

use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn every_input_of_the_corpus_passes_the_checks_of_the_websocket_decoder() {
    corpus::replay("websocket", 20, message_streams::check_websocket);
}

#[test]
fn every_input_of_the_corpus_passes_the_checks_of_the_line_decoder() {
    corpus::replay("lines", 20, message_streams::check_lines);
}

/// Any byte, and those that a decoder treats specially more often than others: flags and opcodes, lengths, line ends.
fn wire_byte() -> impl Strategy<Value = u8> {
    let special = proptest::sample::select(vec![
        0x00, 0x01, 0x02, 0x80, 0x81, 0x82, 0x88, 0x89, 0x8a, 0x7e, 0x7f, 0xfe, 0x85, b'\r', b'\n', b' ',
    ]);
    prop_oneof![3 => special, 1 => any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_pass_the_checks_of_both_decoders(input in vec(wire_byte(), 0..300)) {
        message_streams::check_websocket(&input);
        message_streams::check_lines(&input);
    }
}
