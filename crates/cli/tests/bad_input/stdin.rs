//! Writes to processes that do not read their stdin or have no stdin.

use testkit::{Client, TestServer, json};

use crate::other_client::OtherClient;

/// Base64 of about `count` KiB of zeros.
fn kibibytes(count: usize) -> String {
    let mut text = "AAAA".repeat(count * 1024 / 3);
    text.push_str("AA==");
    text
}

async fn start_piped(client: &mut Client, id: &str, argv: &[&str]) {
    let mut params = Client::start_params(id, argv);
    params["pipeStdin"] = json!(true);
    client.call("process/start", params).await;
}

/// Writes one byte to the stdin of a process. Returns the status in the answer.
async fn write(client: &mut Client, id: &str) -> String {
    let result = client.call("process/write", json!({"processId": id, "chunk": "YQ=="})).await;
    result["status"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_status_of_a_write_shows_whether_it_was_accepted() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    assert_eq!(write(&mut client, "nobody").await, "unknownProcess");

    client.start("no-stdin", &["sleep", "1000"]).await;
    assert_eq!(write(&mut client, "no-stdin").await, "stdinClosed");

    start_piped(&mut client, "stdin-ended", &["sleep", "1000"]).await;
    assert_eq!(write(&mut client, "stdin-ended").await, "accepted");
    client.call("process/closeStdin", json!({"processId": "stdin-ended"})).await;
    assert_eq!(write(&mut client, "stdin-ended").await, "stdinClosed");

    start_piped(&mut client, "exited", &["true"]).await;
    client.outcome("exited").await;
    assert_eq!(write(&mut client, "exited").await, "stdinClosed");

    start_piped(&mut client, "pipe-closed", &["sh", "-c", "exec <&-; echo closed; sleep 1000"]).await;
    client.take(|message| message["method"] == "process/output").await;
    // The server may accept the first write before it notices that the pipe is broken. Later writes are refused.
    write(&mut client, "pipe-closed").await;
    testkit::eventually_async("the broken pipe is noticed", async || {
        (write(&mut client, "pipe-closed").await == "stdinClosed").then_some(())
    })
    .await;

    // For other methods an unknown process is an error.
    let error = client.call_error("process/closeStdin", json!({"processId": "nobody"})).await;
    assert_eq!(error["message"], "unknown process id nobody");
    let error = client.call_error("command/exec/write", json!({"processId": "nobody", "chunk": ""})).await;
    assert_eq!(error["message"], "unknown process id nobody");
}

#[tokio::test]
async fn a_full_stdin_delays_only_its_own_writes() {
    let server = TestServer::start().await;
    let mut other_client = OtherClient::connect(&server).await;
    let mut client = server.client().await;
    start_piped(&mut client, "full", &["sleep", "1000"]).await;
    // The server queues the first write. The next three are answered only when the process reads or ends.
    let chunk = kibibytes(1024);
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(client.send("process/write", json!({"processId": "full", "chunk": chunk})).await);
    }
    // Other requests of the same connection are answered, and other processes run.
    assert_eq!(client.run("other", &["echo", "hello"]).await.stdout, b"hello\n");
    other_client.assert_served().await;

    assert_eq!(client.answer(waiting[0]).await["result"]["status"], "accepted");
    client.call("process/terminate", json!({"processId": "full"})).await;
    assert_eq!(client.answer(waiting[3]).await["result"]["status"], "stdinClosed");
    other_client.assert_served_and_memory_freed().await;
}
