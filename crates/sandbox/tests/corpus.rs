//! Replays the committed corpus of the fuzz target `launcher_protocol`, with the checks of that target.

#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/launcher_protocol.rs"]
mod launcher_protocol;

/// The corpus has more inputs than this. If fewer are found, the path of the corpus is wrong.
const MIN_INPUTS: usize = 15;

#[test]
fn every_message_of_the_corpus_passes_the_checks_of_the_fuzz_target() {
    corpus::replay("launcher_protocol", MIN_INPUTS, launcher_protocol::check);
}
