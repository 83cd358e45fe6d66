//! Connections that break in the middle of a copy: it goes on where it was.

use std::fs;
use std::hash::Hasher as _;
use std::io::{Read as _, Write as _};
use std::path::Path;

use testkit::{CuttingProxy, eventually};

use crate::support::{World, command_at, finished, noise, snapshot, told};

const FILE_BYTES: u64 = 1 << 30;
const CUTS: u64 = 10;

fn write_large(path: &Path) {
    let block = noise(1 << 20, 9);
    let mut file = fs::File::create(path).unwrap();
    for number in 0..FILE_BYTES >> 20 {
        let mut block = block.clone();
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&block).unwrap();
    }
}

fn hash(path: &Path) -> (u64, u64) {
    let mut file = fs::File::open(path).unwrap();
    let mut hasher = std::hash::DefaultHasher::new();
    let (mut buffer, mut total) = (vec![0; 1 << 20], 0);
    loop {
        let count = file.read(&mut buffer).unwrap();
        if count == 0 {
            return (total, hasher.finish());
        }
        total += count as u64;
        hasher.write(&buffer[..count]);
    }
}

#[tokio::test]
async fn ten_cuts_cost_little_more_than_none() {
    let world = World::new().await;
    write_large(&world.path("a"));
    let expected = hash(&world.path("a"));
    let proxy = CuttingProxy::start(world.server.address()).await;
    for (source, target) in [(world.here("a"), world.there("b")), (world.there("a"), world.here("c"))] {
        let before = proxy.passed();
        let child = command_at(&proxy.url(), &["cp", &source, &target]).spawn().unwrap();
        let copied = tokio::spawn(finished(child));
        for cut in 1..=CUTS {
            let place = before + FILE_BYTES * 4 / 3 * cut / (CUTS + 1);
            eventually("so much has passed", || (proxy.passed() >= place || copied.is_finished()).then_some(()))
                .await;
            assert!(!copied.is_finished(), "it was over before cut {cut}");
            proxy.cut();
        }
        assert_eq!(told(&copied.await.unwrap()), (String::new(), String::new(), Some(0)));
        let passed = proxy.passed() - before;
        assert!(passed < FILE_BYTES * 3 / 2, "{passed} bytes for {FILE_BYTES}");
    }
    assert!(hash(&world.path("b")) == expected && hash(&world.path("c")) == expected);
}

#[tokio::test]
async fn a_tree_survives_many_cuts() {
    let world = World::new().await;
    for number in 0..300_usize {
        let path = world.path(&format!("tree/{}/{number}", number % 7));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, noise(number * 300, number as u64)).unwrap();
        std::os::unix::fs::symlink(number.to_string(), path.with_extension("link")).unwrap();
    }
    let proxy = CuttingProxy::start(world.server.address()).await;
    for (source, target) in [(world.here("tree"), world.there("b")), (world.there("tree"), world.here("c"))] {
        let before = proxy.passed();
        let child = command_at(&proxy.url(), &["cp", "-r", &source, &target]).spawn().unwrap();
        let copied = tokio::spawn(finished(child));
        for cut in 1..=CUTS {
            let place = before + 500_000 * cut;
            eventually("so much has passed", || (proxy.passed() >= place || copied.is_finished()).then_some(()))
                .await;
            proxy.cut();
        }
        assert_eq!(told(&copied.await.unwrap()), (String::new(), String::new(), Some(0)));
    }
    assert!(snapshot(&world.path("b")) == snapshot(&world.path("tree")));
    assert!(snapshot(&world.path("c")) == snapshot(&world.path("tree")));
}

#[tokio::test]
async fn a_tree_passes_over_connections_of_five_kilobytes() {
    let world = World::new().await;
    for number in 0..60_usize {
        let path = world.path(&format!("tree/{}/{number}", number % 3));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, noise(number * 40, number as u64)).unwrap();
    }
    let proxy = CuttingProxy::start(world.server.address()).await;
    proxy.cut_each_after(5_000);
    for (source, target) in [(world.here("tree"), world.there("b")), (world.there("tree"), world.here("c"))] {
        let copied = command_at(&proxy.url(), &["cp", "-r", &source, &target]).spawn().unwrap();
        assert_eq!(told(&finished(copied).await), (String::new(), String::new(), Some(0)));
    }
    assert!(proxy.cuts_made() > 10, "{} connections were cut", proxy.cuts_made());
    assert!(snapshot(&world.path("b")) == snapshot(&world.path("tree")));
    assert!(snapshot(&world.path("c")) == snapshot(&world.path("tree")));
}
