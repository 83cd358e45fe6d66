//! Copies of sparse files, which consist mostly of holes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::{Duration, Instant};

use crate::support::CopyFixture;

const FILE_BYTES: u64 = 20_000_000_000;

#[tokio::test]
async fn twenty_gigabytes_of_holes_are_copied_as_holes() {
    let fixture = CopyFixture::new().await;
    let file = File::create(fixture.path("a")).unwrap();
    file.set_len(FILE_BYTES).unwrap();
    for at in [0, 5_000_000_000, FILE_BYTES / 2, FILE_BYTES - 10_000_000] {
        file.write_all_at(&[7; 3_000_000], at).unwrap();
    }
    let start = Instant::now();
    fixture.run_quietly(&["cp", &fixture.local("a"), &fixture.remote("b")]).await;
    fixture.run_quietly(&["cp", &fixture.remote("b"), &fixture.local("c")]).await;
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    for name in ["b", "c"] {
        let found = fs::metadata(fixture.path(name)).unwrap();
        assert_eq!(found.len(), FILE_BYTES);
        assert!(found.blocks() * 512 < 20_000_000, "{} blocks in {name}", found.blocks());
        let copy = File::open(fixture.path(name)).unwrap();
        let mut piece = vec![0; 3_000_002];
        copy.read_exact_at(&mut piece, FILE_BYTES / 2 - 1).unwrap();
        assert!(piece[0] == 0 && piece[1..3_000_001].iter().all(|byte| *byte == 7) && piece[3_000_001] == 0);
    }
}
