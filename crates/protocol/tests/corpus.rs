//! Replays the committed corpus of the fuzz target `envelope`, with the checks of the target itself.

#[path = "../../../fuzz/checks/envelope.rs"]
mod envelope;

use std::path::Path;

#[test]
fn the_envelope_keeps_its_promises_for_every_input_of_the_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/envelope");
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let kept = std::panic::catch_unwind(|| envelope::check(&bytes));
        assert!(kept.is_ok(), "{} breaks a promise", path.display());
        replayed += 1;
    }
    assert!(replayed >= 40, "the corpus was not found in {}", folder.display());
}
