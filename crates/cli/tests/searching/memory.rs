//! Limits for the memory of all searches together and for the number of searches that run at the same time.

use testkit::{Client, TestServer, json};
use tokio::time::{Duration, timeout};

use crate::support::{SearchFixture, uri};

#[tokio::test]
async fn long_lines_do_not_fill_the_memory() {
    let one_line = vec![b'a'; 60 << 20];
    let fixture = SearchFixture::new(&[("one line", &one_line)]).await;
    drop(one_line);
    let before = testkit::peak_resident_bytes(fixture.server.pid());
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..2 {
        clients.push(fixture.server.client().await);
    }
    for client in &mut clients {
        for number in 0..4 {
            client.send("fs/search", fixture.params(json!({"searchId": number.to_string(), "pattern": "b+c"}))).await;
        }
    }
    for client in &mut clients {
        for _ in 0..4 {
            let answer = client.next().await;
            let expected = "the file has a line of more than 8 MiB, so it was searched only up to that line";
            assert_eq!(answer["result"]["errors"][0]["message"], expected, "{answer}");
        }
    }
    let grown = testkit::peak_resident_bytes(fixture.server.pid()) - before;
    assert!(grown < 192 << 20, "the server uses {grown} more bytes for eight searches");
}

/// A new client with a search that runs and has more matches than may wait to be sent. The client reads only the
/// first message, so the search waits and keeps its slot, which is one of `--max-searches`.
async fn client_with_stalled_search(server: &TestServer, params: testkit::Value) -> Client {
    let mut client = server.client().await;
    client.send("fs/search", params.clone()).await;
    // The first matches prove that the search runs.
    assert_eq!(client.next().await["method"], "fs/found");
    client
}

#[tokio::test]
async fn searches_wait_while_all_slots_are_taken() {
    let lines = format!("{}\n", "needle ".repeat(500)).repeat(20_000);
    let mut fixture =
        SearchFixture::with_args(&["--max-searches", "4"], &[("many", lines.as_bytes()), ("dir/few", b"x\n")]).await;
    let params = fixture.params(json!({"pattern": "needle"}));
    let few = json!({"searchId": "few", "path": uri(&fixture.tree.path().join("dir")), "pattern": "x"});

    // A session may have a quarter of the slots, which is one. So its second search waits. A search of another
    // session does not.
    let mut first = client_with_stalled_search(&fixture.server, params.clone()).await;
    first.send("fs/search", few.clone()).await;
    assert_eq!(fixture.search(json!({"pattern": "x", "globs": ["few"]})).await.paths(), ["dir/few"]);

    // A search that waits for a slot can be cancelled, and its id is free again.
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(client_with_stalled_search(&fixture.server, params.clone()).await);
    }
    let id = fixture.client.send("fs/search", few.clone()).await;
    let early = timeout(Duration::from_millis(100), fixture.client.next()).await;
    assert!(early.is_err(), "all slots are taken: {early:?}");
    fixture.client.call("fs/cancelSearch", json!({"searchId": "few"})).await;
    assert_eq!(fixture.client.answer(id).await["result"]["stopped"], true);

    // When a connection ends, its search ends, and another search gets the slot.
    let id = fixture.client.send("fs/search", few).await;
    drop(others.pop());
    assert_eq!(fixture.client.next().await["method"], "fs/found");
    assert_eq!(fixture.client.answer(id).await["result"]["matches"], 1);
}
