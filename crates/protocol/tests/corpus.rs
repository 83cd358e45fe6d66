//! Replays the committed corpora of the fuzz targets `envelope` and `file_uri`, with the checks of those targets.

#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/envelope.rs"]
mod envelope;
#[path = "../../../fuzz/checks/file_uri.rs"]
mod file_uri;

/// Each of the two corpora has more inputs than this. If fewer are found, the path of the corpus is wrong.
const MIN_INPUTS: usize = 40;

#[test]
fn every_envelope_of_the_corpus_passes_the_checks_of_the_fuzz_target() {
    corpus::replay("envelope", MIN_INPUTS, envelope::check);
}

#[test]
fn every_uri_of_the_corpus_passes_the_checks_of_the_fuzz_target() {
    corpus::replay("file_uri", MIN_INPUTS, file_uri::check);
}
