//! Replays the committed corpora of the fuzz targets about messages and paths, with the checks of the targets themselves.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

#[path = "../../../fuzz/checks/envelope.rs"]
mod envelope;
#[path = "../../../fuzz/checks/file_uri.rs"]
mod file_uri;

use std::path::Path;

#[test]
fn the_envelope_keeps_its_promises_for_every_input_of_the_corpus() {
    replay("envelope", envelope::check);
}

#[test]
fn paths_keep_their_promises_for_every_input_of_the_corpus() {
    replay("file_uri", file_uri::check);
}

fn replay(target: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let kept = std::panic::catch_unwind(|| check(&bytes));
        assert!(kept.is_ok(), "{} breaks a promise", path.display());
        replayed += 1;
    }
    assert!(replayed >= 40, "the corpus was not found in {}", folder.display());
}
