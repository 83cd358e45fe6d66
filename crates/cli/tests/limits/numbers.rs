//! Limits for the number of connections, sessions, processes and requests, and for the size of ids, arguments and
//! queued input. A session without a connection is called detached.

use std::time::Duration;

use testkit::{Client, TestServer, eventually_async, http_get, json};
use tokio::time::timeout;

const INVALID_REQUEST: i64 = -32600;

#[tokio::test]
async fn connections_beyond_the_limit_wait_until_one_ends() {
    let server = TestServer::with_args(&["--max-connections", "2"]).await;
    let (first, mut second) = (server.client().await, server.client().await);
    let mut third = server.connect_without_handshake().await;
    let initialize = third.send("initialize", json!({"clientName": "third"})).await;
    // Two processes run to their end meanwhile. A server that served the third connection would have answered it in
    // this time.
    for id in ["a", "b"] {
        second.run(id, &["true"]).await;
    }
    assert!(timeout(Duration::from_millis(100), third.receive()).await.is_err(), "a third connection is served");
    assert_eq!(http_get(server.address(), "/healthz", &[]).await.body, "ok", "a full server is healthy");
    drop(first);
    assert!(
        third.answer(initialize).await["result"]["sessionId"].is_string(),
        "the connection is served when another one ends"
    );
}

#[tokio::test]
async fn a_connection_that_has_ended_makes_room_at_every_listener() {
    let args = ["--max-connections", "1", "--listen", "ws://127.0.0.1:0", "--listen", "ws://127.0.0.1:0"];
    let server = TestServer::with_args(&args).await;
    for url in [&server.urls()[0], &server.urls()[1], &server.urls()[0]] {
        let mut client = Client::connect(url).await;
        client.handshake(None).await;
        assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
    }
}

#[tokio::test]
async fn sessions_beyond_the_limit_are_refused_until_one_ends() {
    let server = TestServer::with_args(&["--max-sessions", "2", "--session-ttl", "0s"]).await;
    let (first, _second) = (server.client().await, server.client().await);
    let mut third = server.connect_without_handshake().await;
    let error = third.call_error("initialize", json!({"clientName": "third"})).await;
    let message = "server has reached its limit of 2 sessions (--max-sessions)";
    assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}));
    drop(first);
    eventually_async("the session of the client that left has ended", async || {
        third.request("initialize", json!({"clientName": "third"})).await.get("result").map(drop)
    })
    .await;
}

#[tokio::test]
async fn a_detached_session_with_a_process_counts_for_the_limit() {
    let server = TestServer::with_args(&["--max-sessions", "1"]).await;
    let mut first = server.client().await;
    first.start("p", &["sleep", "1000"]).await;
    let session = first.session.clone();
    drop(first);
    let mut second = server.connect_without_handshake().await;
    let error = second.call_error("initialize", json!({"clientName": "second"})).await;
    assert_eq!(error["message"], "server has reached its limit of 1 sessions (--max-sessions)");
    second.handshake(Some(&session)).await;
}

/// A new connection with a session that the server keeps for an hour after the connection has ended.
async fn client_with_kept_session(server: &TestServer) -> Client {
    let mut client = server.connect_without_handshake().await;
    let result = client.call("initialize", json!({"clientName": "testkit", "keepForMs": 3_600_000})).await;
    client.session = result["sessionId"].as_str().unwrap().to_owned();
    client.notify("initialized", json!({})).await;
    client
}

/// Resumes a session and leaves it again. Returns whether the server still had the session.
async fn is_known(server: &TestServer, session: &str) -> bool {
    let params = json!({"clientName": "testkit", "resumeSessionId": session});
    server.connect_without_handshake().await.request("initialize", params).await.get("result").is_some()
}

/// Waits until the server has this many connections.
async fn wait_for_connections(server: &TestServer, count: u64) {
    eventually_async("the other connections have ended", async || {
        let open = format!("exec_server_connections_active{{transport=\"websocket\"}} {count}\n");
        http_get(server.address(), "/metrics", &[]).await.body.contains(&open).then_some(())
    })
    .await;
}

#[tokio::test]
async fn detached_sessions_without_processes_are_evicted_oldest_first() {
    let server = TestServer::with_args(&["--max-sessions", "3"]).await;
    let mut busy = client_with_kept_session(&server).await;
    busy.start("p", &["sleep", "1000"]).await;
    let mut sessions = vec![busy.session.clone()];
    drop(busy);
    for _ in 0..5 {
        // Each connection ends before the next one begins, so that the order in which the sessions were detached is
        // known.
        wait_for_connections(&server, 0).await;
        sessions.push(client_with_kept_session(&server).await.session.clone());
    }
    wait_for_connections(&server, 0).await;
    assert!(is_known(&server, &sessions[0]).await, "a session with a process is not evicted");
    for gone in &sessions[1..=3] {
        assert!(!is_known(&server, gone).await, "the session that was detached first is evicted first");
    }
    assert!(is_known(&server, &sessions[4]).await && is_known(&server, &sessions[5]).await);
}

#[tokio::test]
async fn detached_sessions_with_closed_processes_are_evicted_after_the_default_lifetime() {
    let server = TestServer::with_args(&["--max-sessions", "1", "--session-ttl", "300ms"]).await;
    let mut first = client_with_kept_session(&server).await;
    first.run("p", &["true"]).await;
    drop(first);
    wait_for_connections(&server, 0).await;
    let mut second = server.connect_without_handshake().await;
    let error = second.call_error("initialize", json!({"clientName": "second"})).await;
    assert_eq!(error["message"], "server has reached its limit of 1 sessions (--max-sessions)");
    eventually_async("the default lifetime (`--session-ttl`) of the first session is over", async || {
        second.request("initialize", json!({"clientName": "second"})).await.get("result").map(drop)
    })
    .await;
}

#[tokio::test]
async fn processes_beyond_the_limit_are_refused_until_one_is_forgotten() {
    let server = TestServer::with_args(&["--max-processes", "2", "--process-retention", "100ms"]).await;
    let mut client = server.client().await;
    client.start("a", &["sleep", "1000"]).await;
    client.start("b", &["sleep", "1000"]).await;
    let error = client.call_error("process/start", Client::start_params("c", &["true"])).await;
    let message = "session has reached its limit of 2 processes (--max-processes)";
    assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}));
    client.call("process/terminate", json!({"processId": "a"})).await;
    eventually_async("a process is forgotten, so another one can start", async || {
        client.request("process/start", Client::start_params("c", &["true"])).await.get("result").map(drop)
    })
    .await;
    // Another session has its own limit.
    assert_eq!(server.client().await.run("d", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn unanswered_requests_beyond_the_limit_are_refused() {
    let server = TestServer::with_args(&["--max-requests", "3"]).await;
    let mut client = server.client().await;
    client.start("p", &["sleep", "1000"]).await;
    for _ in 0..3 {
        client.send("process/read", json!({"processId": "p", "waitMs": 600_000})).await;
    }
    let error = client.call_error("environment/status", json!({})).await;
    let message = "connection has reached its limit of 3 unanswered requests (--max-requests)";
    assert_eq!(error, json!({"code": INVALID_REQUEST, "message": message}));
    // Another connection has its own limit.
    let mut other = server.client().await;
    assert_eq!(other.run("q", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn argv_and_env_beyond_the_limit_are_refused() {
    let server = TestServer::with_args(&["--max-start-bytes", "10KiB"]).await;
    let mut client = server.client().await;
    let long = "x".repeat(10 << 10);
    let mut params = Client::start_params("p", &["true", &long]);
    params["env"] = json!({});
    let error = client.call_error("process/start", params.clone()).await;
    let message = "argv and env have 10246 bytes and exceed the limit of 10240 (--max-start-bytes)";
    assert_eq!(error, json!({"code": -32602, "message": message}));
    params["argv"] = json!(["/bin/true"]);
    params["env"] = json!({"LONG": long});
    let error = client.call_error("process/start", params).await;
    assert!(error["message"].as_str().unwrap().ends_with("exceed the limit of 10240 (--max-start-bytes)"), "{error}");
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn arguments_over_the_limit_of_the_kernel_are_an_error_of_the_kernel() {
    let server = TestServer::with_args(&["--max-start-bytes", "32MiB"]).await;
    let mut client = server.client().await;
    let long = "x".repeat(16 << 20);
    let error = client.call_error("process/start", Client::start_params("p", &["true", &long])).await;
    assert_eq!((&error["code"], &error["data"]["errno"]), (&json!(-32603), &json!(7)), "{error}");
    assert_eq!(error["message"], "Argument list too long (os error 7)");
}

#[tokio::test]
async fn ids_beyond_the_limit_are_refused() {
    let server = TestServer::with_args(&["--max-id-bytes", "16"]).await;
    let mut client = server.client().await;
    let (id_at_limit, long) = ("p".repeat(16), "p".repeat(17));
    let error = client.call_error("process/start", Client::start_params(&long, &["true"])).await;
    let message = "processId exceeds the limit of 16 bytes (--max-id-bytes)";
    assert_eq!(error, json!({"code": -32602, "message": message}));
    let mut params = Client::start_params(&id_at_limit, &["cat"]);
    params["pipeStdin"] = json!(true);
    client.call("process/start", params).await;
    let write = |id: &str| json!({"processId": id_at_limit, "chunk": "", "writeId": id});
    let error = client.call_error("process/write", write(&long)).await;
    let message = "writeId exceeds the limit of 16 bytes (--max-id-bytes)";
    assert_eq!(error, json!({"code": -32602, "message": message}));
    assert_eq!(client.call("process/write", write(&id_at_limit)).await, json!({"status": "accepted"}));
    client.send_text(&json!({"id": long, "method": "environment/status"}).to_string()).await;
    let message = "request id exceeds the limit of 16 bytes (--max-id-bytes)";
    assert_eq!(client.next().await, json!({"error": {"code": INVALID_REQUEST, "message": message}, "id": -1}));
}

#[tokio::test]
async fn every_method_that_takes_a_process_id_refuses_one_beyond_the_limit() {
    let server = TestServer::with_args(&["--max-id-bytes", "16"]).await;
    let mut client = server.client().await;
    let long = "p".repeat(17);
    for (method, params) in [
        ("process/read", json!({"processId": long})),
        ("process/write", json!({"processId": long, "chunk": ""})),
        ("process/closeStdin", json!({"processId": long})),
        ("process/signal", json!({"processId": long, "signal": "kill"})),
        ("process/resize", json!({"processId": long, "rows": 1, "cols": 1})),
        ("process/flow", json!({"processId": long, "paused": true})),
        ("process/terminate", json!({"processId": long})),
        ("command/exec/write", json!({"processId": long, "chunk": ""})),
        ("command/exec/terminate", json!({"processId": long})),
    ] {
        let error = client.call_error(method, params).await;
        let message = "processId exceeds the limit of 16 bytes (--max-id-bytes)";
        assert_eq!(error, json!({"code": -32602, "message": message}), "{method}");
    }
}

#[tokio::test]
async fn writes_to_a_full_queue_wait_and_are_refused_if_too_many_wait() {
    let server = TestServer::with_args(&["--max-queued-stdin", "1KiB"]).await;
    let mut client = server.client().await;
    let mut params = Client::start_params("p", &["sh", "-c", "read line; exec wc -c"]);
    params["pipeStdin"] = json!(true);
    client.call("process/start", params).await;
    // This chunk of 1.5 MiB does not fit into the pipe. The queue accepts the chunk, because an empty queue accepts
    // any chunk, and is full then.
    let chunk = "AAAA".repeat(1 << 19);
    let answer = client.call("process/write", json!({"processId": "p", "chunk": chunk})).await;
    assert_eq!(answer, json!({"status": "accepted"}));
    // A chunk of 1023 bytes in base64. Four of them may wait, but not five.
    let small = "AAAA".repeat(341);
    let mut waiting = Vec::new();
    for _ in 0..4 {
        waiting.push(client.send("process/write", json!({"processId": "p", "chunk": small})).await);
    }
    let error = client.call_error("process/write", json!({"processId": "p", "chunk": small})).await;
    assert_eq!((&error["code"], &error["data"]), (&json!(INVALID_REQUEST), &json!({"kind": "inputCrowded"})));
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("at most 4 times 1024 bytes may wait (--max-queued-stdin)"), "{message}");
    assert_eq!(client.run("other", &["true"]).await.exit_code, 0);
    client.call("process/terminate", json!({"processId": "p"})).await;
    for id in waiting {
        assert_eq!(client.answer(id).await["result"], json!({"status": "stdinClosed"}));
    }
}

#[tokio::test]
async fn queued_input_of_all_processes_together_is_limited() {
    let server = TestServer::with_args(&["--max-queued-stdin", "8MiB", "--max-queued-stdin-total", "1MiB"]).await;
    let mut client = server.client().await;
    for process in ["a", "b"] {
        let mut params = Client::start_params(process, &["sleep", "1000"]);
        params["pipeStdin"] = json!(true);
        client.call("process/start", params).await;
    }
    let large = "AAAA".repeat(1 << 19);
    let write = |process: &str, chunk: &str| json!({"processId": process, "chunk": chunk});
    // The write to the first process is larger than the limit. It is accepted, because nothing else is queued.
    assert_eq!(client.call("process/write", write("a", &large)).await, json!({"status": "accepted"}));
    let error = client.call_error("process/write", write("b", &large)).await;
    assert_eq!((&error["code"], &error["data"]), (&json!(INVALID_REQUEST), &json!({"kind": "inputCrowded"})));
    assert!(error["message"].as_str().unwrap().contains("(--max-queued-stdin-total)"), "{error}");
    // A write of at most 64 KiB to a process without queued input is always accepted.
    let mut third = Client::start_params("c", &["cat"]);
    third["pipeStdin"] = json!(true);
    client.call("process/start", third).await;
    assert_eq!(client.call("process/write", write("c", "aGkK")).await, json!({"status": "accepted"}));
    assert_eq!(client.event("c").await["params"]["chunk"], "aGkK");
    // When the first process has ended, its input no longer counts.
    client.call("process/terminate", json!({"processId": "a"})).await;
    assert_eq!(client.call("process/write", write("b", &large)).await, json!({"status": "accepted"}));
}
