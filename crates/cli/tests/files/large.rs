//! Much at once: what a client that does not read may make the server hold.

use testkit::{TestServer, eventually, json, resident_bytes, unbase64};

use crate::folder::{Folder, block, open};

const MIB: usize = 1 << 20;
/// Blocks that are asked for, fewer than requests that may be unanswered.
const BLOCKS: usize = 2000;

#[tokio::test]
async fn a_client_that_does_not_read_makes_the_server_hold_little() {
    let folder = Folder::new();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let contents: Vec<u8> = (0..MIB).map(|n| (n / 5) as u8).collect();
    let uri = folder.file("file", &contents);
    open(&mut client, "h", &uri).await;
    for _ in 0..20 {
        client.call("fs/readBlock", block("h", 0, MIB as u64)).await;
    }
    let before = resident_bytes(server.pid());
    for _ in 0..BLOCKS {
        client.send("fs/readBlock", block("h", 0, MIB as u64)).await;
    }
    // Another session is served while this one waits, and by then the server has read all that was sent.
    let mut other = server.client().await;
    let mut most = 0;
    for _ in 0..50 {
        let answer = other.call("fs/readFile", json!({"path": uri})).await;
        assert_eq!(unbase64(&answer["dataBase64"]).len(), MIB);
        most = most.max(resident_bytes(server.pid()));
    }
    assert!(most < before + 64 * MIB, "{} MiB for answers that nobody reads", (most - before) / MIB);
    for _ in 0..BLOCKS {
        let answer = client.receive_bytes().await.unwrap();
        assert!(answer.len() > 4 * MIB / 3 && answer.ends_with(b"\"eof\":false}}"));
        most = most.max(resident_bytes(server.pid()));
    }
    assert!(most < before + 64 * MIB, "{} MiB while they are read", (most - before) / MIB);
    eventually("it is given back", || (resident_bytes(server.pid()) < before + 32 * MIB).then_some(())).await;
}

#[tokio::test]
async fn whole_files_that_nobody_reads_are_not_held_either() {
    let folder = Folder::new();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let uri = folder.file("file", vec![7; 4 * MIB]);
    for _ in 0..4 {
        client.call("fs/readFile", json!({"path": uri})).await;
    }
    let before = resident_bytes(server.pid());
    for _ in 0..500 {
        client.send("fs/readFile", json!({"path": uri})).await;
    }
    let mut other = server.client().await;
    for _ in 0..50 {
        other.call("fs/getMetadata", json!({"path": uri, "followSymlinks": false})).await;
    }
    let most = resident_bytes(server.pid());
    assert!(most < before + 64 * MIB, "{} MiB for answers that nobody reads", (most - before) / MIB);
    // What was asked for by somebody who is gone is not read any more.
    drop(client);
    eventually("it is given back", || (resident_bytes(server.pid()) < before + 32 * MIB).then_some(())).await;
}
