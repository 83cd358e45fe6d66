//! Watches (`fs/watch`) that outlive their connection.

use std::fs;

use testkit::{Client, CuttingProxy, TestServer, json};

use crate::support::{WatchMessages, resume_watch, tree, wait_until_disconnected, watch};

#[tokio::test]
async fn changes_that_happen_while_no_client_is_connected_are_reported_over_the_next_connection() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let [first, second, third] = ["1", "2", "3"].map(|name| tree.path().join(name));
    let mut received = watch(&mut client, "w", tree.path()).await;
    fs::write(&first, "").unwrap();
    received.changes_until(&mut client, "created", &first).await;
    let session = client.session.clone();
    drop(client);
    wait_until_disconnected(&server).await;
    fs::write(&second, "").unwrap();
    let mut client = server.resume(&session).await;
    resume_watch(&mut client, &received, tree.path()).await;
    received.changes_until(&mut client, "created", &second).await;
    fs::write(&third, "").unwrap();
    received.changes_until(&mut client, "created", &third).await;
}

#[tokio::test]
async fn a_client_that_resumes_its_session_but_not_its_watch_gets_the_changes_all_the_same() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let mut received = watch(&mut client, "w", tree.path()).await;
    let session = client.session.clone();
    drop(client);
    wait_until_disconnected(&server).await;
    fs::write(tree.path().join("file"), "").unwrap();
    let mut client = server.connect_without_handshake().await;
    let id = client.send("initialize", json!({"clientName": "test", "resumeSessionId": session})).await;
    assert_eq!(client.next().await["id"], id, "no change is reported before the answer to the handshake");
    client.notify("initialized", json!({})).await;
    received.changes_until(&mut client, "created", &tree.path().join("file")).await;
}

#[tokio::test]
async fn a_watch_that_is_resumed_after_message_1_sends_all_later_messages_again() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let mut received = watch(&mut client, "w", tree.path()).await;
    let mut messages = Vec::new();
    for name in ["1", "2", "3"] {
        fs::write(tree.path().join(name), "").unwrap();
        messages.push(received.next(&mut client).await);
        while !messages.last().unwrap().to_string().contains(&format!("/{name}\"")) {
            messages.push(received.next(&mut client).await);
        }
    }
    let session = client.session.clone();
    drop(client);
    wait_until_disconnected(&server).await;
    let mut client = server.resume(&session).await;
    let mut repeated = WatchMessages { id: "w".into(), seq: 1 };
    resume_watch(&mut client, &repeated, tree.path()).await;
    for message in &messages[1..] {
        assert_eq!(repeated.next(&mut client).await, *message);
    }
}

#[tokio::test]
async fn more_changes_than_the_server_keeps_become_an_overflow_and_later_changes_follow() {
    let (server, tree) = (TestServer::start().await, tree());
    let mut client = server.client().await;
    let mut received = watch(&mut client, "w", tree.path()).await;
    let session = client.session.clone();
    drop(client);
    wait_until_disconnected(&server).await;
    // A server that reads these changes fast enough keeps only 10,000 of them. If it reads too slowly, the queue of
    // the kernel overflows. So there is an overflow in both cases.
    for number in 0..30_000 {
        fs::File::create(tree.path().join(number.to_string())).unwrap();
    }
    let mut client = server.resume(&session).await;
    resume_watch(&mut client, &received, tree.path()).await;
    while received.next(&mut client).await["overflow"] != true {}
    fs::write(tree.path().join("after"), "").unwrap();
    let after = format!("{}/after", tree.path().display());
    loop {
        let params = received.next(&mut client).await;
        let changes = params["changes"].as_array().unwrap();
        // A second overflow may be reported instead of the change.
        if params["overflow"] == true
            || changes.iter().any(|change| change["path"].as_str().unwrap().ends_with(&after))
        {
            break;
        }
    }
}

#[tokio::test]
async fn cut_connections_lose_no_change_and_repeat_none() {
    let (server, tree) = (TestServer::start().await, tree());
    let proxy = CuttingProxy::start(server.address()).await;
    let mut client = Client::connect(&proxy.url()).await;
    client.handshake(None).await;
    let session = client.session.clone();
    let mut received = watch(&mut client, "w", tree.path()).await;
    for round in 0..12 {
        let file = tree.path().join(round.to_string());
        fs::write(&file, "").unwrap();
        if round % 2 == 0 {
            // The message about the change may be in flight when the connection is cut.
            proxy.cut();
            wait_until_disconnected(&server).await;
            client = Client::connect(&proxy.url()).await;
            client.handshake(Some(&session)).await;
            resume_watch(&mut client, &received, tree.path()).await;
        }
        let changes = received.changes_until(&mut client, "created", &file).await;
        assert_eq!(changes.len(), 1, "{changes:?}");
    }
}
