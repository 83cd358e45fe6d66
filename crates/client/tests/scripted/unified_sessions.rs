//! Commands of unified exec that continue after the call that started them has returned. A session is the id by which
//! later calls find such a command.

use std::time::Duration;

use client::{
    ExecCommandRequest, ExecSessionId, StdinOutcome, UnifiedExec, UnifiedExecError, UnifiedExecOptions,
    WriteStdinRequest,
};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, base64, json};

use crate::support::connect;
use crate::unified::{begin, request, unified_exec};

/// Limit of the output that a call of `terminate` returns.
const MAX_OUTPUT_BYTES: usize = 1000;

/// A command on a terminal. The call that starts it returns at once.
fn interactive_request() -> ExecCommandRequest {
    let mut request = request();
    (request.tty, request.yield_time) = (true, Duration::ZERO);
    request
}

/// Starts a command that runs in the background and has written nothing.
async fn start_in_background(exec: &UnifiedExec) -> ExecSessionId {
    let response = exec.exec_command(interactive_request()).await.unwrap();
    assert_eq!((response.exit_code, response.output.as_str()), (None, ""));
    response.session.unwrap()
}

/// A write whose call waits for up to 20 seconds.
fn write_with_long_wait(session: ExecSessionId, chars: &str) -> WriteStdinRequest {
    WriteStdinRequest { yield_time: Duration::from_secs(20), ..WriteStdinRequest::new(session, chars) }
}

#[tokio::test(start_paused = true)]
async fn a_call_returns_after_its_yield_time() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let mut request = request();
    request.yield_time = Duration::from_secs(7);
    let (running, id) = begin(&server, &exec, request, 1).await;
    server.push_output(&id, 1, "so far");
    let response = running.await.unwrap().unwrap();
    assert_eq!((response.output.as_str(), response.exit_code), ("so far", None));
    assert_eq!(response.wall_time.as_secs(), 7);
    assert_eq!(exec.sessions(), [response.session.unwrap()]);
}

#[tokio::test]
async fn each_call_writes_its_input_and_returns_new_output_until_the_command_ends() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let session = start_in_background(&exec).await;
    let id = session.to_string();
    server.push_output(&id, 1, ">>> ");
    server.on("process/write", |asked| {
        assert_eq!(asked.params["chunk"], base64("6*7\n"));
        asked.connection.push_output("1", 2, "42\n");
        ScriptedReply::Result(json!({"status": "accepted"}))
    });
    // The call returns when the command has written something and then nothing for 20 ms.
    let settle = Some(Duration::from_millis(20));
    let request = WriteStdinRequest { settle, ..write_with_long_wait(session, "6*7\n") };
    let response = exec.write_stdin(request).await.unwrap();
    assert_eq!((response.output.as_str(), response.stdin), (">>> 42\n", StdinOutcome::Taken));
    assert_eq!(response.session, Some(session));
    server.push_output(&id, 3, b"bye\xff");
    server.push_exited(&id, 4, 0);
    server.push_closed(&id, 5);
    let last = exec.write_stdin(write_with_long_wait(session, "")).await.unwrap();
    assert_eq!((last.output.as_str(), last.exit_code, last.session), ("bye\u{fffd}", Some(0), None));
    assert_eq!(server.count("process/read"), 0);
    let gone = exec.write_stdin(write_with_long_wait(session, "more")).await.unwrap_err();
    assert_eq!(gone.to_string(), "session 1 has ended with exit code 0; start the command again");
    assert!(matches!(gone, UnifiedExecError::SessionEnded { exit_code: Some(0), .. }));
}

#[tokio::test]
async fn an_unknown_session_is_an_error() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let unknown = exec.write_stdin(write_with_long_wait(ExecSessionId(99), "")).await.unwrap_err();
    assert_eq!(unknown.to_string(), "unknown session 99");
}

#[tokio::test]
async fn a_write_to_a_closed_stdin_ends_the_command() {
    for status in ["unknownProcess", "stdinClosed"] {
        let server = ScriptedServer::new();
        let exec = unified_exec(&server).await;
        let session = start_in_background(&exec).await;
        server.on("process/write", move |asked| {
            asked.connection.push_output("1", 1, "last words");
            ScriptedReply::Result(json!({"status": status}))
        });
        let response = exec.write_stdin(write_with_long_wait(session, "x")).await.unwrap();
        assert_eq!((response.stdin, response.session), (StdinOutcome::Closed, None), "{status}");
        assert_eq!((response.output.as_str(), response.exit_code), ("last words", None));
        assert!(matches!(
            exec.write_stdin(write_with_long_wait(session, "")).await,
            Err(UnifiedExecError::SessionEnded { exit_code: None, .. })
        ));
        // The process is killed.
        server.wait_for("process/terminate", 1).await;
    }
}

#[tokio::test]
async fn an_exit_in_flight_is_reported_with_the_closed_stdin() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let session = start_in_background(&exec).await;
    server.on("process/write", |asked| {
        asked.answer(ScriptedReply::Result(json!({"status": "stdinClosed"})));
        asked.connection.push("process/exited", testkit::scripted::exited_params("1", 1, 3, Some(false)));
        asked.connection.push("process/closed", json!({"processId": "1", "seq": 2}));
        ScriptedReply::Silence
    });
    let response = exec.write_stdin(write_with_long_wait(session, "x")).await.unwrap();
    assert_eq!((response.stdin, response.exit_code), (StdinOutcome::Closed, Some(3)));
}

#[tokio::test]
async fn a_command_without_stdin_refuses_input_and_continues() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let mut request = request();
    request.yield_time = Duration::ZERO;
    let session = exec.exec_command(request).await.unwrap().session.unwrap();
    let refused = exec.write_stdin(write_with_long_wait(session, "x")).await.unwrap_err();
    assert_eq!(refused.to_string(), "session 1 has no stdin; start the command with tty or stdin to write to it");
    assert_eq!((server.count("process/write"), exec.sessions()), (0, vec![session]));
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_write_is_not_answered_returns_after_its_yield_time() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let session = start_in_background(&exec).await;
    server.on("process/write", |_| ScriptedReply::Silence);
    let response = exec.write_stdin(write_with_long_wait(session, "x")).await.unwrap();
    assert_eq!((response.stdin, response.session), (StdinOutcome::Pending, Some(session)));
    assert_eq!(response.wall_time.as_secs(), 20);
}

#[tokio::test]
async fn the_end_of_a_command_in_the_background_is_pushed_and_returned_by_the_next_call() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let mut completions = exec.subscribe_completions();
    let (foreground, id) = begin(&server, &exec, request(), 1).await;
    server.push_exited(&id, 1, 0);
    server.push_closed(&id, 2);
    foreground.await.unwrap().unwrap();
    let session = start_in_background(&exec).await;
    let id = session.to_string();
    server.push_output(&id, 1, "done");
    server.push_exited(&id, 2, 9);
    server.push_closed(&id, 3);
    let completion = completions.recv().await.unwrap();
    assert_eq!(
        (completion.session, completion.exit_code),
        (session, Some(9)),
        "only commands in the background are reported"
    );
    assert_eq!((completion.output_tail.as_str(), completion.failure), ("done", None));
    assert_eq!((server.count("process/read"), server.count("process/write")), (0, 0));
    // The next call returns the output, and does not send its input.
    let collected = exec.write_stdin(write_with_long_wait(session, "too late")).await.unwrap();
    assert_eq!((collected.output.as_str(), collected.stdin), ("done", StdinOutcome::Closed));
    assert_eq!(server.count("process/write"), 0);
    drop(exec);
    assert_eq!(completions.recv().await, None);
}

#[tokio::test]
async fn running_commands_are_limited_and_a_new_command_replaces_an_ended_command() {
    let server = ScriptedServer::new();
    let options = UnifiedExecOptions { max_sessions: 2, ..Default::default() };
    let exec = UnifiedExec::new(connect(&server).await, options);
    let mut completions = exec.subscribe_completions();
    let (first, second) = (start_in_background(&exec).await, start_in_background(&exec).await);
    let refused = exec.exec_command(interactive_request()).await.unwrap_err();
    assert_eq!(refused.to_string(), "2 commands are running, which is the limit; end one of them first");
    assert_eq!(server.count("process/start"), 2);
    server.push_exited(&first.to_string(), 1, 5);
    server.push_closed(&first.to_string(), 2);
    completions.recv().await.unwrap();
    let third = start_in_background(&exec).await;
    assert_eq!(exec.sessions(), [second, third]);
    let forgotten = exec.write_stdin(write_with_long_wait(first, "")).await.unwrap_err();
    assert!(matches!(forgotten, UnifiedExecError::SessionEnded { exit_code: Some(5), .. }));
    assert_eq!(server.count("process/terminate"), 0);
}

#[tokio::test]
async fn dropping_the_last_clone_kills_all_commands() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let session = start_in_background(&exec).await;
    let clone = exec.clone();
    drop(exec);
    assert_eq!(clone.sessions(), [session]);
    drop(clone);
    assert_eq!(server.wait_for("process/terminate", 1).await.params, json!({"processId": "1"}));
    server.connection().wait_for_end().await;
}

#[tokio::test]
async fn a_command_can_be_interrupted_and_killed() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let session = start_in_background(&exec).await;
    exec.interrupt(session).await.unwrap();
    assert_eq!(server.wait_for("process/signal", 1).await.params, json!({"processId": "1", "signal": "interrupt"}));
    server.on("process/terminate", |asked| {
        asked.connection.push("process/exited", testkit::scripted::exited_params("1", 1, 137, Some(false)));
        asked.connection.push("process/closed", json!({"processId": "1", "seq": 2}));
        ScriptedReply::Result(json!({"running": true}))
    });
    let last = exec.terminate(session, MAX_OUTPUT_BYTES).await.unwrap();
    assert_eq!((last.exit_code, last.session, last.failure), (Some(137), None, None));
    assert!(exec.interrupt(session).await.is_err());
}

#[tokio::test]
async fn a_terminate_that_the_server_refuses_changes_nothing() {
    let server = ScriptedServer::new();
    let exec = unified_exec(&server).await;
    let session = start_in_background(&exec).await;
    server.on("process/terminate", |_| ScriptedReply::Error(-32603, "not now".into()));
    assert!(exec.terminate(session, MAX_OUTPUT_BYTES).await.is_err());
    exec.interrupt(session).await.unwrap();
    server.on("process/terminate", |asked| {
        asked.connection.push("process/exited", testkit::scripted::exited_params("1", 1, 137, Some(false)));
        asked.connection.push("process/closed", json!({"processId": "1", "seq": 2}));
        ScriptedReply::Result(json!({"running": true}))
    });
    assert_eq!(exec.terminate(session, MAX_OUTPUT_BYTES).await.unwrap().exit_code, Some(137));
}
