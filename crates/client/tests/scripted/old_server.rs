//! Old servers, whose messages have fewer members and which know no observers: clients that look at a session beside
//! the client that is attached to it.

use client::{ExecProcessEvent, ExecServerClientConnectOptions};
use testkit::scripted::{ScriptedReply, exited_params, read_result};
use testkit::{ScriptedServer, json};

use crate::support::{connect, options, params, try_connect, wait_for_failure};

#[tokio::test]
async fn without_a_session_id_the_client_cannot_recover() {
    let server = ScriptedServer::new();
    server.on("initialize", |_| ScriptedReply::Result(json!({})));
    let client = connect(&server).await;
    assert_eq!(client.session_id(), None);
    assert!(client.environment_status().await.is_ok());
    server.cut();
    let text = "exec-server transport disconnected; failed to resume exec-server session: missing session id";
    assert_eq!(wait_for_failure(&client).await, text);
    assert_eq!(server.connections_opened(), 1);
}

#[tokio::test]
async fn a_close_without_a_sequence_number_comes_after_all_other_events() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.events();
    server.push_output("p", 1, "one");
    server.push_exited("p", 2, 4);
    server.push("process/closed", json!({"processId": "p"}));
    let mut received = Vec::new();
    while let Some(event) = events.next().await {
        received.push(event);
    }
    assert_eq!(received.len(), 3);
    assert_eq!(received[2], ExecProcessEvent::Closed { seq: 3 });
}

#[tokio::test]
async fn an_exit_that_does_not_say_whether_the_sandbox_denied_something_needs_one_read() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    server.on("process/read", |_| {
        let mut page = read_result([], 3);
        (page["exited"], page["exitCode"], page["closed"]) = (true.into(), 1.into(), true.into());
        page["sandboxDenied"] = true.into();
        ScriptedReply::Result(page)
    });
    server.push("process/exited", exited_params("p", 1, 1, None));
    server.push("process/closed", json!({"processId": "p", "seq": 2}));
    let output = process.wait_with_output().await.unwrap();
    assert_eq!((output.status.code, output.status.sandbox_denied), (1, true));
    assert_eq!(server.count("process/read"), 1);
}

#[tokio::test]
async fn the_sandbox_is_unknown_if_the_answer_to_the_start_does_not_name_it() {
    let server = ScriptedServer::new();
    server.on("process/start", |_| ScriptedReply::Result(json!({"processId": "p"})));
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    assert_eq!(process.sandbox_type(), None);
}

#[tokio::test]
async fn a_client_that_wants_to_observe_takes_the_session_over_if_the_server_knows_no_observers() {
    let server = ScriptedServer::new();
    server.on("initialize", |asked| match asked.params["takeover"] == true {
        true => ScriptedReply::Result(json!({"sessionId": "kept"})),
        false => ScriptedReply::Error(-32010, "session kept is already attached to another connection".into()),
    });
    let options =
        ExecServerClientConnectOptions { resume_session_id: Some("kept".into()), observe: true, ..options() };
    let client = try_connect(&server, options).await.unwrap();
    assert!(!client.observes().await.unwrap());
    let asked: Vec<_> = server.received().into_iter().filter(|asked| asked.method == "initialize").collect();
    let members: Vec<_> =
        asked.iter().map(|asked| (asked.params["observe"].clone(), asked.params["takeover"].clone())).collect();
    assert_eq!(members, [(json!(true), json!(null)), (json!(null), json!(true))]);
}
