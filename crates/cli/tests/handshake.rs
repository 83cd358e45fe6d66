//! The message envelope and the handshake, message by message.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

use std::net::SocketAddr;

use testkit::{Client, TestServer, Value, json};

/// Checks that an answer reports a message that cannot be parsed. Returns the reason in
/// `failed to parse … from exec-server websocket IP:PORT: REASON`.
fn parse_failure(answer: &Value) -> String {
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(-1), &json!(-32600)), "{answer}");
    let text = answer["error"]["message"].as_str().unwrap();
    let rest =
        text.strip_prefix("failed to parse websocket JSON-RPC message from exec-server websocket ").expect(text);
    let (peer, reason) = rest.split_once(": ").expect(text);
    assert!(peer.parse::<SocketAddr>().unwrap().ip().is_loopback(), "{text}");
    reason.to_owned()
}

/// An answer with an error of code -32600.
fn refusal(id: i64, message: &str) -> Value {
    json!({"error": {"code": -32600, "message": message}, "id": id})
}

/// Sends a binary frame, masked with a key of zeros. The text must be shorter than 126 bytes, so that its length fits
/// the shortest header.
async fn send_binary(client: &mut Client, text: &str) {
    assert!(text.len() < 126);
    let mut frame = vec![0x82, 0x80 | text.len() as u8];
    frame.extend([0; 4]);
    frame.extend(text.as_bytes());
    client.send_bytes(&frame).await.unwrap();
}

async fn assert_ready(client: &mut Client) {
    assert_eq!(client.call("environment/status", json!({})).await, json!({"status": "ready"}));
}

#[tokio::test]
async fn initialize_answers_with_a_uuid() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    client.send_text(r#"{"id":1,"method":"initialize","params":{"clientName":"c","resumeSessionId":null}}"#).await;
    let answer = client.next().await;
    let session = answer["result"]["sessionId"].as_str().unwrap();
    assert_eq!(answer, json!({"id": 1, "result": {"sessionId": session}}));
    let groups: Vec<_> = session.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{session}");
    assert!(session.chars().all(|c| c == '-' || c.is_ascii_hexdigit()), "{session}");
    assert_eq!(session.as_bytes()[14], b'4', "a random UUID: {session}");

    let mut other = server.client().await;
    assert_ne!(other.session, session);
    assert_ready(&mut other).await;
}

#[tokio::test]
async fn a_second_initialize_is_refused() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let error = client.call_error("initialize", json!({"clientName": "c"})).await;
    assert_eq!(error, json!({"code": -32600, "message": "initialize may only be sent once per connection"}));
    assert_ready(&mut client).await;
}

#[tokio::test]
async fn a_failed_initialize_may_be_repeated() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    let error = client.call_error("initialize", json!({})).await;
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().starts_with("missing field `clientName`"), "{error}");
    let error = client.call_error("initialize", json!({"clientName": "c", "resumeSessionId": "nobody"})).await;
    assert_eq!(error, json!({"code": -32600, "message": "unknown session id nobody"}));
    client.handshake(None).await;
    assert_ready(&mut client).await;
}

/// Requests that need a handshake: method, params, and the name of the method family as the refusal writes it.
fn requests_that_need_a_handshake() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("environment/info", json!({}), "environment info"),
        ("environment/status", json!(null), "environment status"),
        ("process/start", Client::start_params("p", &["true"]), "exec"),
        ("process/read", json!({"processId": "p"}), "exec"),
        ("process/write", json!({"processId": "p", "chunk": "", "writeId": "1"}), "exec"),
        ("process/signal", json!({"processId": "p", "signal": "interrupt"}), "exec"),
        ("process/terminate", json!({"processId": "p"}), "exec"),
        ("process/resize", json!({"processId": "p", "rows": 1, "cols": 1}), "exec"),
        ("process/closeStdin", json!({"processId": "p"}), "exec"),
        ("process/list", json!({}), "exec"),
        ("command/exec", json!({"processId": "p", "argv": ["true"], "cwd": "/"}), "exec"),
        ("command/exec/write", json!({"processId": "p", "chunk": ""}), "exec"),
        ("command/exec/terminate", json!({"processId": "p"}), "exec"),
    ]
}

#[tokio::test]
async fn methods_are_refused_before_the_handshake_is_complete() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    for (method, params, family) in requests_that_need_a_handshake() {
        let error = client.call_error(method, params).await;
        let message = format!("client must call initialize before using {family} methods");
        assert_eq!(error, json!({"code": -32600, "message": message}), "{method}");
    }
    client.call("initialize", json!({"clientName": "c"})).await;
    for (method, params, family) in requests_that_need_a_handshake() {
        let error = client.call_error(method, params).await;
        let message = format!("client must send initialized before using {family} methods");
        assert_eq!(error, json!({"code": -32600, "message": message}), "{method}");
    }
    client.notify("initialized", json!(null)).await;
    assert_eq!(client.processes().await, json!([]), "none of the requests had an effect");
}

#[tokio::test]
async fn requests_pipelined_before_initialized_are_refused_in_order() {
    let server = TestServer::with_args(&["--concurrent-requests", "32"]).await;
    let mut client = server.connect_without_handshake().await;
    let early = client.send("environment/status", json!({})).await;
    let initialize = client.send("initialize", json!({"clientName": "c"})).await;
    let requests = requests_that_need_a_handshake();
    let mut expected = Vec::new();
    for (method, params, family) in requests {
        let id = client.send(method, params).await;
        expected.push(refusal(id, &format!("client must send initialized before using {family} methods")));
    }
    client.notify("initialized", json!({})).await;
    let late = client.send("environment/status", json!({})).await;

    let before = refusal(early, "client must call initialize before using environment status methods");
    assert_eq!(client.next().await, before);
    assert_eq!(client.next().await["id"], initialize);
    for answer in expected {
        assert_eq!(client.next().await, answer);
    }
    assert_eq!(client.next().await, json!({"id": late, "result": {"status": "ready"}}));
}

#[tokio::test]
async fn requests_that_never_wait_are_answered_in_order() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let mut sent = Vec::new();
    for _ in 0..100 {
        for method in ["environment/info", "environment/info", "environment/status", "process/list"] {
            sent.push(client.send(method, json!({})).await);
        }
    }
    for id in sent {
        assert_eq!(client.next().await["id"], id);
    }
}

#[tokio::test]
async fn bad_params_are_reported_before_a_missing_handshake() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    let error = client.call_error("process/read", json!({"afterSeq": 1})).await;
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().starts_with("missing field `processId`"), "{error}");
}

#[tokio::test]
async fn the_params_of_a_method_that_takes_none_may_be_missing_null_or_an_empty_object() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    client.send_text(r#"{"id":"bare","method":"environment/status"}"#).await;
    assert_eq!(client.next().await, json!({"id": "bare", "result": {"status": "ready"}}));
    client.call("environment/info", json!(null)).await;
    client.call("environment/info", json!({})).await;
    assert_eq!(client.call_error("environment/info", json!({"a": 1})).await["code"], -32602);
    assert_eq!(client.call_error("environment/info", json!([])).await["code"], -32602);
}

#[tokio::test]
async fn the_error_for_an_unknown_method_names_it_even_before_initialize() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    for method in ["fs/readfile", "initialized", "process/output", "", "Process/Start", "rm `-rf`"] {
        let error = client.call_error(method, json!({"any": "params"})).await;
        let message = format!("exec-server stub does not implement `{method}` yet");
        assert_eq!(error, json!({"code": -32601, "message": message}));
    }
    client.handshake(None).await;
    assert_ready(&mut client).await;
}

#[tokio::test]
async fn the_id_is_echoed_with_its_type() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for id in [r#""""#, r#""7""#, "7", "-7", "0", "9223372036854775807", "-9223372036854775808", r#""\u00e4\"\n""#] {
        client.send_text(&format!(r#"{{"id":{id},"method":"environment/status"}}"#)).await;
        assert_eq!(client.next().await["id"], parse_json(id), "{id}");
        client.send_text(&format!(r#"{{"id":{id},"method":"nothing"}}"#)).await;
        assert_eq!(client.next().await["id"], parse_json(id), "{id}");
    }
}

fn parse_json(text: &str) -> Value {
    text.parse().unwrap()
}

#[tokio::test]
async fn unknown_members_of_messages_are_ignored_and_answers_have_no_additional_members() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    client
        .send_text(
            r#"{"jsonrpc":"1.0","x":[{}],"id":1,"method":"initialize","params":{"clientName":"c","y":0},"trace":7}"#,
        )
        .await;
    let answer = client.receive_bytes().await.unwrap();
    assert!(answer.starts_with(br#"{"id":1,"result":{"sessionId":""#), "{answer:?}");
    client.send_text(r#"{"jsonrpc":"2.0","method":"initialized","params":[1,2]}"#).await;
    let trace = r#"{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tracestate":"a=b"}"#;
    client.send_text(&format!(r#"{{"id":2,"method":"environment/status","trace":{trace}}}"#)).await;
    assert_eq!(client.receive_bytes().await.unwrap(), &br#"{"id":2,"result":{"status":"ready"}}"#[..]);
    client.send_text(r#"{"id":3,"method":"x"}"#).await;
    let expected = br#"{"error":{"code":-32601,"message":"exec-server stub does not implement `x` yet"},"id":3}"#;
    assert_eq!(client.receive_bytes().await.unwrap(), &expected[..]);
}

#[tokio::test]
async fn malformed_messages_are_answered_and_the_connection_stays_open() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    for (message, reason) in [
        ("not-json", "expected ident at line 1 column 2"),
        ("", "EOF while parsing a value at line 1 column 0"),
        (r#"{"id":1,"method":"initi"#, "EOF while parsing a string at line 1 column 23"),
        ("[]", "expected a JSON-RPC object"),
        (r#"[{"id":1,"method":"environment/status"}]"#, "expected a JSON-RPC object"),
        ("7", "expected a JSON-RPC object"),
        ("null", "expected a JSON-RPC object"),
        ("{}", "missing field `error`"),
        (r#"{"id":1}"#, "missing field `error`"),
        (r#"{"method":"a","id":1,"method":"b"}"#, "duplicate JSON object key `method`"),
        (r#"{"method":"a","id":1,"params":{"x":{"k":1,"k":2}}}"#, "duplicate JSON object key `k`"),
    ] {
        client.send_text(message).await;
        assert_eq!(parse_failure(&client.next().await), reason, "{message}");
    }
    for id in ["null", "1.5", "true", "[]", "{}", "9223372036854775808"] {
        client.send_text(&format!(r#"{{"id":{id},"method":"environment/status"}}"#)).await;
        parse_failure(&client.next().await);
    }
    client.handshake(None).await;
    client.send_text("}").await;
    parse_failure(&client.next().await);
    assert_ready(&mut client).await;
}

#[tokio::test]
async fn a_message_with_many_values_is_refused_and_one_with_a_large_value_is_not() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let zeros = vec!["0"; 2_100_000].join(",");
    client.send_text(&format!(r#"{{"id":1,"method":"environment/status","x":[{zeros}]}}"#)).await;
    assert_eq!(parse_failure(&client.next().await), "JSON-RPC message exceeds the limit of 262144 JSON values");
    let long = "x".repeat(4 << 20);
    client.send_text(&format!(r#"{{"id":"big","method":"environment/status","x":"{long}"}}"#)).await;
    assert_eq!(client.next().await, json!({"id": "big", "result": {"status": "ready"}}));
}

#[tokio::test]
async fn keys_that_the_json_library_uses_internally_are_ordinary_keys() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for key in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
        client.send_text(&format!(r#"{{"id":1,"method":"environment/status","params":{{"{key}":"null"}}}}"#)).await;
        assert_eq!(
            client.next().await["error"]["code"],
            -32602,
            "the params are an object with a member, and not null"
        );
        client.send_text(&format!(r#"{{"id":2,"method":"environment/status","x":{{"{key}":"[[["}}}}"#)).await;
        assert_eq!(client.next().await, json!({"id": 2, "result": {"status": "ready"}}));
        client.send_text(&format!(r#"{{"{key}":"{{\"id\":3,\"method\":\"environment/status\"}}"}}"#)).await;
        assert_eq!(parse_failure(&client.next().await), "missing field `error`");
    }
}

#[tokio::test]
async fn binary_frames_are_messages_too() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    send_binary(&mut client, r#"{"id":1,"method":"initialize","params":{"clientName":"c"}}"#).await;
    assert!(client.next().await["result"]["sessionId"].is_string());
    send_binary(&mut client, r#"{"method":"initialized"}"#).await;
    assert_ready(&mut client).await;
    send_binary(&mut client, "garbage").await;
    assert_eq!(parse_failure(&client.next().await), "expected value at line 1 column 1");
    assert_ready(&mut client).await;
}

#[tokio::test]
async fn unexpected_notifications_are_refused_and_the_connection_stays_open() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    client.notify("initialized", json!({})).await;
    assert_eq!(client.next().await, refusal(-1, "client must call initialize before sending initialized"));
    client.notify("process/output", json!({})).await;
    assert_eq!(client.next().await, refusal(-1, "unexpected notification `process/output`"));
    client.handshake(None).await;
    client.notify("environment/status", json!({})).await;
    assert_eq!(client.next().await, refusal(-1, "unexpected notification `environment/status`"));
    assert_ready(&mut client).await;
}

#[tokio::test]
async fn initialized_may_be_repeated_with_any_params() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for params in [json!(null), json!({}), json!({"a": [1]}), json!("text"), json!(3)] {
        client.notify("initialized", params).await;
    }
    client.send_text(r#"{"method":"initialized"}"#).await;
    let id = client.send("environment/status", json!({})).await;
    assert_eq!(client.next().await["id"], id, "no notification got an answer");
}

#[tokio::test]
async fn an_answer_without_a_request_is_refused_and_ends_the_connection() {
    let server = TestServer::start().await;
    for (answer, id) in [
        (r#"{"id":1,"result":{}}"#, "1"),
        (r#"{"id":0,"result":{}}"#, "0"),
        (r#"{"error":{"code":1,"message":"no"},"id":"x"}"#, "x"),
    ] {
        let mut client = server.client().await;
        client.send_text(answer).await;
        let text = format!("no request with id {id} is waiting for an answer");
        assert_eq!(client.next().await, refusal(-1, &text));
        assert_eq!(client.receive().await, None, "the connection is closed");
    }
}
