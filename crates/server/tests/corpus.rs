//! Replays the committed corpus of the fuzz target about file handles, with the check of the target itself.

#[path = "../../../fuzz/checks/block_protocol.rs"]
mod block_protocol;

use std::path::Path;

#[test]
fn blocks_keep_their_promises_for_every_input_of_the_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/block_protocol");
    let mut replayed = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        let kept = std::panic::catch_unwind(|| block_protocol::check(&bytes));
        assert!(kept.is_ok(), "{} breaks a promise", path.display());
        replayed += 1;
    }
    assert!(replayed >= 20, "the corpus was not found in {}", folder.display());
}
