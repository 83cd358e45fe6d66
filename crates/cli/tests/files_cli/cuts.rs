//! Connections that are cut during a copy: the copy continues over the next connection and does not begin again.

use std::fs;
use std::hash::Hasher as _;
use std::io::{Read as _, Write as _};
use std::path::Path;

use testkit::{CuttingProxy, eventually};

use crate::support::{CopyFixture, command_at, noise, snapshot, text_and_code, wait_for_output};

const FILE_BYTES: u64 = 1 << 30;
const CUTS: u64 = 10;

/// Writes a file of [`FILE_BYTES`] in which no block is equal to another.
fn write_large_file(path: &Path) {
    let block = noise(1 << 20, 9);
    let mut file = fs::File::create(path).unwrap();
    for number in 0..FILE_BYTES >> 20 {
        let mut block = block.clone();
        block[..8].copy_from_slice(&number.to_le_bytes());
        file.write_all(&block).unwrap();
    }
}

/// The size in bytes and a hash of the contents of a file.
fn size_and_hash(path: &Path) -> (u64, u64) {
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
async fn a_copy_with_ten_cuts_transfers_little_more_than_the_file() {
    let fixture = CopyFixture::new().await;
    write_large_file(&fixture.path("a"));
    let expected = size_and_hash(&fixture.path("a"));
    let proxy = CuttingProxy::start(fixture.server.address()).await;
    for (source, target) in [(fixture.local("a"), fixture.remote("b")), (fixture.remote("a"), fixture.local("c"))] {
        let before = proxy.bytes_passed();
        let child = command_at(&proxy.url(), &["cp", &source, &target]).spawn().unwrap();
        let copied = tokio::spawn(wait_for_output(child));
        for cut in 1..=CUTS {
            // The file is sent in base64, which makes four bytes of three.
            let cut_at = before + FILE_BYTES * 4 / 3 * cut / (CUTS + 1);
            eventually("enough bytes have passed for the next cut", || {
                (proxy.bytes_passed() >= cut_at || copied.is_finished()).then_some(())
            })
            .await;
            assert!(!copied.is_finished(), "the copy ended before cut {cut}");
            proxy.cut();
        }
        assert_eq!(text_and_code(&copied.await.unwrap()), (String::new(), String::new(), Some(0)));
        let passed = proxy.bytes_passed() - before;
        assert!(passed < FILE_BYTES * 3 / 2, "{passed} bytes were transferred for a file of {FILE_BYTES} bytes");
    }
    assert!(size_and_hash(&fixture.path("b")) == expected && size_and_hash(&fixture.path("c")) == expected);
}

#[tokio::test]
async fn a_tree_survives_many_cuts() {
    let fixture = CopyFixture::new().await;
    for number in 0..300_usize {
        let path = fixture.path(&format!("tree/{}/{number}", number % 7));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, noise(number * 300, number as u64)).unwrap();
        std::os::unix::fs::symlink(number.to_string(), path.with_extension("link")).unwrap();
    }
    let proxy = CuttingProxy::start(fixture.server.address()).await;
    for (source, target) in
        [(fixture.local("tree"), fixture.remote("b")), (fixture.remote("tree"), fixture.local("c"))]
    {
        let before = proxy.bytes_passed();
        let child = command_at(&proxy.url(), &["cp", "-r", &source, &target]).spawn().unwrap();
        let copied = tokio::spawn(wait_for_output(child));
        for cut in 1..=CUTS {
            let cut_at = before + 500_000 * cut;
            eventually("enough bytes have passed for the next cut", || {
                (proxy.bytes_passed() >= cut_at || copied.is_finished()).then_some(())
            })
            .await;
            proxy.cut();
        }
        assert_eq!(text_and_code(&copied.await.unwrap()), (String::new(), String::new(), Some(0)));
    }
    assert!(snapshot(&fixture.path("b")) == snapshot(&fixture.path("tree")));
    assert!(snapshot(&fixture.path("c")) == snapshot(&fixture.path("tree")));
}

#[tokio::test]
async fn a_tree_is_copied_over_connections_that_each_break_after_five_kilobytes() {
    let fixture = CopyFixture::new().await;
    for number in 0..60_usize {
        let path = fixture.path(&format!("tree/{}/{number}", number % 3));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, noise(number * 40, number as u64)).unwrap();
    }
    let proxy = CuttingProxy::start(fixture.server.address()).await;
    proxy.cut_each_after(5_000);
    for (source, target) in
        [(fixture.local("tree"), fixture.remote("b")), (fixture.remote("tree"), fixture.local("c"))]
    {
        let copied = command_at(&proxy.url(), &["cp", "-r", &source, &target]).spawn().unwrap();
        assert_eq!(text_and_code(&wait_for_output(copied).await), (String::new(), String::new(), Some(0)));
    }
    assert!(proxy.cuts_made() > 10, "{} connections were cut", proxy.cuts_made());
    assert!(snapshot(&fixture.path("b")) == snapshot(&fixture.path("tree")));
    assert!(snapshot(&fixture.path("c")) == snapshot(&fixture.path("tree")));
}
