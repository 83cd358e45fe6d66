//! Calls over one connection, and requests and notifications that the server sends to the client.

use std::time::Duration;

use client::{ConnectionState, ExecServerError, ReadParams};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, Value, json};
use tokio::task::JoinSet;

use crate::support::{connect, params, wait_for_state};

fn read_params(process: &str) -> ReadParams {
    ReadParams { process_id: process.into(), after_seq: None, max_bytes: None, wait_ms: None, part: None }
}

#[tokio::test]
async fn answers_find_their_calls_in_any_order() {
    let server = ScriptedServer::new();
    server.on("process/read", |_| ScriptedReply::Silence);
    let client = connect(&server).await;
    let answering = async {
        server.wait_for("process/read", 3).await;
        let asked: Vec<_> = server.received().into_iter().filter(|asked| asked.method == "process/read").collect();
        for asked in asked.iter().rev() {
            let number: u64 = asked.params["processId"].as_str().unwrap().parse().unwrap();
            asked.answer(ScriptedReply::Result(testkit::scripted::read_result([], number)));
        }
    };
    let [first, second, third] = ["1", "2", "3"].map(|process| client.read(read_params(process)));
    let (one, two, three, ()) = tokio::join!(first, second, third, answering);
    assert_eq!([one, two, three].map(|answer| answer.unwrap().next_seq), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_call_has_no_deadline() {
    let server = ScriptedServer::new();
    server.on("process/read", |_| ScriptedReply::Silence);
    let client = connect(&server).await;
    let mut call = Box::pin(client.read(read_params("p")));
    assert!(tokio::time::timeout(Duration::from_secs(61), &mut call).await.is_err());
    server.wait_for("process/read", 1).await.answer(ScriptedReply::Result(testkit::scripted::read_result([], 7)));
    assert_eq!(call.await.unwrap().next_seq, 7);
    assert_eq!(server.connections_opened(), 1);
}

#[tokio::test]
async fn calls_in_flight_are_limited_and_a_slot_is_reserved_for_cleanups() {
    let server = ScriptedServer::new();
    server.on("process/read", |_| ScriptedReply::Silence);
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut calls = JoinSet::new();
    for _ in 0..1024 {
        let client = client.clone();
        calls.spawn(async move { client.read(read_params("q")).await });
    }
    server.wait_for("process/read", 1024).await;
    // Answers without a request free no slot.
    for id in 5000..5010 {
        server.connection().answer(id, ScriptedReply::Result(json!({})));
    }
    let refused = client.environment_status().await.unwrap_err();
    assert!(matches!(refused, ExecServerError::TooManyRequests(1024)));
    assert_eq!(refused.to_string(), "exec-server has reached its limit of 1024 pending requests");
    drop(process);
    assert_eq!(server.wait_for("process/terminate", 1).await.params, json!({"processId": "p"}));
    calls.shutdown().await;
    assert!(client.environment_status().await.is_ok(), "the slots are free again when the calls are dropped");
    assert_eq!(server.connections_opened(), 1);
}

#[tokio::test]
async fn a_network_policy_request_is_denied() {
    let server = ScriptedServer::new();
    let _client = connect(&server).await;
    server.connection().request(0, "network/policyRequest", json!({"processId": "p"}));
    let answer = server.wait_for_answer(0).await;
    assert_eq!(answer["result"]["decision"], json!({"type": "deny", "reason": "not_allowed"}));
}

#[tokio::test]
async fn a_request_of_the_server_with_an_unknown_method_is_refused() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    server.connection().request(3, "files/please", Value::Null);
    let error = server.wait_for_answer(3).await["error"].clone();
    assert_eq!(error, json!({"code": -32601, "message": "exec-server client does not implement `files/please` yet"}));
    assert!(client.environment_status().await.is_ok());
    assert_eq!(server.connections_opened(), 1);
}

#[tokio::test]
async fn a_request_with_a_negative_id_ends_the_connection_and_the_client_recovers() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let first = server.connection();
    server.on("initialize", |_| ScriptedReply::Silence);
    first.request(-1, "network/policyRequest", json!({}));
    let text = "exec-server transport disconnected: exec-server sent an invalid request ID";
    assert_eq!(wait_for_loss(&client).await, text);
    first.wait_for_end().await;
    let resumed = server.wait_for("initialize", 2).await;
    resumed.answer(ScriptedReply::Result(json!({"sessionId": "session-1"})));
    wait_for_state(&client, |state| *state == ConnectionState::Connected).await;
}

/// Waits until the connection is lost, and returns the reason. The server must not answer the next `initialize`
/// before that, because then the client is connected again.
async fn wait_for_loss(client: &client::ExecServerClient) -> String {
    match wait_for_state(client, |state| *state != ConnectionState::Connected).await {
        ConnectionState::Recovering(text) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_notification_that_cannot_be_decoded_ends_the_connection_and_the_client_recovers() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    server.on("initialize", |_| ScriptedReply::Silence);
    server.push("process/exited", json!({"processId": "p"}));
    let text = wait_for_loss(&client).await;
    let expected =
        "exec-server transport disconnected: exec-server notification handling failed: missing field `seq`";
    assert!(text.starts_with(expected), "{text}");
    let resumed = server.wait_for("initialize", 2).await;
    resumed.answer(ScriptedReply::Result(json!({"sessionId": "session-1"})));
    wait_for_state(&client, |state| *state == ConnectionState::Connected).await;
}

#[tokio::test]
async fn an_unknown_notification_is_ignored() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    server.push("weather/changed", json!({"to": "rain"}));
    assert!(client.environment_status().await.is_ok());
    assert_eq!(server.connections_opened(), 1);
}
