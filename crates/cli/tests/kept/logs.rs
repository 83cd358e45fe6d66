//! The command `logs`, which prints the retained output of a process of a kept session (one that outlives its
//! connections). With `-f` it follows the process to its end.

use client::{ProcessState, StartParams};
use testkit::scripted::{ScriptedReply, read_result};
use testkit::{ScriptedServer, eventually_async, json};

use crate::support::{CommandOutput, KeptSession, command, records_folder_name, run, sh};

/// Waits until the only process has closed.
async fn wait_until_closed(kept: &KeptSession) {
    eventually_async("the process has closed", async || {
        (kept.only_process().await.state == ProcessState::Closed).then_some(())
    })
    .await;
}

#[tokio::test]
async fn stdout_and_stderr_stay_apart_and_following_ends_with_the_exit_code() {
    let kept = KeptSession::start().await;
    kept.start_process(sh("p", "echo out; echo err >&2; exit 9")).await;
    wait_until_closed(&kept).await;
    let expected = |code| CommandOutput { code, stdout: "out\n".into(), stderr: "err\n".into() };
    assert_eq!(kept.run(&["logs", "p"]).await, expected(0));
    assert_eq!(kept.run(&["logs", "-f", "p"]).await, expected(9));
    assert_eq!(kept.run(&["logs", "p"]).await, expected(0), "the output can be read again");
}

#[tokio::test]
async fn a_terminal_has_one_stream() {
    let kept = KeptSession::start().await;
    kept.start_process(StartParams { tty: true, ..sh("p", "echo out; echo err >&2") }).await;
    let output = kept.run(&["logs", "-f", "p"]).await;
    assert_eq!(output, CommandOutput { code: 0, stdout: "out\r\nerr\r\n".into(), stderr: String::new() });
}

#[tokio::test]
async fn events_can_be_printed_as_json() {
    let kept = KeptSession::start().await;
    kept.start_process(sh("p", "echo out; sleep 0.1; printf '\\377' >&2; exit 4")).await;
    wait_until_closed(&kept).await;
    let output = json!({"type": "output", "stream": "stdout", "text": "out\n"});
    let bytes = json!({"type": "output", "stream": "stderr", "base64": "/w=="});
    let exited = json!({"type": "exited", "exitCode": 4, "sandboxDenied": false, "timedOut": false});
    for args in [&["logs", "--json", "p"][..], &["logs", "--json", "-f", "p"]] {
        let printed = kept.run(args).await;
        let events: Vec<testkit::Value> =
            printed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events, [output.clone(), bytes.clone(), exited.clone()], "{args:?}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_longer_retained_are_counted() {
    // With `--detached-hold 0s`, a process whose client has left does not wait for readers.
    let kept = KeptSession::with_args(&["--retain-bytes", "64KiB", "--detached-hold", "0s"]).await;
    kept.start_process(sh("p", "head -c 300000 /dev/zero | tr '\\0' x; exit 5")).await;
    wait_until_closed(&kept).await;
    for (args, code) in [(&["logs", "p"][..], 0), (&["logs", "-f", "p"], 5)] {
        let output = kept.run(args).await;
        let kept_bytes = output.stdout.len();
        assert!(kept_bytes > 0 && kept_bytes <= 64 << 10, "{kept_bytes}");
        let lost = 300_000 - kept_bytes;
        let expected = format!("exec-server: {lost} bytes of earlier output are no longer retained\n");
        assert_eq!((output.code, output.stderr), (code, expected));
    }
    let output = kept.run(&["logs", "--json", "p"]).await;
    let first: testkit::Value = serde_json::from_str(output.stdout.lines().next().unwrap()).unwrap();
    assert!(first["type"] == "dropped" && first["bytes"].is_u64() && output.stderr.is_empty(), "{first}");
}

#[tokio::test]
async fn an_unknown_process_is_an_error() {
    let kept = KeptSession::start().await;
    let expected = "exec-server: there is no process `q` in the session `default`; `exec-server ps` lists them\n";
    for (args, code) in [(&["logs", "q"][..], 1), (&["logs", "-f", "q"], 125)] {
        assert_eq!(kept.run(args).await, CommandOutput { code, stdout: String::new(), stderr: expected.into() });
    }
}

/// Runs `logs` with these arguments for the process `p` of a scripted server.
async fn run_logs(server: &ScriptedServer, args: &[&str]) -> CommandOutput {
    let folder = tempfile::tempdir().unwrap();
    let info = json!({"shell": {"name": "sh", "path": "/bin/sh"}, "capabilities": {"sessionObserve": true}});
    server.on("environment/info", move |_| ScriptedReply::Result(info.clone()));
    let summary = json!({
        "processId": "p", "argv": ["p"], "tty": false, "state": "running", "startedAtMs": 0, "nextSeq": 9, "outputBytes": 5,
    });
    server.on("process/list", move |_| ScriptedReply::Result(json!({"processes": [summary]})));
    let listener = server.listen(folder.path());
    // `logs` finds the session in this record, a file with the id of the session.
    let sessions = folder.path().join("exec-server/sessions").join(records_folder_name(listener.url()));
    std::fs::create_dir_all(&sessions).unwrap();
    std::fs::write(sessions.join("default"), "session-1\n").unwrap();
    run(command(folder.path()).args(["logs", "--connect", listener.url()]).args(args).arg("p")).await
}

#[tokio::test]
async fn a_server_that_repeats_the_answer_to_a_read_does_not_cause_an_endless_loop() {
    for (args, code) in [(&[][..], 1), (&["-f"], 125)] {
        let server = ScriptedServer::new();
        server.on("process/read", |_| ScriptedReply::Result(read_result([(1, b"once\n".to_vec())], 2)));
        let output = run_logs(&server, args).await;
        let stderr = "exec-server: the server repeats output of the process `p` that it has sent before\n";
        assert_eq!(output, CommandOutput { code, stdout: "once\n".into(), stderr: stderr.into() }, "{args:?}");
    }
}

#[tokio::test]
async fn a_server_that_ignores_wait_ms_is_read_with_pauses() {
    let server = ScriptedServer::new();
    let mut reads = 0;
    let begun = std::time::Instant::now();
    let (sender, receiver) = std::sync::mpsc::channel();
    server.on("process/read", move |_| {
        reads += 1;
        let mut answer = read_result([], 1);
        if begun.elapsed() > std::time::Duration::from_secs(1) {
            (answer["closed"], answer["exited"], answer["exitCode"]) = (json!(true), json!(true), json!(4));
            (answer["exitSeq"], answer["nextSeq"]) = (json!(1), json!(3));
            sender.send(reads).unwrap();
        }
        ScriptedReply::Result(answer)
    });
    assert_eq!(run_logs(&server, &["-f"]).await.code, 4);
    let reads = receiver.recv().unwrap();
    assert!(reads < 20, "{reads} reads in a second");
}
