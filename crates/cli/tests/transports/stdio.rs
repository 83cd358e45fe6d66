//! A server with `--listen stdio`: its stdin and stdout are the connection to one client.

use std::process::Stdio;
use std::time::{Duration, Instant};

use testkit::{Client, Signal, base64, binary, descendants, eventually, is_alive, json, send_signal};
use tokio::process::{Child, Command};
use transport::{MessageLimits, PeerLabel, lines};

/// Starts a server, and returns its process and a client that is connected to its stdin and stdout.
fn start(args: &[&str]) -> (Child, Client) {
    let mut command = Command::new(binary());
    command.args(["--listen", "stdio"]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().unwrap();
    let (read, write) = (server.stdout.take().unwrap(), server.stdin.take().unwrap());
    (server, Client::from_stream(lines(read, write, PeerLabel::new("stdio"), MessageLimits::default())))
}

#[tokio::test]
async fn processes_run_and_only_the_protocol_is_on_stdout() {
    let (_server, mut client) = start(&[]);
    // The first message is the answer: no address is printed.
    client.send("initialize", json!({"clientName": "stdio"})).await;
    assert!(client.next().await["result"]["sessionId"].is_string());
    client.notify("initialized", json!({})).await;
    let outcome = client.run("p", &["head", "-c", "3000000", "/dev/zero"]).await;
    assert_eq!(outcome.stdout.len(), 3_000_000);
    client.send_text("garbage").await;
    let message = client.next().await["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("failed to parse JSON-RPC message from exec-server stdio: "), "{message}");
}

#[tokio::test]
async fn the_end_of_stdin_ends_the_server_and_its_processes() {
    let (mut server, mut client) = start(&[]);
    client.handshake(None).await;
    client.start("p", &["sh", "-c", "trap '' TERM HUP; sleep 1000 & echo ready; wait"]).await;
    client.event("p").await;
    let children = descendants(server.id().unwrap());
    assert!(
        children.len() >= 3,
        "expected the guard (which kills all processes if the server dies), the shell and its child: {children:?}"
    );
    let disconnected = Instant::now();
    drop(client);
    assert_eq!(server.wait().await.unwrap().code(), Some(0));
    assert!(disconnected.elapsed() < Duration::from_secs(3), "the shutdown took {:?}", disconnected.elapsed());
    eventually("no process is left", || (!children.iter().copied().any(is_alive)).then_some(())).await;
}

#[tokio::test]
async fn requests_from_before_the_end_of_stdin_are_answered() {
    let mut command = Command::new(binary());
    command.args(["--listen", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let request =
        b"{\"id\":1,\"method\":\"initialize\",\"params\":{\"clientName\":\"c\"}}\n{\"id\":2,\"method\":\"nothing\"}";
    tokio::io::AsyncWriteExt::write_all(&mut stdin, request).await.unwrap();
    drop(stdin);
    let output = server.wait_with_output().await.unwrap();
    assert_eq!(output.status.code(), Some(0));
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{stdout}");
    assert!(lines[0].contains("sessionId") && lines[1].contains("does not implement `nothing`"), "{stdout}");
}

#[tokio::test]
async fn slow_requests_from_before_the_end_of_stdin_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zeros");
    std::fs::write(&file, vec![0; 4 << 20]).unwrap();
    let path = format!("file://{}", file.display());
    let requests = [
        json!({"id": 1, "method": "initialize", "params": {"clientName": "c"}}),
        json!({"method": "initialized", "params": {}}),
        json!({"id": 2, "method": "process/start", "params": Client::start_params("p", &["sleep", "1000"])}),
        json!({"id": 3, "method": "process/read", "params": {"processId": "p", "waitMs": 60_000}}),
        json!({"id": 4, "method": "fs/readFile", "params": {"path": path}}),
        json!({"id": 5, "method": "fs/copy", "params": {"sourcePath": path, "destinationPath": format!("{path}-copy"), "recursive": false}}),
        json!({"id": 6, "method": "process/terminate", "params": {"processId": "p"}}),
    ];
    let text: String = requests.iter().map(|request| format!("{request}\n")).collect();
    let mut command = Command::new(binary());
    command.args(["--listen", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut server = command.spawn().unwrap();
    let mut stdin = server.stdin.take().unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stdin, text.as_bytes()).await.unwrap();
    let stdin_closed = Instant::now();
    drop(stdin);
    let output = server.wait_with_output().await.unwrap();
    assert!(stdin_closed.elapsed() < Duration::from_secs(20), "the read waited for its whole `waitMs`");
    let stdout = String::from_utf8(output.stdout).unwrap();
    let messages = stdout.lines().map(|line| serde_json::from_str::<testkit::Value>(line).unwrap());
    let mut answered: Vec<i64> = messages
        .filter(|message| message.get("result").is_some())
        .filter_map(|message| message["id"].as_i64())
        .collect();
    answered.sort_unstable();
    assert_eq!(answered, [1, 2, 3, 4, 5, 6]);
    assert_eq!(output.status.code(), Some(0));
}

#[tokio::test]
async fn a_signal_causes_an_orderly_shutdown() {
    let (mut server, mut client) = start(&["--shutdown-grace", "10s"]);
    client.handshake(None).await;
    client.start("p", &["sh", "-c", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.1; done"]).await;
    client.event("p").await;
    send_signal(server.id().unwrap(), Signal::TERM);
    let outcome = client.outcome("p").await;
    assert_eq!((outcome.stdout.as_slice(), outcome.exit_code), (&b"bye\n"[..], 3));
    assert_eq!(client.receive().await, None);
    assert_eq!(server.wait().await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_session_of_stdio_ends_with_stdin_unless_another_connection_has_taken_it_over() {
    for taken_over in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let url = format!("unix://{}", directory.path().join("socket").display());
        let (_server, mut client) = start(&["--listen", &url]);
        let session = client.call("initialize", json!({"clientName": "stdio", "keepForMs": 3_600_000})).await;
        client.notify("initialized", json!({})).await;
        client.start("p", &["sleep", "1000"]).await;
        let pid = client.processes().await[0]["pid"].as_u64().unwrap().try_into().unwrap();
        let mut other = Client::connect(&url).await;
        if taken_over {
            let params = json!({"clientName": "unix", "resumeSessionId": session["sessionId"], "takeover": true});
            assert_eq!(other.call("initialize", params).await, session);
            other.notify("initialized", json!({})).await;
            let error = client.call_error("process/list", json!({})).await;
            assert_eq!(error["message"], "session has been resumed by another connection");
            drop(client);
            assert_eq!(other.call("process/terminate", json!({"processId": "p"})).await, json!({"running": true}));
        } else {
            drop(client);
            eventually("the process is gone", || (!is_alive(pid)).then_some(())).await;
        }
    }
}

#[tokio::test]
async fn after_a_takeover_the_waiting_requests_of_stdio_are_refused_and_have_no_effect() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", directory.path().join("socket").display());
    let go = directory.path().join("go");
    let (_server, mut client) = start(&["--listen", &url, "--max-queued-stdin", "1KiB"]);
    client.handshake(None).await;
    let script = format!("until [ -e {} ]; do sleep 0.05; done; exec tail -c 8", go.display());
    let mut params = Client::start_params("p", &["sh", "-c", &script]);
    params["pipeStdin"] = json!(true);
    client.call("process/start", params).await;
    // Larger than any pipe, so the queue stays full until the process reads.
    let chunk = base64(vec![b'x'; 2 << 20]);
    client.call("process/write", json!({"processId": "p", "chunk": chunk})).await;
    let write = client.send("process/write", json!({"processId": "p", "chunk": base64(b"old\n")})).await;
    let read = client.send("process/read", json!({"processId": "p", "waitMs": 600_000})).await;
    // Requests are handled in order, so the write and the read wait when this one is answered.
    client.call("process/list", json!({})).await;

    let mut other = Client::connect(&url).await;
    let params = json!({"clientName": "unix", "resumeSessionId": client.session, "takeover": true});
    other.call("initialize", params).await;
    other.notify("initialized", json!({})).await;
    for waiting in [write, read] {
        let error = &client.answer(waiting).await["error"];
        assert_eq!(error["message"], "session has been resumed by another connection");
    }
    let error = client.call_error("process/read", json!({"processId": "p", "waitMs": 600_000})).await;
    assert_eq!(error["message"], "session has been resumed by another connection");

    std::fs::write(&go, "").unwrap();
    other.call("process/read", json!({"processId": "p"})).await;
    other.call("process/write", json!({"processId": "p", "chunk": base64(b"new\n")})).await;
    other.call("process/closeStdin", json!({"processId": "p"})).await;
    assert_eq!(other.outcome("p").await.stdout, b"xxxxnew\n");
}
