//! Replays the committed corpora of the fuzz targets `envelope` and `file_uri`, with the checks of those targets.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

#[path = "../../../fuzz/checks/envelope.rs"]
mod envelope;
#[path = "../../../fuzz/checks/file_uri.rs"]
mod file_uri;

use std::path::Path;

#[test]
fn every_envelope_of_the_corpus_passes_the_checks_of_the_fuzz_target() {
    replay("envelope", envelope::check);
}

#[test]
fn every_path_of_the_corpus_passes_the_checks_of_the_fuzz_target() {
    replay("file_uri", file_uri::check);
}

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let checked = std::panic::catch_unwind(|| check(&bytes));
        assert!(checked.is_ok(), "the input {} fails a check", path.display());
        replayed += 1;
    }
    assert!(replayed >= 40, "expected at least 40 inputs in {}", folder.display());
}
