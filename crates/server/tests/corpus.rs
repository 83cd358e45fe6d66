//! Replays the committed corpus of the fuzz target `block_protocol`, which reads and writes files in blocks. The
//! inputs are checked by the same function as in the fuzz target.

#[path = "../../../fuzz/checks/block_protocol.rs"]
mod block_protocol;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;

#[test]
fn every_input_of_the_corpus_passes_the_check() {
    let min_inputs = 20;
    corpus::replay("block_protocol", min_inputs, block_protocol::check);
}
