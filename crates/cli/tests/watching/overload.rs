//! A client that does not read the changes of its watch (`fs/watch`). If too many changes wait, the server drops them
//! and reports an overflow instead.

use std::fs;
use std::path::Path;

use testkit::{TestServer, resident_bytes};

use crate::support::{tree, watch};

const FILES: usize = 4000;

/// The name of a file. Names are so long that the changes of all files together are more than a megabyte.
fn name(number: usize) -> String {
    format!("{}{number}", "x".repeat(200))
}

fn touch_all(tree: &Path) {
    for number in 0..FILES {
        fs::write(tree.join(name(number)), "").unwrap();
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_takes_little_memory_delays_no_other_client_and_gets_an_overflow() {
    let (server, busy, quiet) = (TestServer::start().await, tree(), tree());
    touch_all(busy.path());
    let (mut silent, mut other) = (server.client().await, server.client().await);
    let mut silent_messages = watch(&mut silent, "w", busy.path()).await;
    let mut other_messages = watch(&mut other, "w", quiet.path()).await;
    let before = resident_bytes(server.pid());
    for round in 0..40 {
        touch_all(busy.path());
        let file = quiet.path().join(round.to_string());
        fs::write(&file, "").unwrap();
        other_messages.changes_until(&mut other, "created", &file).await;
    }
    let grown = resident_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 48 << 20, "the server uses {grown} more bytes for a client that does not read");
    while silent_messages.next(&mut silent).await["overflow"] != true {}
    // After the overflow, changes are reported as usual.
    let last = busy.path().join("last");
    fs::write(&last, "").unwrap();
    let wanted = format!("file://{}", last.display());
    while !silent_messages.next(&mut silent).await["changes"]
        .as_array()
        .unwrap()
        .iter()
        .any(|change| change["path"] == wanted)
    {}
}
