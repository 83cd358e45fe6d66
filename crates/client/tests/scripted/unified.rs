//! Unified exec, the part of the client that runs commands for an AI agent: commands that end before their call
//! returns, and the requests that the client sends for them. Only a command that continues after its call has a
//! session, the id by which later calls find it.

use std::time::Duration;

use client::{ExecCommandRequest, ExecCommandResponse, StdinOutcome, UnifiedExec, UnifiedExecError};
use testkit::scripted::{ScriptedReply, exited_params, read_result};
use testkit::{ScriptedServer, json};
use tokio::task::JoinHandle;

use crate::support::{connect, connect_once};

pub(crate) type RunningCommand = JoinHandle<Result<ExecCommandResponse, UnifiedExecError>>;

pub(crate) fn request() -> ExecCommandRequest {
    ExecCommandRequest::argv(["make", "test"], "file:///repository".parse().unwrap())
}

pub(crate) async fn unified_exec(server: &ScriptedServer) -> UnifiedExec {
    UnifiedExec::new(connect(server).await, Default::default())
}

/// Runs a command and waits until the server has got its start, which is start number `nth_start` of this test.
/// Returns the running call and the id of the process.
pub(crate) async fn begin(
    server: &ScriptedServer,
    exec: &UnifiedExec,
    request: ExecCommandRequest,
    nth_start: usize,
) -> (RunningCommand, String) {
    let exec = exec.clone();
    let running = tokio::spawn(async move { exec.exec_command(request).await });
    let started = server.wait_for("process/start", nth_start).await;
    (running, started.params["processId"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_complete_stream_of_events_needs_no_read() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let (running, id) = begin(&server, &exec, request(), 1).await;
    assert_eq!(id, "1");
    server.push_output(&id, 1, "hel");
    server.push_output(&id, 2, "lo\n");
    server.push_exited(&id, 3, 7);
    server.push_closed(&id, 4);
    let response = running.await.unwrap().unwrap();
    assert_eq!(response.output, "hello\n");
    assert_eq!((response.exit_code, response.session, response.sandbox_denied), (Some(7), None, false));
    assert_eq!((response.original_bytes, response.omitted_bytes, response.stdin), (6, 0, StdinOutcome::Untouched));
    assert_eq!(server.count("process/read"), 0);
    assert!(exec.sessions().is_empty());
    drop(exec);
    assert_eq!(server.count("process/terminate"), 0, "the command has ended by itself");
}

#[tokio::test]
async fn a_command_is_started_as_requested() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let mut request = ExecCommandRequest::shell("echo $X", "file:///tmp".parse().unwrap());
    request.env.insert("X".into(), "1".into());
    (request.env_policy, request.tty, request.timeout) = (None, true, Some(Duration::from_secs(3)));
    let (running, _) = begin(&server, &exec, request, 1).await;
    running.abort();
    let params = server.wait_for("process/start", 1).await.params;
    assert_eq!(params["argv"], json!(["/bin/sh", "-c", "echo $X"]), "the shell that the server names");
    let sent = ["cwd", "env", "envPolicy", "tty", "pipeStdin", "timeoutMs"].map(|name| params[name].clone());
    assert_eq!(json!(sent), json!(["file:///tmp", {"X": "1"}, null, true, false, 3000]));
}

#[tokio::test]
async fn an_exit_that_does_not_say_whether_the_sandbox_denied_something_needs_one_read() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    server.on("process/read", |_| {
        let mut page = read_result([], 4);
        (page["exited"], page["exitCode"], page["closed"]) = (true.into(), 1.into(), true.into());
        page["sandboxDenied"] = true.into();
        ScriptedReply::Result(page)
    });
    let (running, id) = begin(&server, &exec, request(), 1).await;
    server.push_output(&id, 1, "denied");
    server.push("process/exited", exited_params(&id, 2, 1, None));
    server.push_closed(&id, 3);
    let response = running.await.unwrap().unwrap();
    assert_eq!((response.output.as_str(), response.exit_code, response.sandbox_denied), ("denied", Some(1), true));
    let reads: Vec<_> = server.received().into_iter().filter(|asked| asked.method == "process/read").collect();
    assert_eq!(reads.len(), 1);
    assert_eq!(reads[0].params, json!({"processId": id, "afterSeq": 1, "maxBytes": null, "waitMs": 0}));
}

#[tokio::test]
async fn events_before_the_answer_to_the_start_are_not_lost() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let letter = |seq: u64| vec![b'a' + (seq % 26) as u8];
    server.on("process/start", move |asked| {
        for seq in 1..=1024 {
            asked.connection.push_output("1", seq, letter(seq));
        }
        ScriptedReply::Result(json!({"processId": "1", "sandboxType": "none"}))
    });
    let (running, id) = begin(&server, &exec, request(), 1).await;
    server.push_exited(&id, 1025, 0);
    server.push_closed(&id, 1026);
    let response = running.await.unwrap().unwrap();
    let expected: Vec<u8> = (1..=1024).flat_map(letter).collect();
    assert_eq!(response.output.as_bytes(), expected);
    assert_eq!((response.exit_code, response.original_bytes), (Some(0), 1024));
    assert_eq!(server.count("process/read"), 0);
}

#[tokio::test]
async fn much_output_is_shortened_in_the_middle() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let mut short = request();
    short.max_output_bytes = 10;
    let (running, id) = begin(&server, &exec, short, 1).await;
    server.push_output(&id, 1, "12345 and many more ");
    server.push_output(&id, 2, "67890");
    server.push_exited(&id, 3, 0);
    server.push_closed(&id, 4);
    let response = running.await.unwrap().unwrap();
    assert_eq!(response.output, "12345\n[... 15 bytes omitted ...]\n67890");
    assert_eq!((response.original_bytes, response.omitted_bytes), (25, 15));
}

#[tokio::test]
async fn a_command_whose_connection_is_lost_returns_its_output_and_the_error() {
    let server = ScriptedServer::new();
    let exec = UnifiedExec::new(connect_once(&server).await, Default::default());
    let (running, id) = begin(&server, &exec, request(), 1).await;
    server.push_output(&id, 1, "so far");
    // When the client answers this request, it has got the output that was sent before.
    server.connection().request(1, "test/echo", json!({}));
    server.wait_for_answer(1).await;
    server.cut();
    let response = running.await.unwrap().unwrap();
    assert_eq!((response.output.as_str(), response.exit_code, response.session), ("so far", None, None));
    assert_eq!(response.failure.as_deref(), Some("exec-server transport disconnected"));
    let refused = exec.exec_command(request()).await.unwrap_err();
    assert_eq!(refused.to_string(), "exec-server transport disconnected");
}

#[tokio::test]
async fn an_empty_command_is_refused() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let empty = ExecCommandRequest::argv([""; 0], "file:///".parse().unwrap());
    assert!(matches!(exec.exec_command(empty).await, Err(UnifiedExecError::EmptyCommand)));
    assert_eq!(server.count("process/start"), 0);
}

#[tokio::test]
async fn dropping_the_future_of_a_command_kills_the_command() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    // The future is dropped while the command runs.
    let (running, id) = begin(&server, &exec, request(), 1).await;
    server.push_output(&id, 1, "busy");
    running.abort();
    assert_eq!(server.wait_for("process/terminate", 1).await.params, json!({"processId": id}));
    // The future is dropped before the start is answered.
    server.on("process/start", |_| ScriptedReply::Silence);
    let (running, id) = begin(&server, &exec, request(), 2).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    let started = server.wait_for("process/start", 2).await;
    started.answer(ScriptedReply::Result(json!({"processId": id, "sandboxType": "none"})));
    assert_eq!(server.wait_for("process/terminate", 2).await.params, json!({"processId": id}));
    assert!(exec.sessions().is_empty());
}
