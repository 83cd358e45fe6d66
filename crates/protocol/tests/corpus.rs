//! Replays the committed corpora of the fuzz targets `envelope` and `file_uri`, with the checks of those targets.

#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/envelope.rs"]
mod envelope;
#[path = "../../../fuzz/checks/file_uri.rs"]
mod file_uri;

#[test]
fn every_envelope_of_the_corpus_passes_the_checks_of_the_fuzz_target() {
    corpus::replay("envelope", 40, envelope::check);
}

#[test]
fn every_path_of_the_corpus_passes_the_checks_of_the_fuzz_target() {
    corpus::replay("file_uri", 40, file_uri::check);
}
