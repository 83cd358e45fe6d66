//! Processes that the client kills, because their start was cancelled, the answer to the start was lost, or their
//! handle was dropped.

use client::ExecServerError;
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, json};

use crate::support::{connect, params};

#[tokio::test]
async fn a_cancelled_start_frees_its_id_at_once_and_its_process_is_killed_after_the_answer() {
    let server = ScriptedServer::new();
    server.on("process/start", |_| ScriptedReply::Silence);
    let client = connect(&server).await;
    let starting = tokio::spawn({
        let client = client.clone();
        async move { client.start(params("p")).await.map(drop) }
    });
    let asked = server.wait_for("process/start", 1).await;
    starting.abort();
    assert!(starting.await.unwrap_err().is_cancelled());
    // In the client the id is free: it sends a second start, which the server refuses.
    server.on("process/start", |_| ScriptedReply::Error(-32600, "process p already exists".into()));
    assert!(matches!(client.start(params("p")).await, Err(ExecServerError::Server { code: -32600, .. })));
    assert_eq!(server.count("process/terminate"), 0);
    asked.answer(ScriptedReply::Result(json!({"processId": "p", "sandboxType": "none"})));
    assert_eq!(server.wait_for("process/terminate", 1).await.params, json!({"processId": "p"}));
}

#[tokio::test]
async fn a_cancelled_start_that_fails_is_followed_by_no_kill() {
    let server = ScriptedServer::new();
    server.on("process/start", |_| ScriptedReply::Silence);
    let client = connect(&server).await;
    let starting = tokio::spawn({
        let client = client.clone();
        async move { client.start(params("p")).await.map(drop) }
    });
    let asked = server.wait_for("process/start", 1).await;
    starting.abort();
    assert!(starting.await.unwrap_err().is_cancelled());
    asked.answer(ScriptedReply::Error(-32603, "No such file or directory (os error 2)".into()));
    client.close().await;
    assert_eq!(server.count("process/terminate"), 0);
}

#[tokio::test]
async fn the_process_of_a_lost_start_is_killed_over_a_later_connection() {
    let server = ScriptedServer::new();
    server.on("process/start", |_| ScriptedReply::Cut);
    let mut is_first = true;
    server.on("process/terminate", move |_| match std::mem::replace(&mut is_first, false) {
        true => ScriptedReply::Cut,
        false => ScriptedReply::Result(json!({"running": true})),
    });
    let client = connect(&server).await;
    let error = client.start(params("p")).await.err().unwrap();
    assert!(matches!(&error, ExecServerError::Disconnected(text) if text == "exec-server transport disconnected"));
    // The client repeats this terminate until the server answers it.
    for times in 1..=2 {
        assert_eq!(server.wait_for("process/terminate", times).await.params, json!({"processId": "p"}));
    }
    assert!(client.environment_status().await.is_ok());
    assert_eq!((server.count("process/start"), server.count("process/read"), server.connections_opened()), (1, 0, 3));
}

/// Nobody knows whether such a process runs, or in which sandbox.
#[tokio::test]
async fn a_process_whose_start_has_an_answer_that_cannot_be_decoded_is_killed() {
    for answer in [
        json!({"processId": "p", "sandboxType": "junk"}),
        json!({"processId": "p", "sandboxType": 5}),
        json!({"sandboxType": "none"}),
        json!(null),
    ] {
        let server = ScriptedServer::new();
        server.on("process/start", move |_| ScriptedReply::Result(answer.clone()));
        let client = connect(&server).await;
        let error = client.start(params("p")).await.err().unwrap();
        assert!(matches!(&error, ExecServerError::Json(_)), "{error}");
        assert_eq!(server.wait_for("process/terminate", 1).await.params, json!({"processId": "p"}));
    }
}

#[tokio::test]
async fn a_process_whose_handle_was_dropped_is_killed_even_after_a_cut() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    server.cut();
    drop(process);
    assert_eq!(server.wait_for("process/terminate", 1).await.params, json!({"processId": "p"}));
}
