//! The methods `command/exec`, `command/exec/write` and `command/exec/terminate` of the first version of the
//! published protocol (that of `codex exec-server`).
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use testkit::{Client, TestServer, Value, base64, eventually_async, json, unbase64};

/// Params of `command/exec` with some members changed.
fn exec_params(process: &str, argv: &[&str], changes: Value) -> Value {
    let path = std::env::var("PATH").unwrap();
    let mut params = json!({"processId": process, "argv": argv, "cwd": "/", "env": {"PATH": path}, "tty": false});
    for (name, value) in changes.as_object().unwrap() {
        params[name] = value.clone();
    }
    params
}

async fn exec(client: &mut Client, process: &str, argv: &[&str], changes: Value) {
    assert_eq!(
        client.call("command/exec", exec_params(process, argv, changes)).await,
        json!({"processId": process, "running": true, "exitCode": null, "stdout": null, "stderr": null})
    );
}

/// Waits until a process has exited. Returns its output on stdout, stderr and terminal, and its exit code.
async fn outcome(client: &mut Client, process: &str) -> ([String; 3], i64) {
    let mut outputs: [Vec<u8>; 3] = Default::default();
    loop {
        let event = client.event(process).await;
        let params = &event["params"];
        match event["method"].as_str().unwrap() {
            "command/exec/outputDelta" => {
                let stream = ["stdout", "stderr", "pty"].iter().position(|name| params["stream"] == *name).unwrap();
                let chunk = &params["chunk"];
                let expected = json!({"processId": process, "stream": params["stream"], "chunk": chunk});
                assert_eq!(params, &expected, "the notification has the published members and no others");
                outputs[stream].extend(unbase64(chunk));
            }
            "command/exec/exited" => {
                let code = params["exitCode"].as_i64().unwrap();
                assert_eq!(params, &json!({"processId": process, "exitCode": code}));
                return (outputs.map(|bytes| String::from_utf8(bytes).unwrap()), code);
            }
            other => panic!("unexpected notification {other}"),
        }
    }
}

/// Output as [`outcome`] returns it.
fn streams(stdout: &str, stderr: &str, pty: &str) -> [String; 3] {
    [stdout, stderr, pty].map(str::to_owned)
}

#[tokio::test]
async fn a_command_runs_and_reports_its_output_and_exit() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    exec(&mut client, "p", &["sh", "-c", "pwd; echo err >&2; exit 7"], json!({})).await;
    assert_eq!(outcome(&mut client, "p").await, (streams("/\n", "err\n", ""), 7));
    exec(&mut client, "q", &["sh", "-c", "kill -9 $$"], json!({"tty": true})).await;
    assert_eq!(outcome(&mut client, "q").await.1, 137);
    // No event follows the exit: the next message is the answer to the next request.
    let request = client.send("environment/status", json!({})).await;
    assert_eq!(client.next().await["id"], request);
}

#[tokio::test]
async fn only_argv_id_and_cwd_are_required_and_arg0_is_used() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.call("command/exec", json!({"processId": "p", "argv": ["/usr/bin/env"], "cwd": "/tmp"})).await;
    assert_eq!(outcome(&mut client, "p").await, (streams("", "", ""), 0));
    exec(&mut client, "q", &["sh", "-c", "echo $0"], json!({"arg0": "other"})).await;
    assert_eq!(outcome(&mut client, "q").await.0, streams("other\n", "", ""));
}

#[tokio::test]
async fn the_output_cap_applies_to_each_stream() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "printf abcdefgh; printf 12345678 >&2; printf ijkl; head -c 3000000 /dev/zero";
    exec(&mut client, "p", &["sh", "-c", script], json!({"outputBytesCap": 5})).await;
    assert_eq!(
        outcome(&mut client, "p").await,
        (streams("abcde", "12345", ""), 0),
        "output beyond the cap is read and dropped"
    );
    exec(&mut client, "q", &["sh", "-c", "echo quiet; exit 3"], json!({"outputBytesCap": 0})).await;
    assert_eq!(outcome(&mut client, "q").await, (streams("", "", ""), 3));
    exec(&mut client, "r", &["printf", "abc"], json!({"outputBytesCap": null, "tty": true})).await;
    assert_eq!(outcome(&mut client, "r").await.0, streams("", "", "abc"));
}

#[tokio::test]
async fn a_terminal_accepts_input_and_pipes_do_not() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    exec(&mut client, "p", &["sh", "-c", "read x; echo got $x"], json!({"tty": true})).await;
    let write = json!({"processId": "p", "chunk": base64("word\n")});
    assert_eq!(client.call("command/exec/write", write.clone()).await, json!({"accepted": true}));
    assert_eq!(outcome(&mut client, "p").await, (streams("", "", "word\r\ngot word\r\n"), 0));
    let closed = json!({"code": -32600, "message": "stdin of process p is closed"});
    assert_eq!(client.call_error("command/exec/write", write).await, closed);

    exec(&mut client, "q", &["cat"], json!({})).await;
    assert_eq!(outcome(&mut client, "q").await, (streams("", "", ""), 0));
    let error = client.call_error("command/exec/write", json!({"processId": "q", "chunk": "eA=="})).await;
    assert_eq!(error["message"], "stdin of process q is closed");
    let error = client.call_error("command/exec/write", json!({"processId": "nobody", "chunk": "eA=="})).await;
    assert_eq!(
        error,
        json!({"code": -32600, "data": {"kind": "unknownProcess"}, "message": "unknown process id nobody"})
    );
}

#[tokio::test]
async fn terminate_reports_whether_the_process_was_running() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    exec(&mut client, "p", &["sh", "-c", "echo before; exec sleep 100"], json!({})).await;
    assert_eq!(unbase64(&client.event("p").await["params"]["chunk"]), b"before\n");
    let target = json!({"processId": "p"});
    assert_eq!(client.call("command/exec/terminate", target.clone()).await, json!({"running": true}));
    assert_eq!(outcome(&mut client, "p").await.1, 137);
    assert_eq!(client.call("command/exec/terminate", target).await, json!({"running": false}));
    let nobody = json!({"processId": "nobody"});
    assert_eq!(client.call("command/exec/terminate", nobody).await, json!({"running": false}));
}

#[tokio::test]
async fn wrong_params_missing_programs_and_used_ids_are_errors() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for cwd in ["tmp", "", "file:///tmp"] {
        let error = client.call_error("command/exec", exec_params("p", &["true"], json!({"cwd": cwd}))).await;
        let message = format!("cwd `{cwd}` must be an absolute path");
        assert_eq!(error, json!({"code": -32602, "message": message}));
    }
    let error = client.call_error("command/exec", exec_params("p", &[], json!({}))).await;
    assert_eq!(error, json!({"code": -32602, "message": "argv must not be empty"}));
    let error = client.call_error("command/exec", exec_params("p", &["no-such-program"], json!({}))).await;
    let data = json!({"errno": 2, "kind": "notFound", "path": "no-such-program"});
    assert_eq!(error, json!({"code": -32603, "data": data, "message": "No such file or directory (os error 2)"}));
    exec(&mut client, "p", &["sleep", "100"], json!({})).await;
    let error = client.call_error("process/start", Client::start_params("p", &["true"])).await;
    assert_eq!(
        error,
        json!({"code": -32600, "message": "process p already exists"}),
        "`command/exec` and `process/start` share their process ids"
    );
}

#[tokio::test]
async fn process_read_and_process_signal_work_on_a_process_of_command_exec() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    exec(&mut client, "p", &["sh", "-c", "echo hi; exec sleep 100"], json!({})).await;
    assert_eq!(unbase64(&client.event("p").await["params"]["chunk"]), b"hi\n");
    let read = client.call("process/read", json!({"processId": "p"})).await;
    assert_eq!(read["chunks"], json!([{"seq": 1, "stream": "stdout", "chunk": "aGkK"}]));
    client.call("process/signal", json!({"processId": "p", "signal": "interrupt"})).await;
    assert_eq!(outcome(&mut client, "p").await.1, 130);
}

#[tokio::test]
async fn a_command_continues_for_a_client_that_reconnects() {
    // `--detached-hold` is how long a command waits for a client that was lost. The time is longer than this test.
    let server =
        TestServer::with_args(&["--retain-bytes", "64KiB", "--detached-hold", "1h", "--session-ttl", "1h"]).await;
    let mut first = server.client().await;
    exec(&mut first, "p", &["sh", "-c", "head -c 200000 /dev/zero; exit 7"], json!({})).await;
    // The first client reads nothing, so it answers no ping. Without a pong the server does not know that the client
    // has the output. So the command has to wait when the server retains as much output as it may.
    let session = first.session.clone();
    let mut observer = server.connect_without_handshake().await;
    let observe = json!({"clientName": "observer", "resumeSessionId": session, "observe": true});
    observer.call("initialize", observe).await;
    observer.notify("initialized", json!({})).await;
    eventually_async("the server retains as much output as it may", async || {
        (observer.processes().await[0]["outputBytes"] == 64 << 10).then_some(())
    })
    .await;
    drop(first);
    let mut second = server.resume(&session).await;
    assert_eq!(outcome(&mut second, "p").await.1, 7);
}
