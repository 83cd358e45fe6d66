//! `process/write` and `process/closeStdin`: each write reaches the process once and in order, and is refused if the
//! process cannot read it.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use testkit::{Client, TestServer, Value, base64, eventually_async, json};

/// Starts a command with a pipe as stdin. `changes` are members of the params that are added or replaced.
async fn start(client: &mut Client, process: &str, argv: &[&str], changes: Value) {
    let mut params = Client::start_params(process, argv);
    params["pipeStdin"] = json!(true);
    for (name, value) in changes.as_object().unwrap() {
        params[name] = value.clone();
    }
    client.call("process/start", params).await;
}

/// The whole stdout of a process, after the process has ended.
async fn stdout(client: &mut Client, process: &str) -> String {
    String::from_utf8(client.outcome(process).await.stdout).unwrap()
}

#[tokio::test]
async fn written_input_reaches_the_process() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["cat"], json!({})).await;
    assert_eq!(client.write("p", "1", "hello\n").await, "accepted");
    assert_eq!(client.output_until("p", "\n").await, "hello\n");
    let every_byte: Vec<u8> = (0..=255).collect();
    assert_eq!(client.write("p", "2", &every_byte).await, "accepted");
    assert_eq!(client.write("p", "3", "").await, "accepted", "a write of no bytes is accepted");
    client.close_stdin("p").await;
    assert_eq!(client.outcome("p").await.stdout, every_byte);
}

#[tokio::test]
async fn a_repeated_write_id_is_written_once() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["cat"], json!({})).await;
    for _ in 0..3 {
        assert_eq!(client.write("p", "a", "once\n").await, "accepted");
    }
    assert_eq!(client.write("p", "b", "other\n").await, "accepted");
    assert_eq!(client.write("p", "a", "different bytes\n").await, "accepted");
    client.close_stdin("p").await;
    assert_eq!(
        client.write("p", "a", "once\n").await,
        "accepted",
        "a write with this id was accepted before stdin was closed"
    );
    assert_eq!(client.write("p", "c", "new\n").await, "stdinClosed");
    assert_eq!(stdout(&mut client, "p").await, "once\nother\n");
}

#[tokio::test]
async fn a_write_without_id_is_written_each_time() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["cat"], json!({})).await;
    for params in [json!({}), json!({"writeId": null})] {
        let mut write = json!({"processId": "p", "chunk": base64("twice\n")});
        if let Some(id) = params.get("writeId") {
            write["writeId"] = id.clone();
        }
        assert_eq!(client.call("process/write", write).await, json!({"status": "accepted"}));
    }
    client.close_stdin("p").await;
    assert_eq!(stdout(&mut client, "p").await, "twice\ntwice\n");
}

#[tokio::test]
async fn the_last_4096_write_ids_are_remembered() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["cat"], json!({})).await;
    let ids: Vec<_> = (0..=4096).map(|n| format!("w{n}")).collect();
    for batch in ids.chunks(1000) {
        let mut requests = Vec::new();
        for id in batch {
            requests.push(client.send_write("p", id, "x").await);
        }
        for request in requests {
            assert_eq!(client.answer(request).await["result"], json!({"status": "accepted"}));
        }
    }
    for (id, word) in [("w1", "remembered"), ("w4096", "remembered"), ("w0", "forgotten")] {
        assert_eq!(client.write("p", id, word).await, "accepted");
    }
    client.close_stdin("p").await;
    assert_eq!(stdout(&mut client, "p").await, "x".repeat(4097) + "forgotten");
}

#[tokio::test]
async fn invalid_writes_are_refused_and_change_nothing() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["cat"], json!({})).await;
    let error = client.call_error("process/write", json!({"processId": "p", "chunk": "eA==", "writeId": ""})).await;
    assert_eq!(error, json!({"code": -32602, "message": "writeId must not be empty"}));
    let error = client.call_error("process/write", json!({"processId": "q", "chunk": "eA==", "writeId": ""})).await;
    assert_eq!(error, json!({"code": -32602, "message": "writeId must not be empty"}));
    for chunk in [json!("eA"), json!("e A=="), json!(7), json!(null)] {
        let write = json!({"processId": "p", "chunk": chunk, "writeId": "1"});
        assert_eq!(client.call_error("process/write", write).await["code"], -32602);
    }
    assert_eq!(client.write("p", "1", "good").await, "accepted");
    client.close_stdin("p").await;
    assert_eq!(stdout(&mut client, "p").await, "good");
}

#[tokio::test]
async fn a_write_to_an_unknown_process_gets_a_status_and_closing_its_stdin_gets_an_error() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    assert_eq!(client.write("nobody", "1", "x").await, "unknownProcess");
    let request = client.send("process/start", Client::start_params("p", &["no-such-program"])).await;
    let write = client.send_write("p", "1", "x").await;
    assert_eq!(client.answer(request).await["error"]["code"], -32603);
    assert_eq!(client.answer(write).await["result"], json!({"status": "unknownProcess"}));
    let error = client.call_error("process/closeStdin", json!({"processId": "nobody"})).await;
    assert_eq!(
        error,
        json!({"code": -32600, "data": {"kind": "unknownProcess"}, "message": "unknown process id nobody"})
    );
}

#[tokio::test]
async fn a_process_without_a_pipe_has_no_stdin() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.start("p", &["sh", "-c", "cat; echo end of input; exec sleep 100"]).await;
    assert_eq!(client.output_until("p", "input").await, "end of input\n");
    assert_eq!(client.write("p", "1", "x").await, "stdinClosed");
    client.close_stdin("p").await;
    start(&mut client, "q", &["cat"], json!({"pipeStdin": false})).await;
    assert_eq!(client.outcome("q").await.exit_code, 0, "stdin of the process ends at once");
}

#[tokio::test]
async fn a_process_that_has_exited_accepts_no_input() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for tty in [false, true] {
        let process = format!("p{tty}");
        start(&mut client, &process, &["sh", "-c", "exit 3"], json!({"tty": tty})).await;
        while client.event(&process).await["method"] != "process/exited" {}
        assert_eq!(client.write(&process, "1", "x").await, "stdinClosed");
        client.close_stdin(&process).await;
        assert_eq!(client.event(&process).await["method"], "process/closed");
        assert_eq!(client.write(&process, "2", "x").await, "stdinClosed");
    }
}

#[tokio::test]
async fn a_terminated_process_accepts_no_input() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["sleep", "100"], json!({})).await;
    assert_eq!(client.write("p", "1", "x").await, "accepted");
    client.call("process/terminate", json!({"processId": "p"})).await;
    assert_eq!(client.write("p", "2", "x").await, "stdinClosed");
}

#[tokio::test]
async fn a_process_that_closed_its_stdin_accepts_no_input() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["sh", "-c", "exec 0<&-; echo closed; exec sleep 100"], json!({})).await;
    client.output_until("p", "closed").await;
    assert_eq!(client.write("p", "1", "x").await, "stdinClosed");
    assert_eq!(client.write("p", "2", "x").await, "stdinClosed");
}

#[tokio::test]
async fn writes_to_a_full_stdin_wait_and_keep_their_order() {
    let directory = tempfile::tempdir().unwrap();
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let cwd = format!("file://{}", directory.path().display());
    start(&mut client, "p", &["sh", "-c", "mkfifo gate; read x < gate; exec cat"], json!({"cwd": cwd})).await;
    let pieces: Vec<_> = (0..8).map(|n| n.to_string().repeat(400 << 10)).collect();
    let mut writes = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        writes.push(client.send_write("p", &n.to_string(), piece).await);
    }
    let close = client.send("process/closeStdin", json!({"processId": "p"})).await;

    // This request waits for nothing. So its answer comes after the answers to all writes that did not have to wait.
    let status = client.send("environment/status", json!({})).await;
    let mut answered_at_once = Vec::new();
    loop {
        let answer = client.next().await;
        if answer["id"] == status {
            break;
        }
        answered_at_once.push(answer["id"].as_i64().unwrap());
    }
    assert!(
        writes.starts_with(&answered_at_once),
        "the answers are not in order: {answered_at_once:?} of {writes:?}"
    );
    assert!(
        (2..=4).contains(&answered_at_once.len()),
        "not as many writes as fit into the queue (1 MiB) and the pipe: {answered_at_once:?}"
    );
    assert_eq!(
        client.run("other", &["echo", "hi"]).await.stdout,
        b"hi\n",
        "the waiting writes delay no other request"
    );

    let gate = directory.path().join("gate");
    tokio::task::spawn_blocking(move || std::fs::write(gate, "\n").unwrap()).await.unwrap();
    for write in &writes[answered_at_once.len()..] {
        assert_eq!(client.answer(*write).await["result"], json!({"status": "accepted"}));
    }
    assert_eq!(client.answer(close).await["result"], json!({}));
    assert!(stdout(&mut client, "p").await == pieces.concat(), "some bytes are missing, repeated or out of order");
}

#[tokio::test]
async fn a_write_that_waits_is_refused_when_the_process_ends() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["sleep", "100"], json!({})).await;
    let piece = "x".repeat(1 << 20);
    let first = client.send_write("p", "1", &piece).await;
    let second = client.send_write("p", "2", &piece).await;
    let third = client.send_write("p", "3", &piece).await;
    assert_eq!(client.answer(first).await["result"], json!({"status": "accepted"}));
    let stop = client.send("process/terminate", json!({"processId": "p"})).await;
    for write in [second, third] {
        assert_eq!(client.answer(write).await["result"], json!({"status": "stdinClosed"}));
    }
    assert_eq!(client.answer(stop).await["result"], json!({"running": true}));
}

#[tokio::test]
async fn requests_about_a_process_may_be_sent_right_after_its_start() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for n in 0..50 {
        let process = format!("p{n}");
        let mut params = Client::start_params(&process, &["cat"]);
        params["pipeStdin"] = json!(true);
        let mut requests = vec![client.send("process/start", params).await];
        for word in ["one ", "two ", "three"] {
            requests.push(client.send_write(&process, word, word).await);
        }
        requests.push(client.send("process/closeStdin", json!({"processId": process})).await);
        requests.push(client.send_write(&process, "late", "late").await);
        let read = client.send("process/read", json!({"processId": process, "waitMs": 25_000})).await;
        let mut answers = Vec::new();
        for request in requests {
            let answer = client.take(|message| message["id"].as_i64() != Some(read) && message["id"].is_i64()).await;
            assert_eq!(answer["id"], request, "the answers come in the order of the requests");
            answers.push(answer["result"].clone());
        }
        let accepted = json!({"status": "accepted"});
        let expected = [
            json!({"processId": process, "sandboxType": "none"}),
            accepted.clone(),
            accepted.clone(),
            accepted,
            json!({}),
            json!({"status": "stdinClosed"}),
        ];
        assert_eq!(answers, expected);
        assert!(client.answer(read).await["result"]["nextSeq"].as_u64().unwrap() > 1);
        assert_eq!(stdout(&mut client, &process).await, "one two three");
    }
}

#[tokio::test]
async fn a_terminal_echoes_input_and_turns_ctrl_c_into_an_interrupt() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["cat"], json!({"tty": true, "pipeStdin": false})).await;
    assert_eq!(client.write("p", "1", "hi\n").await, "accepted");
    assert_eq!(client.output_until("p", "hi\r\nhi\r\n").await, "hi\r\nhi\r\n");
    assert_eq!(client.write("p", "2", "\x03").await, "accepted");
    assert_eq!(client.outcome("p").await.exit_code, 130, "Ctrl-C interrupts the process");
}

#[tokio::test]
async fn closing_the_stdin_of_a_terminal_types_the_end_of_file_character() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["sh", "-c", "cat; echo again; cat; echo done"], json!({"tty": true})).await;
    client.write("p", "1", "a\n").await;
    client.output_until("p", "a\r\na\r\n").await;
    client.close_stdin("p").await;
    client.output_until("p", "again\r\n").await;
    assert_eq!(client.write("p", "2", "b\n").await, "accepted", "a terminal stays open");
    client.output_until("p", "b\r\nb\r\n").await;
    client.close_stdin("p").await;
    let outcome = client.outcome("p").await;
    assert_eq!((String::from_utf8(outcome.pty).unwrap().as_str(), outcome.exit_code), ("done\r\n", 0));
}

#[tokio::test]
async fn closing_stdin_closes_the_pipe_and_may_be_repeated() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    start(&mut client, "p", &["sh", "-c", "cat; echo end; exec sleep 100"], json!({})).await;
    client.write("p", "1", "text ").await;
    client.close_stdin("p").await;
    client.close_stdin("p").await;
    assert_eq!(client.output_until("p", "end\n").await, "text end\n");
    assert_eq!(client.write("p", "2", "x").await, "stdinClosed");
}

#[tokio::test]
async fn a_full_terminal_that_no_process_reads_delays_neither_other_requests_nor_the_termination() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let script = "stty raw -echo; echo ready; exec sleep 100";
    start(&mut client, "p", &["sh", "-c", script], json!({"tty": true})).await;
    client.output_until("p", "ready").await;
    let piece = "x".repeat(600 << 10);
    let mut writes = Vec::new();
    for n in 0..4 {
        writes.push(client.send_write("p", &n.to_string(), &piece).await);
    }
    assert_eq!(client.answer(writes[0]).await["result"], json!({"status": "accepted"}));
    assert_eq!(
        client.run("other", &["echo", "hi"]).await.stdout,
        b"hi\n",
        "the full terminal delays no other request"
    );
    client.call("process/terminate", json!({"processId": "p"})).await;
    assert_eq!(client.answer(writes[3]).await["result"], json!({"status": "stdinClosed"}));
    let client = tokio::sync::Mutex::new(client);
    eventually_async("all processes are closed", || async {
        let list = client.lock().await.processes().await;
        let is_closed = |entry: &Value| entry["state"] == "closed";
        list.as_array().unwrap().iter().all(is_closed).then_some(())
    })
    .await;
}
