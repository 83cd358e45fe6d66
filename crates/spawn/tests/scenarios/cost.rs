//! What a start costs. Ignored, because a number is for people: `cargo nextest run -p spawn --run-ignored only --no-capture cost`.

use std::time::Instant;

use crate::support::{PATIENCE, World, command, read_all, sh};

const ROUNDS: u32 = 500;

#[tokio::test]
#[ignore = "measures"]
async fn of_starts_and_ends() {
    let world = World::new();
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let running = world.start(&command(["/usr/bin/true"]));
        read_all(&running.stdout).await;
        read_all(&running.stderr).await;
        running.child.wait().await;
    }
    println!("spawn, read both streams, wait: {:?}", start.elapsed() / ROUNDS);

    let start = Instant::now();
    for _ in 0..ROUNDS {
        std::process::Command::new("/usr/bin/true").status().unwrap();
    }
    println!("std::process (bare posix_spawn, no pipes): {:?}", start.elapsed() / ROUNDS);

    let tree = world.start(&sh("sleep 1000 & sleep 1000 & echo ready; wait"));
    crate::support::read_until(&tree.stdout, "ready").await;
    let start = Instant::now();
    world.spawner.kill_tree(tree.tag, PATIENCE).unwrap();
    println!("kill a tree of three: {:?}", start.elapsed());

    let crowd: Vec<_> = (0..1000).map(|_| world.start(&command(["/usr/bin/sleep", "1000"]))).collect();
    let tree = world.start(&sh("sleep 1000 & sleep 1000 & echo ready; wait"));
    crate::support::read_until(&tree.stdout, "ready").await;
    let start = Instant::now();
    world.spawner.kill_tree(tree.tag, PATIENCE).unwrap();
    println!("kill a tree of three among 1,000 processes: {:?}", start.elapsed());
    let start = Instant::now();
    world.spawner.kill_session(&world.tags, PATIENCE).unwrap();
    println!("kill the 1,000: {:?}", start.elapsed());
    drop(crowd);
}
