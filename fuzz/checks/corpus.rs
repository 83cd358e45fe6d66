//! Replays the committed corpus of a fuzz target in a test.
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::path::Path;

/// Checks every input of the corpus of `target`. Fails if there are fewer than `min_inputs`, because then a part of
/// the corpus is missing.
pub(crate) fn replay(target: &str, min_inputs: usize, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let checked = std::panic::catch_unwind(|| check(&bytes));
        assert!(checked.is_ok(), "the input {} fails a check", path.display());
        replayed += 1;
    }
    assert!(replayed >= min_inputs, "expected at least {min_inputs} inputs in {}", folder.display());
}
