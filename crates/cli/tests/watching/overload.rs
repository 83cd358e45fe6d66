//! A client that does not read the changes of its watch.

use std::fs;
use std::path::Path;

use testkit::{TestServer, resident_bytes};

use crate::support::{tree, watch};

const FILES: usize = 4000;

/// Names so long that reporting all of them takes more than a megabyte.
fn name(number: usize) -> String {
    format!("{}{number}", "x".repeat(200))
}

fn touch_all(tree: &Path) {
    for number in 0..FILES {
        fs::write(tree.join(name(number)), "").unwrap();
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_takes_little_memory_and_delays_no_other_client() {
    let (server, busy, quiet) = (TestServer::start().await, tree(), tree());
    touch_all(busy.path());
    let (mut deaf, mut other) = (server.client().await, server.client().await);
    let mut told = watch(&mut deaf, "w", busy.path()).await;
    let mut heard = watch(&mut other, "w", quiet.path()).await;
    let before = resident_bytes(server.pid());
    for round in 0..40 {
        touch_all(busy.path());
        let file = quiet.path().join(round.to_string());
        fs::write(&file, "").unwrap();
        heard.until(&mut other, "created", &file).await;
    }
    let grown = resident_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 48 << 20, "{grown} bytes for a client that does not read");
    let marker = busy.path().join("marker");
    fs::write(&marker, "").unwrap();
    let mut overflowed = false;
    loop {
        let params = told.next(&mut deaf).await;
        overflowed |= params["overflow"] == true;
        let marker = format!("file://{}", marker.display());
        let changes = params["changes"].as_array().unwrap();
        if overflowed && (params["overflow"] == true || changes.iter().any(|change| change["path"] == marker)) {
            break;
        }
    }
    let last = busy.path().join("last");
    fs::write(&last, "").unwrap();
    let wanted = format!("file://{}", last.display());
    while !told.next(&mut deaf).await["changes"].as_array().unwrap().iter().any(|change| change["path"] == wanted) {}
}
