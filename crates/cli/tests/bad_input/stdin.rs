//! Writes that nobody reads.

use testkit::{Client, TestServer, json};

use crate::bystander::Bystander;

/// A kibibyte of zeros in base64.
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

async fn write(client: &mut Client, id: &str) -> String {
    let result = client.call("process/write", json!({"processId": id, "chunk": "YQ=="})).await;
    result["status"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_write_says_what_became_of_it() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    assert_eq!(write(&mut client, "nobody").await, "unknownProcess");

    client.start("without", &["sleep", "1000"]).await;
    assert_eq!(write(&mut client, "without").await, "stdinClosed");

    start_piped(&mut client, "ended", &["sleep", "1000"]).await;
    assert_eq!(write(&mut client, "ended").await, "accepted");
    client.call("process/closeStdin", json!({"processId": "ended"})).await;
    assert_eq!(write(&mut client, "ended").await, "stdinClosed");

    start_piped(&mut client, "exited", &["true"]).await;
    client.outcome("exited").await;
    assert_eq!(write(&mut client, "exited").await, "stdinClosed");

    start_piped(&mut client, "deaf", &["sh", "-c", "exec <&-; echo closed; sleep 1000"]).await;
    client.take(|message| message["method"] == "process/output").await;
    // The first write may still be queued when the pipe turns out to be broken; from then on it is known.
    write(&mut client, "deaf").await;
    testkit::eventually_async("the broken pipe is noticed", async || {
        (write(&mut client, "deaf").await == "stdinClosed").then_some(())
    })
    .await;

    let error = client.call_error("process/closeStdin", json!({"processId": "nobody"})).await;
    assert_eq!(error["message"], "unknown process id nobody");
    let error = client.call_error("command/exec/write", json!({"processId": "nobody", "chunk": ""})).await;
    assert_eq!(error["message"], "unknown process id nobody");
}

#[tokio::test]
async fn a_full_stdin_makes_its_writer_wait_and_nobody_else() {
    let server = TestServer::start().await;
    let mut bystander = Bystander::of(&server).await;
    let mut client = server.client().await;
    start_piped(&mut client, "full", &["sleep", "1000"]).await;
    let chunk = kibibytes(1024);
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(client.send("process/write", json!({"processId": "full", "chunk": chunk})).await);
    }
    // The same connection goes on, other processes too.
    assert_eq!(client.run("other", &["echo", "hello"]).await.stdout, b"hello\n");
    bystander.is_served().await;

    assert_eq!(client.answer(waiting[0]).await["result"]["status"], "accepted");
    client.call("process/terminate", json!({"processId": "full"})).await;
    assert_eq!(client.answer(waiting[3]).await["result"]["status"], "stdinClosed");
    bystander.notices_nothing().await;
}
