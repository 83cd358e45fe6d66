//! The server needs little memory for large answers that a client does not read.

use testkit::{TestServer, eventually, json, resident_bytes, unbase64};

use crate::folder::{Folder, block, open};

const MIB: usize = 1 << 20;
/// How many blocks are requested. Less than the limit of unanswered requests of a connection.
const BLOCKS: usize = 2000;

#[tokio::test]
async fn blocks_for_a_client_that_does_not_read_take_little_memory() {
    let folder = Folder::new();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let contents: Vec<u8> = (0..MIB).map(|n| (n / 5) as u8).collect();
    let uri = folder.file("file", &contents);
    open(&mut client, "h", &uri).await;
    // These reads let the memory of the server grow to its usual size.
    for _ in 0..20 {
        client.call("fs/readBlock", block("h", 0, MIB as u64)).await;
    }
    let before = resident_bytes(server.pid());
    for _ in 0..BLOCKS {
        client.send("fs/readBlock", block("h", 0, MIB as u64)).await;
    }
    // Meanwhile the server must answer the requests of another session.
    let mut other = server.client().await;
    let mut peak = 0;
    for _ in 0..50 {
        let answer = other.call("fs/readFile", json!({"path": uri})).await;
        assert_eq!(unbase64(&answer["dataBase64"]).len(), MIB);
        peak = peak.max(resident_bytes(server.pid()));
    }
    assert!(peak < before + 64 * MIB, "{} MiB for answers that the client does not read", (peak - before) / MIB);
    for _ in 0..BLOCKS {
        let answer = client.receive_bytes().await.unwrap();
        assert!(answer.len() > 4 * MIB / 3 && answer.ends_with(b"\"eof\":false}}"));
        peak = peak.max(resident_bytes(server.pid()));
    }
    assert!(peak < before + 64 * MIB, "{} MiB while the client reads the answers", (peak - before) / MIB);
    eventually("the memory is returned", || (resident_bytes(server.pid()) < before + 32 * MIB).then_some(())).await;
}

#[tokio::test]
async fn whole_files_for_a_client_that_does_not_read_take_little_memory() {
    let folder = Folder::new();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let uri = folder.file("file", vec![7; 4 * MIB]);
    // These reads let the memory of the server grow to its usual size.
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
    let peak = resident_bytes(server.pid());
    assert!(peak < before + 64 * MIB, "{} MiB for answers that the client does not read", (peak - before) / MIB);
    // The server drops the requests of a closed connection.
    drop(client);
    eventually("the memory is returned", || (resident_bytes(server.pid()) < before + 32 * MIB).then_some(())).await;
}
