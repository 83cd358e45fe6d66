//! How much memory searches take together, and how many of them run at once.

use testkit::{Client, TestServer, json};
use tokio::time::{Duration, timeout};

use crate::support::{World, uri};

#[tokio::test]
async fn long_lines_do_not_fill_the_memory() {
    let one_line = vec![b'a'; 60 << 20];
    let world = World::new(&[("one line", &one_line)]).await;
    drop(one_line);
    let before = testkit::peak_resident_bytes(world.server.pid());
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..2 {
        clients.push(world.server.client().await);
    }
    for client in &mut clients {
        for number in 0..4 {
            client.send("fs/search", world.params(json!({"searchId": number.to_string(), "pattern": "b+c"}))).await;
        }
    }
    for client in &mut clients {
        for _ in 0..4 {
            let answer = client.next().await;
            let expected = "it has a line of more than 8 MiB, so it was searched only up to there";
            assert_eq!(answer["result"]["errors"][0]["message"], expected, "{answer}");
        }
    }
    let grown = testkit::peak_resident_bytes(world.server.pid()) - before;
    assert!(grown < 192 << 20, "{grown} bytes for eight searches");
}

/// Begins a search with more results than may wait to be sent, and reads none of them.
async fn stalled(server: &TestServer, params: testkit::Value) -> Client {
    let mut client = server.client().await;
    client.send("fs/search", params.clone()).await;
    // Its first results have come, so it runs.
    assert_eq!(client.next().await["method"], "fs/found");
    client
}

#[tokio::test]
async fn searches_have_a_bound_in_all_and_a_session_has_a_quarter() {
    let lines = format!("{}\n", "needle ".repeat(500)).repeat(20_000);
    let mut world =
        World::with_args(&["--max-searches", "4"], &[("many", lines.as_bytes()), ("dir/few", b"x\n")]).await;
    let params = world.params(json!({"pattern": "needle"}));
    let few = json!({"searchId": "few", "path": uri(&world.tree.path().join("dir")), "pattern": "x"});

    // One session has one of the four places.
    let mut first = stalled(&world.server, params.clone()).await;
    let waiting = first.send("fs/search", few.clone()).await;
    assert_eq!(world.search(json!({"pattern": "x", "globs": ["few"]})).await.names(), ["dir/few"]);

    // A search that waits for its place can be cancelled, and its name is free again.
    let mut others = Vec::new();
    for _ in 0..3 {
        others.push(stalled(&world.server, params.clone()).await);
    }
    let id = world.client.send("fs/search", few.clone()).await;
    let early = timeout(Duration::from_millis(100), world.client.next()).await;
    assert!(early.is_err(), "all places are taken: {early:?}");
    world.client.call("fs/cancelSearch", json!({"searchId": "few"})).await;
    assert_eq!(world.client.answer(id).await["result"]["stopped"], true);

    // The place of a session that ends is for others.
    let id = world.client.send("fs/search", few).await;
    drop(others.pop());
    assert_eq!(world.client.next().await["method"], "fs/found");
    assert_eq!(world.client.answer(id).await["result"]["matches"], 1);
    assert!(waiting > 0);
}
