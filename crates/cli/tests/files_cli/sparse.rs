//! Files that are mostly holes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::time::{Duration, Instant};

use crate::support::World;

const SIZE: u64 = 20_000_000_000;

#[tokio::test]
async fn twenty_gigabytes_of_holes_take_no_time_and_no_room() {
    let world = World::new().await;
    let file = File::create(world.path("a")).unwrap();
    file.set_len(SIZE).unwrap();
    for at in [0, 5_000_000_000, SIZE / 2, SIZE - 10_000_000] {
        file.write_all_at(&[7; 3_000_000], at).unwrap();
    }
    let began = Instant::now();
    world.quietly(&["cp", &world.here("a"), &world.there("b")]).await;
    world.quietly(&["cp", &world.there("b"), &world.here("c")]).await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    for name in ["b", "c"] {
        let found = fs::metadata(world.path(name)).unwrap();
        assert_eq!(found.len(), SIZE);
        assert!(found.blocks() * 512 < 20_000_000, "{} blocks in {name}", found.blocks());
        let copy = File::open(world.path(name)).unwrap();
        let mut piece = vec![0; 3_000_002];
        copy.read_exact_at(&mut piece, SIZE / 2 - 1).unwrap();
        assert!(piece[0] == 0 && piece[1..3_000_001].iter().all(|byte| *byte == 7) && piece[3_000_001] == 0);
    }
}
