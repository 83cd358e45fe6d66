//! Replays the committed corpus of the fuzz target about file handles, with the check of the target itself.

#[path = "../../../fuzz/checks/block_protocol.rs"]
mod block_protocol;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn every_input_of_the_corpus_passes_the_check() {
    corpus::replay("block_protocol", 20, block_protocol::check);
}
