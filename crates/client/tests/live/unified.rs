//! Unified exec with a real server. A call starts a command and waits for its end, at most for the yield time. A
//! command that runs longer continues in the background. Its session is the id by which later calls find it.

use std::time::Duration;

use client::{ExecCommandRequest, UnifiedExec, UnifiedExecOptions, WriteStdinRequest};
use testkit::{TestServer, eventually, is_alive};

use crate::support::connect;

/// A yield time that is over before the command ends.
const SOON: Duration = Duration::from_millis(100);
/// A yield time within which every command ends that ends by itself, so that the call returns when the command ends.
const LONG: Duration = Duration::from_secs(25);

fn shell(line: &str) -> ExecCommandRequest {
    ExecCommandRequest { yield_time: LONG, ..ExecCommandRequest::shell(line, "file:///".parse().unwrap()) }
}

async fn unified_exec(server: &TestServer) -> UnifiedExec {
    UnifiedExec::new(connect(server).await, UnifiedExecOptions::default())
}

#[tokio::test]
async fn a_command_that_ends_in_time_returns_its_whole_output() {
    let server = TestServer::start().await;
    let exec = unified_exec(&server).await;
    let response = exec.exec_command(shell("echo out; echo err >&2; exit 7")).await.unwrap();
    let mut lines: Vec<_> = response.output.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines, response.exit_code, response.session), (vec!["err", "out"], Some(7), None));
    assert!(response.wall_time < LONG);
}

#[tokio::test]
async fn a_command_that_outlasts_its_yield_time_continues_in_the_background_and_its_end_is_pushed() {
    let server = TestServer::start().await;
    let exec = unified_exec(&server).await;
    let mut completions = exec.subscribe_completions();
    let mut request = shell("echo begun; read line; echo $line; exit 3");
    (request.stdin, request.yield_time) = (true, SOON);
    let response = exec.exec_command(request).await.unwrap();
    let session = response.session.unwrap();
    assert!(response.wall_time >= SOON && response.exit_code.is_none());
    let write = WriteStdinRequest { yield_time: Duration::ZERO, ..WriteStdinRequest::new(session, "go on\n") };
    let after_write = exec.write_stdin(write).await.unwrap();
    let completion = completions.recv().await.unwrap();
    assert_eq!((completion.session, completion.exit_code), (session, Some(3)));
    assert_eq!(completion.output_tail, "begun\ngo on\n");
    // Without a session, the call that wrote has already returned the end of the command.
    if after_write.session.is_some() {
        let rest = exec.write_stdin(WriteStdinRequest::poll(session)).await.unwrap();
        assert_eq!((rest.exit_code, rest.session), (Some(3), None));
        assert_eq!(response.output + &after_write.output + &rest.output, "begun\ngo on\n");
    }
}

#[tokio::test]
async fn an_interactive_shell_runs_the_lines_that_are_written_to_it() {
    let server = TestServer::start().await;
    let exec = unified_exec(&server).await;
    let mut request = ExecCommandRequest::argv(["bash", "--norc", "--noprofile", "-i"], "file:///".parse().unwrap());
    (request.tty, request.yield_time) = (true, SOON);
    let session = exec.exec_command(request).await.unwrap().session.unwrap();
    let mut input = WriteStdinRequest::new(session, "x=6; echo \"is $((x * 7))\"\n");
    // The call returns when the shell has written something and then nothing for 300 ms.
    (input.yield_time, input.settle) = (LONG, Some(Duration::from_millis(300)));
    let mut seen = exec.write_stdin(input.clone()).await.unwrap().output;
    // Later calls only get further output.
    input.chars.clear();
    while !seen.contains("is 42") {
        seen += &exec.write_stdin(input.clone()).await.unwrap().output;
    }
    let bye = WriteStdinRequest { yield_time: LONG, ..WriteStdinRequest::new(session, "exit 5\n") };
    let last = exec.write_stdin(bye).await.unwrap();
    assert_eq!((last.exit_code, last.session), (Some(5), None));
}

#[tokio::test]
async fn much_output_is_shortened_to_its_beginning_and_its_end() {
    let server = TestServer::start().await;
    let exec = unified_exec(&server).await;
    let mut request = shell("seq 1 400000");
    request.max_output_bytes = 100;
    let response = exec.exec_command(request).await.unwrap();
    let (head, tail) = response.output.split_once("\n[... ").unwrap();
    assert!(head.starts_with("1\n2\n3\n") && tail.ends_with("399999\n400000\n"), "{}", response.output);
    assert_eq!((response.original_bytes, response.omitted_bytes), (2_688_895, 2_688_795));
    assert_eq!(response.exit_code, Some(0));
}

#[tokio::test]
async fn a_background_job_of_a_shell_keeps_the_session_open_until_the_job_is_killed() {
    let server = TestServer::start().await;
    let exec = unified_exec(&server).await;
    let mut request = shell("sleep 1000 & echo $!");
    request.yield_time = Duration::from_millis(500);
    let response = exec.exec_command(request).await.unwrap();
    let session = response.session.unwrap();
    let mut output = response.output.clone();
    while !output.ends_with('\n') {
        let poll = WriteStdinRequest { yield_time: SOON, ..WriteStdinRequest::poll(session) };
        output += &exec.write_stdin(poll).await.unwrap().output;
    }
    let background_pid: u32 = output.trim().parse().unwrap();
    assert!(is_alive(background_pid));
    let max_output_bytes = 1000;
    let last = exec.terminate(session, max_output_bytes).await.unwrap();
    assert_eq!(
        (last.exit_code, last.session),
        (Some(0), None),
        "the exit code is that of the shell, which exited before the job was killed"
    );
    eventually("the process is gone", || (!is_alive(background_pid)).then_some(())).await;
}

#[tokio::test]
async fn dropping_the_last_handle_ends_all_processes() {
    let server = TestServer::start().await;
    let client = connect(&server).await;
    let exec = UnifiedExec::new(client.clone(), UnifiedExecOptions::default());
    let mut request = shell("sleep 1000");
    request.yield_time = Duration::ZERO;
    exec.exec_command(request.clone()).await.unwrap();
    request.yield_time = LONG;
    let foreground = tokio::spawn({
        let exec = exec.clone();
        async move { exec.exec_command(request).await }
    });
    let running = testkit::eventually_async("both processes run", async || {
        let running = client.processes().await.unwrap();
        (running.len() == 2 && running.iter().all(|process| process.pid.is_some())).then_some(running)
    })
    .await;
    foreground.abort();
    drop(exec);
    for process in running {
        let pid = process.pid.unwrap();
        eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
    }
}

/// Approves every denied command, and counts them.
#[derive(Default)]
struct Approver(std::sync::atomic::AtomicUsize);

impl client::ApprovalDecider for Approver {
    fn decide<'a>(&'a self, request: client::ApprovalRequest<'a>) -> client::Deciding<'a> {
        assert!(request.denied.sandbox_denied);
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Box::pin(std::future::ready(client::Approval::Approved))
    }
}

#[tokio::test]
async fn a_write_that_the_sandbox_denies_is_done_once_without_it_after_approval() {
    let (server, folder) = (TestServer::start().await, tempfile::tempdir().unwrap());
    let approver = std::sync::Arc::new(Approver::default());
    let options = UnifiedExecOptions { approval: Some(approver.clone()), ..Default::default() };
    let exec = UnifiedExec::new(connect(&server).await, options);
    let read_only = r#"{"permissions":{"type":"managed","network":"restricted","file_system":{"type":"restricted","entries":[
        {"path":{"type":"special","value":{"kind":"root"}},"access":"read"}]}},"windowsSandboxLevel":"disabled"}"#;
    let mut request = shell(&format!("echo line >> {}/file", folder.path().display()));
    request.sandbox = Some(serde_json::value::RawValue::from_string(read_only.to_owned()).unwrap());
    let response = exec.exec_command(request).await.unwrap();
    assert!(response.ran_without_sandbox && response.exit_code == Some(0), "{response:?}");
    assert_eq!(approver.0.load(std::sync::atomic::Ordering::SeqCst), 1);
    assert_eq!(std::fs::read_to_string(folder.path().join("file")).unwrap(), "line\n");
}
