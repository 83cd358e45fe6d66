//! Replays the committed corpora of the fuzz targets of this crate, with the checks of those targets.

#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/relay_frame.rs"]
mod relay_frame;
#[path = "../../../fuzz/checks/relay_handshake.rs"]
mod relay_handshake;
#[path = "../../../fuzz/checks/relay_record.rs"]
mod relay_record;

/// Each corpus has more inputs than this. If fewer are found, the path of the corpus is wrong.
const MIN_INPUTS: usize = 15;

#[test]
fn the_corpus_of_frames_passes_its_checks() {
    corpus::replay("relay_frame", MIN_INPUTS, relay_frame::check);
}

#[test]
fn the_corpus_of_handshake_messages_passes_its_checks() {
    corpus::replay("relay_handshake", MIN_INPUTS, relay_handshake::check);
}

#[test]
fn the_corpus_of_records_passes_its_checks() {
    corpus::replay("relay_record", MIN_INPUTS, relay_record::check);
}
