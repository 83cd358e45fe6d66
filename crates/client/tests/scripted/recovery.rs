//! Lost connections, sessions that another client took over, and missing events. A client that can reconnect resumes
//! its session and then catches up: it reads the events that it missed. Observers are clients that look at a session
//! and do not take it over.

use client::{ConnectionState, ExecProcessEvent, ExecServerError, WriteStatus};
use testkit::scripted::{ScriptedReply, read_result};
use testkit::{ScriptedServer, Value, base64, eventually, json};

use crate::support::{connect, connect_once, error_text, params, wait_for_failure, wait_for_state};

#[tokio::test]
async fn a_client_that_cannot_reconnect_fails_its_processes_and_refuses_new_ones() {
    let server = ScriptedServer::new();
    let client = connect_once(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.events();
    server.cut();
    let text = "exec-server transport disconnected";
    assert_eq!(events.next().await, Some(ExecProcessEvent::Failed(text.into())));
    assert_eq!(events.next().await, None);
    let read = process.read(None, None, None).await.unwrap();
    assert_eq!((read.failure.as_deref(), read.exited, read.closed, read.exit_code), (Some(text), true, true, None));
    assert!(read.chunks.is_empty() && !read.sandbox_denied);
    let refused = client.start(params("q")).await.err().unwrap();
    assert!(matches!(&refused, ExecServerError::Disconnected(words) if words == text), "{refused:?}");
    assert_eq!(wait_for_failure(&client).await, text);
    assert_eq!(server.connections_opened(), 1);
}

#[tokio::test]
async fn the_session_is_resumed_by_its_id() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    assert_eq!(client.session_id().unwrap().as_str(), "session-1");
    server.cut();
    assert!(client.environment_status().await.is_ok());
    let initialize: Vec<_> = server.received().into_iter().filter(|asked| asked.method == "initialize").collect();
    let resumed: Vec<_> = initialize.iter().map(|asked| asked.params["resumeSessionId"].clone()).collect();
    assert_eq!(resumed, [json!(null), json!("session-1")]);
    assert!(initialize[0].params.as_object().unwrap().contains_key("resumeSessionId"), "null is sent, not left out");
    assert_eq!(server.count("initialized"), 2);
}

#[tokio::test]
async fn an_answer_with_another_session_id_ends_the_recovery() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    server.on("initialize", |_| ScriptedReply::Result(json!({"sessionId": "other"})));
    server.cut();
    assert_eq!(
        wait_for_failure(&client).await,
        "exec-server transport disconnected; failed to resume exec-server session: exec-server protocol error: \
         exec-server initialized an unexpected session other"
    );
}

#[tokio::test]
async fn a_session_that_the_server_does_not_know_ends_the_recovery() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    server.on("initialize", |_| ScriptedReply::Error(-32600, "unknown session id session-1".into()));
    server.cut();
    let text =
        "exec-server transport disconnected; failed to resume exec-server session: unknown session id session-1";
    assert_eq!(error_text(client.environment_status().await), text);
    assert_eq!(server.count("initialize"), 2);
}

#[tokio::test]
async fn a_resume_that_is_refused_because_the_session_is_attached_is_repeated() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let mut refusals = 2;
    server.on("initialize", move |asked| {
        if refusals == 0 {
            return ScriptedReply::Result(json!({"sessionId": asked.params["resumeSessionId"]}));
        }
        refusals -= 1;
        ScriptedReply::Error(-32010, "session session-1 is already attached to another connection".into())
    });
    server.cut();
    assert!(client.environment_status().await.is_ok());
    assert_eq!(server.count("initialize"), 4);
}

#[tokio::test]
async fn events_right_after_the_answer_to_an_attach_are_not_missed() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    // The server counts pushed events as received and may drop them, so a second read does not return them.
    let without_pushed_events = json!({"chunks": [], "nextSeq": 4, "exited": false, "closed": false, "failure": null,
        "exitCode": null, "oldestSeq": 4, "gap": true, "droppedBytes": 12});
    let mut is_first = true;
    server.on("process/read", move |_| match std::mem::replace(&mut is_first, false) {
        true => ScriptedReply::Silence,
        false => ScriptedReply::Result(without_pushed_events.clone()),
    });
    let (process, ()) = tokio::join!(client.attach("p"), async {
        let asked = server.wait_for("process/read", 1).await;
        asked.answer(ScriptedReply::Result(read_result([(1, b"one".to_vec())], 2)));
        server.push_output("p", 2, "two");
        server.push_output("p", 3, "three");
    });
    let process = process.unwrap();
    let mut events = process.events();
    for (seq, text) in [(1, "one"), (2, "two"), (3, "three")] {
        let Some(ExecProcessEvent::Output(output)) = events.next().await else {
            panic!("output {seq} does not come")
        };
        assert_eq!((output.seq, &output.chunk[..]), (seq, text.as_bytes()));
    }
}

#[tokio::test]
async fn a_process_can_be_attached_after_an_attach_has_failed_or_was_cancelled() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    server.on("process/read", |_| ScriptedReply::Error(-32600, "unknown process id p".into()));
    assert_eq!(error_text(client.attach("p").await), "unknown process id p");
    server.on("process/read", |_| ScriptedReply::Silence);
    tokio::select! {
        _ = client.attach("p") => panic!("the server does not answer"),
        _ = server.wait_for("process/read", 2) => {}
    }
    server.on("process/read", |_| ScriptedReply::Result(read_result([], 1)));
    assert!(client.attach("p").await.is_ok());
}

/// The first answer to this method says that another connection has taken the session over. All later answers are
/// `then`.
fn refuse_once_as_taken_over(server: &ScriptedServer, method: &str, then: Value) {
    let mut is_first = true;
    server.on(method, move |_| match std::mem::replace(&mut is_first, false) {
        // The kind of the error counts, not its text.
        true => ScriptedReply::ErrorWithData(
            -32600,
            json!({"kind": "sessionResumedElsewhere"}),
            "somebody else has it".into(),
        ),
        false => ScriptedReply::Result(then.clone()),
    });
}

#[tokio::test]
async fn a_session_that_was_taken_over_is_resumed_if_the_server_knows_no_observers() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    refuse_once_as_taken_over(&server, "environment/status", json!({"status": "ready"}));
    assert!(client.environment_status().await.is_ok());
    assert_eq!((server.count("initialize"), server.count("environment/status")), (2, 2));
}

#[tokio::test]
async fn a_session_that_was_taken_over_is_not_resumed_if_the_server_knows_observers() {
    let server = ScriptedServer::new();
    server.on("environment/info", |_| {
        let shell = json!({"name": "sh", "path": "/bin/sh"});
        ScriptedReply::Result(json!({"shell": shell, "capabilities": {"sessionObserve": true}}))
    });
    let client = connect(&server).await;
    assert!(client.capabilities().await.unwrap().session_observe);
    let process = client.start(params("p")).await.unwrap();
    refuse_once_as_taken_over(&server, "environment/status", json!({"status": "ready"}));
    let text = "another client attached to this session";
    assert_eq!(error_text(client.environment_status().await), text);
    assert_eq!(process.events().next().await, Some(ExecProcessEvent::Failed(text.into())));
    assert_eq!(server.count("initialize"), 1);
}

#[tokio::test]
async fn a_session_that_is_taken_over_during_the_catch_up_is_resumed() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    refuse_once_as_taken_over(&server, "process/read", read_result([(1, b"one".to_vec())], 2));
    // After a failed catch-up, the client asks for the capabilities of the server before it catches up again.
    refuse_once_as_taken_over(&server, "environment/info", json!({"shell": {"name": "sh", "path": "/bin/sh"}}));
    let mut events = process.events();
    server.cut();
    let Some(ExecProcessEvent::Output(output)) = events.next().await else { panic!("missed output does not come") };
    assert_eq!((output.seq, &output.chunk[..]), (1, &b"one"[..]));
    assert_eq!(
        (server.count("initialize"), server.count("process/read"), server.count("environment/info")),
        (4, 2, 2)
    );
}

#[tokio::test]
async fn a_write_is_repeated_with_its_id_after_the_catch_up() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    server.push_output("p", 1, "one");
    let mut events = process.events();
    assert!(events.next().await.is_some());
    let mut is_first = true;
    server.on("process/write", move |_| match std::mem::replace(&mut is_first, false) {
        true => ScriptedReply::Cut,
        false => ScriptedReply::Result(json!({"status": "accepted"})),
    });
    server.on("process/read", |_| ScriptedReply::Result(read_result([(2, b"two".to_vec())], 3)));
    assert_eq!(process.write("input").await.unwrap(), WriteStatus::Accepted);
    let asked = server.received();
    let resumed = asked.iter().rposition(|asked| asked.method == "initialize").unwrap();
    let methods: Vec<_> = asked[resumed..].iter().map(|asked| asked.method.as_str()).collect();
    assert_eq!(methods, ["initialize", "initialized", "process/read", "process/write"]);
    let after = json!({"processId": "p", "afterSeq": 1, "maxBytes": null, "waitMs": 0});
    assert_eq!(asked[resumed + 2].params, after);
    let write = json!({"processId": "p", "chunk": base64("input"), "writeId": "1"});
    let writes: Vec<_> = asked.iter().filter(|asked| asked.method == "process/write").collect();
    assert_eq!([&writes[0].params, &writes[1].params], [&write, &write]);
    let Some(ExecProcessEvent::Output(output)) = events.next().await else { panic!("missed output does not come") };
    assert_eq!((output.seq, &output.chunk[..]), (2, &b"two"[..]));
}

#[tokio::test]
async fn signals_and_terminations_are_not_repeated() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    server.on("process/signal", |_| ScriptedReply::Cut);
    assert_eq!(error_text(process.signal(client::Signal::Interrupt).await), "exec-server transport disconnected");
    wait_for_state(&client, |state| *state == ConnectionState::Connected).await;
    server.on("process/terminate", |_| ScriptedReply::Cut);
    assert_eq!(error_text(process.terminate().await), "exec-server transport disconnected");
    assert!(client.environment_status().await.is_ok());
    assert_eq!((server.count("process/signal"), server.count("process/terminate")), (1, 1));
}

#[tokio::test]
async fn a_process_whose_events_are_lost_fails_alone() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let (lost, kept) = (client.start(params("lost")).await.unwrap(), client.start(params("kept")).await.unwrap());
    let mut events = lost.events();
    server.on("process/read", |asked| match asked.params["processId"].as_str().unwrap() {
        "lost" => ScriptedReply::Result(read_result([(5, b"five".to_vec())], 6)),
        _ => ScriptedReply::Result(read_result([], 1)),
    });
    server.cut();
    let text =
        "failed to recover process lost: process events are no longer retained while recovering through sequence 5";
    assert_eq!(events.next().await, Some(ExecProcessEvent::Failed(text.into())));
    assert_eq!(server.wait_for("process/terminate", 1).await.params["processId"], "lost");
    server.push_exited("kept", 1, 0);
    assert_eq!(kept.wait().await.unwrap().code, 0);
}

#[tokio::test]
async fn a_process_with_too_many_events_after_a_missing_event_fails_alone() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.events();
    for seq in 2..=258 {
        server.push_output("p", seq, "x");
    }
    let text = "process event reorder buffer exceeds 256 entries";
    assert_eq!(events.next().await, Some(ExecProcessEvent::Failed(text.into())));
    server.wait_for("process/terminate", 1).await;
    assert!(client.environment_status().await.is_ok());
}

#[tokio::test]
async fn a_missing_event_is_read() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.events();
    server
        .on("process/read", |_| ScriptedReply::Result(read_result([(1, b"one".to_vec()), (2, b"two".to_vec())], 3)));
    server.push_output("p", 2, "two");
    for expected in ["one", "two"] {
        let Some(ExecProcessEvent::Output(output)) = events.next().await else { panic!("{expected}") };
        assert_eq!(output.chunk, expected);
    }
    eventually("one read is enough", || (server.count("process/read") == 1).then_some(())).await;
}

#[tokio::test]
async fn an_event_that_is_missing_before_the_answer_to_the_start_is_read() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    server
        .on("process/read", |_| ScriptedReply::Result(read_result([(1, b"one".to_vec()), (2, b"two".to_vec())], 3)));
    server.on("process/start", |asked| {
        asked.connection.push_output("p", 2, "two");
        ScriptedReply::Result(json!({"processId": "p"}))
    });
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.events();
    let Some(ExecProcessEvent::Output(output)) = events.next().await else { panic!("missed output does not come") };
    assert_eq!((output.seq, &output.chunk[..]), (1, &b"one"[..]));
}

#[tokio::test]
async fn a_missing_event_that_the_server_does_not_have_fails_the_process_after_five_reads() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.events();
    server.push_output("p", 2, "two");
    let text = "failed to recover process p: the server sent later events and does not have event 1";
    assert_eq!(events.next().await, Some(ExecProcessEvent::Failed(text.into())));
    assert_eq!(server.count("process/read"), 5);
    assert_eq!(server.wait_for("process/terminate", 1).await.params["processId"], "p");
}

#[tokio::test]
async fn a_missing_event_that_cannot_be_read_fails_the_process() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.events();
    server.on("process/read", |_| ScriptedReply::Error(-32600, "unknown process id p".into()));
    server.push_output("p", 2, "two");
    let text = "failed to recover process p: unknown process id p";
    assert_eq!(events.next().await, Some(ExecProcessEvent::Failed(text.into())));
}

#[tokio::test]
async fn waiting_for_a_process_fails_if_the_server_closed_it_without_an_exit() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    server.on("process/read", |_| {
        let mut answer = read_result([], 1);
        answer["closed"] = json!(true);
        ScriptedReply::Result(answer)
    });
    server.cut();
    assert_eq!(error_text(process.wait().await), "the server closed the process and did not say how it exited");
}

#[tokio::test]
async fn a_read_that_returns_old_output_again_fails_the_process() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    let process = client.start(params("p")).await.unwrap();
    let mut events = process.events();
    server.push_output("p", 1, "one");
    assert!(matches!(events.next().await, Some(ExecProcessEvent::Output(_))));
    server.on("process/read", |_| {
        let mut answer = read_result([(1, b"one".to_vec())], 2);
        (answer["closed"], answer["exited"], answer["exitCode"]) = (json!(true), json!(true), json!(0));
        answer["exitSeq"] = json!(2);
        ScriptedReply::Result(answer)
    });
    // After an exit that does not say whether the sandbox denied something, the client sends a read.
    server.push("process/exited", json!({"processId": "p", "seq": 2, "exitCode": 0}));
    let text = "the server answers again with output that it has sent before";
    assert_eq!(events.next().await, Some(ExecProcessEvent::Failed(text.into())));
}
