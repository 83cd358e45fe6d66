//! Commands to which the sandbox has denied something. A decider, which the caller provides, can approve that such a
//! command runs again without the sandbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client::{
    Approval, ApprovalDecider, ApprovalRequest, Deciding, ExecCommandRequest, UnifiedExec, UnifiedExecOptions,
};
use testkit::scripted::{ScriptedReply, exited_params};
use testkit::{ScriptedServer, json};

use crate::support::connect;
use crate::unified::{begin, request, unified_exec};

/// Gives the same answer to each request, and counts the requests.
struct FixedDecider {
    answer: Approval,
    asked: AtomicUsize,
}

impl ApprovalDecider for FixedDecider {
    fn decide<'a>(&'a self, request: ApprovalRequest<'a>) -> Deciding<'a> {
        assert_eq!(request.argv, ["make", "test"]);
        assert!(request.denied.sandbox_denied && request.denied.output == "no!");
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(self.answer))
    }
}

fn sandboxed_request() -> ExecCommandRequest {
    let mut request = request();
    request.sandbox = Some(raw_json(r#"{"mode":"read-only"}"#));
    request
}

fn raw_json(text: &str) -> Box<serde_json::value::RawValue> {
    serde_json::value::RawValue::from_string(text.to_owned()).unwrap()
}

/// A server on which every command is denied something and ends.
fn server_that_denies() -> ScriptedServer {
    let server = ScriptedServer::new();
    server.on("process/start", |asked| {
        let id = asked.params["processId"].as_str().unwrap();
        asked.connection.push_output(id, 1, "no!");
        asked.connection.push("process/exited", exited_params(id, 2, 1, Some(true)));
        asked.connection.push("process/closed", json!({"processId": id, "seq": 3}));
        ScriptedReply::Result(json!({"processId": id, "sandboxType": "linuxSeccomp"}))
    });
    server
}

async fn unified_with_decider(server: &ScriptedServer, answer: Approval) -> (UnifiedExec, Arc<FixedDecider>) {
    let decider = Arc::new(FixedDecider { answer, asked: AtomicUsize::new(0) });
    let options = UnifiedExecOptions { approval: Some(decider.clone()), ..Default::default() };
    (UnifiedExec::new(connect(server).await, options), decider)
}

#[tokio::test]
async fn a_denial_that_was_pushed_needs_no_read() {
    let server = server_that_denies();
    let exec = unified_exec(&server).await;
    let response = exec.exec_command(sandboxed_request()).await.unwrap();
    assert_eq!((response.output.as_str(), response.exit_code), ("no!", Some(1)));
    assert!(response.sandbox_denied && !response.ran_without_sandbox);
    assert_eq!((server.count("process/start"), server.count("process/read")), (1, 0));
}

#[tokio::test]
async fn the_process_id_of_a_sandboxed_command_ends_with_a_uuid() {
    let server = server_that_denies();
    let exec = unified_exec(&server).await;
    exec.exec_command(sandboxed_request()).await.unwrap();
    let id =
        server.received().iter().find(|asked| asked.method == "process/start").unwrap().params["processId"].clone();
    let (number, uuid) = id.as_str().unwrap().split_once('-').unwrap();
    assert_eq!((number, uuid.len()), ("1", 36));
}

#[tokio::test]
async fn with_approval_the_command_runs_again_without_the_sandbox() {
    let server = server_that_denies();
    let (exec, decider) = unified_with_decider(&server, Approval::Approved).await;
    let response = exec.exec_command(sandboxed_request()).await.unwrap();
    assert!(response.ran_without_sandbox, "{response:?}");
    assert_eq!(decider.asked.load(Ordering::SeqCst), 1, "the second run needs no approval");
    let starts: Vec<_> = server.received().into_iter().filter(|asked| asked.method == "process/start").collect();
    assert_eq!(starts.len(), 2);
    assert_eq!(starts[0].params["sandbox"], json!({"mode": "read-only"}));
    assert_eq!((starts[1].params.get("sandbox"), &starts[1].params["processId"]), (None, &json!("2")));
    assert_eq!(server.count("process/read"), 0);
}

#[tokio::test]
async fn without_approval_the_denial_is_the_result() {
    let server = server_that_denies();
    let (exec, decider) = unified_with_decider(&server, Approval::Refused).await;
    let response = exec.exec_command(sandboxed_request()).await.unwrap();
    assert!(response.sandbox_denied && !response.ran_without_sandbox && response.output == "no!");
    assert_eq!((decider.asked.load(Ordering::SeqCst), server.count("process/start")), (1, 1));
}

#[tokio::test]
async fn without_a_sandbox_no_approval_is_requested() {
    let server = server_that_denies();
    let (exec, decider) = unified_with_decider(&server, Approval::Approved).await;
    let response = exec.exec_command(request()).await.unwrap();
    assert!(response.sandbox_denied && !response.ran_without_sandbox);
    assert_eq!((decider.asked.load(Ordering::SeqCst), server.count("process/start")), (0, 1));
}

#[tokio::test]
async fn processes_that_a_denied_command_has_left_are_killed_if_it_runs_again() {
    let server = ScriptedServer::new();
    let (exec, _) = unified_with_decider(&server, Approval::Approved).await;
    let mut request = sandboxed_request();
    request.yield_time = std::time::Duration::from_millis(200);
    let (running, first) = begin(&server, &exec, request, 1).await;
    server.push_output(&first, 1, "no!");
    // Without `process/closed`: a process that the command started still has its output open.
    server.push("process/exited", exited_params(&first, 2, 1, Some(true)));
    let second = server.wait_for("process/start", 2).await.params["processId"].as_str().unwrap().to_owned();
    server.push_exited(&second, 1, 0);
    server.push_closed(&second, 2);
    let response = running.await.unwrap().unwrap();
    assert_eq!((response.exit_code, response.ran_without_sandbox), (Some(0), true));
    assert_eq!(server.wait_for("process/terminate", 1).await.params, json!({"processId": first}));
}
