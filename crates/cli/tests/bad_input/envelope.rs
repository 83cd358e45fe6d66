//! The outermost JSON object of a message. A message that is not JSON, not JSON-RPC or not expected gets an error,
//! and the connection stays usable. Only broken WebSocket frames end the connection.

use testkit::{Client, TestServer, Value, json};

use crate::other_client::OtherClient;

const INVALID_REQUEST: i64 = -32600;
const INVALID_PARAMS: i64 = -32602;

const TEXT_OPCODE: u8 = 1;
const BINARY_OPCODE: u8 = 2;

/// Malformed messages, each with the end of the expected error text. An empty end accepts every text.
fn malformed() -> Vec<(String, &'static str)> {
    let with_id = |id: &str| format!(r#"{{"id":{id},"method":"environment/status"}}"#);
    let nested =
        |depth: usize| format!(r#"{{"id":1,"method":"x","params":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
    let values = |count: usize| format!(r#"{{"id":1,"method":"x","params":[{}1]}}"#, "1,".repeat(count - 1));
    vec![
        ("not-json".into(), "expected ident at line 1 column 2"),
        (r#"{"id":1,"#.into(), "EOF while parsing a value at line 1 column 8"),
        (r#"{"id":1,"method":"process/start","params":{"processId""#.into(), "line 1 column 54"),
        ("[]".into(), "expected a JSON-RPC object"),
        (r#"[{"id":1,"method":"environment/status"}]"#.into(), "expected a JSON-RPC object"),
        ("17".into(), "expected a JSON-RPC object"),
        (r#""text""#.into(), "expected a JSON-RPC object"),
        ("null".into(), "expected a JSON-RPC object"),
        ("{}".into(), "missing field `error`"),
        (r#"{"id":1}"#.into(), "missing field `error`"),
        (r#"{"result":1}"#.into(), "missing field `id`"),
        (r#"{"error":{"code":1,"message":"m"}}"#.into(), "missing field `id`"),
        (r#"{"id":1,"method":5}"#.into(), "invalid type: number, expected a string"),
        (r#"{"id":1,"method":null}"#.into(), "invalid type: null, expected a string"),
        (r#"{"id":1,"id":2,"method":"x"}"#.into(), "duplicate JSON object key `id`"),
        (r#"{"id":1,"method":"x","params":{"a":[{"b":1,"b":2}]}}"#.into(), "duplicate JSON object key `b`"),
        (with_id("null"), ""),
        (with_id("1.5"), ""),
        (with_id("1e3"), ""),
        (with_id("true"), ""),
        (with_id("{}"), ""),
        (with_id("[1]"), ""),
        (with_id("9223372036854775808"), ""),
        (with_id("-9223372036854775809"), ""),
        (nested(128), "limit of 128 nested containers"),
        (nested(100_000), ""),
        ("[".repeat(1_000_000), ""),
        (values(262_144), "JSON-RPC message exceeds the limit of 262144 JSON values"),
    ]
}

/// Sends each malformed message and checks the error. Then checks that the connection still works.
async fn assert_each_is_refused(client: &mut Client, prefix: &str) {
    for (text, ending) in malformed() {
        client.send_text(&text).await;
        let answer = client.next().await;
        let shown = &text[..text.len().min(80)];
        assert_eq!(answer["id"], -1, "{shown}: {answer}");
        assert_eq!(answer["error"]["code"], INVALID_REQUEST, "{shown}: {answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(prefix), "{shown}: {message}");
        assert!(message.ends_with(ending), "{shown}: {message}");
    }
    assert_eq!(client.call("environment/status", json!({})).await, json!({"status": "ready"}));
}

#[tokio::test]
async fn malformed_messages_on_a_websocket_are_refused() {
    let server = TestServer::start().await;
    let mut other_client = OtherClient::connect(&server).await;
    let mut client = server.client().await;
    assert_each_is_refused(
        &mut client,
        "failed to parse websocket JSON-RPC message from exec-server websocket 127.0.0.1:",
    )
    .await;
    other_client.assert_served().await;
    other_client.assert_served_and_memory_freed().await;
}

#[tokio::test]
async fn malformed_messages_on_a_unix_socket_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("unix://{}/exec.sock", directory.path().display());
    let server = TestServer::with_args(&["--listen", &url]).await;
    let other_client = OtherClient::connect(&server).await;
    let mut client = server.client().await;
    assert_each_is_refused(&mut client, "failed to parse JSON-RPC message from exec-server unix: ").await;
    other_client.assert_served_and_memory_freed().await;
}

#[tokio::test]
async fn nesting_up_to_the_limit_is_accepted() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    // With the object around them, these are 128 containers.
    let params = format!("{}{}", "[".repeat(127), "]".repeat(127));
    client.send_text(&format!(r#"{{"id":1000,"method":"environment/status","params":{params}}}"#)).await;
    // The message is accepted. Only the method refuses the params, because it has none.
    assert_eq!(client.answer(1000).await["error"]["code"], INVALID_PARAMS);
}

#[tokio::test]
async fn ids_are_echoed_unchanged_and_unknown_members_are_ignored() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for id in [json!("text"), json!(""), json!("-1"), json!(-5), json!(0), json!(i64::MAX), json!(i64::MIN)] {
        client
            .send_text(&json!({"jsonrpc": "2.0", "id": id, "method": "environment/status", "more": [1]}).to_string())
            .await;
        assert_eq!(client.next().await, json!({"id": id, "result": {"status": "ready"}}));
    }
}

#[tokio::test]
async fn messages_that_are_not_utf8_are_refused_and_a_binary_message_in_utf8_is_answered() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    for opcode in [TEXT_OPCODE, BINARY_OPCODE] {
        client.send_bytes(&frame(opcode, b"{\"id\":1,\"method\":\"\xff\xfe\"}")).await.unwrap();
        let answer = client.next().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(-1), &json!(INVALID_REQUEST)), "{answer}");
    }
    client.send_bytes(&frame(BINARY_OPCODE, br#"{"id":"binary","method":"environment/status"}"#)).await.unwrap();
    assert_eq!(client.next().await["id"], "binary");
}

#[tokio::test]
async fn unexpected_notifications_are_refused() {
    let server = TestServer::start().await;
    let mut client = server.connect_without_handshake().await;
    client.notify("initialized", json!({})).await;
    expect_refusal(&mut client, "client must call initialize before sending initialized").await;
    client.handshake(None).await;
    client.notify("process/output", json!({"processId": "p"})).await;
    expect_refusal(&mut client, "unexpected notification `process/output`").await;
    // A second `initialized` is not refused, whatever its params are.
    client.notify("initialized", json!("again")).await;
    assert_eq!(client.run("p", &["true"]).await.exit_code, 0);
}

#[tokio::test]
async fn a_client_that_breaks_the_websocket_protocol_is_closed_with_1002_or_1007() {
    let server = TestServer::start().await;
    let mut other_client = OtherClient::connect(&server).await;
    let broken: [&[u8]; 8] = [
        b"\x81\x02{}",                                       // not masked
        b"\xf1\x80\0\0\0\0",                                 // reserved bits
        b"\x83\x80\0\0\0\0",                                 // unknown opcode
        b"\x80\x80\0\0\0\0",                                 // a continuation without a first frame
        b"\x09\x80\0\0\0\0",                                 // a fragmented ping
        b"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", // a length over 63 bits
        b"\x81\xfe\0\x02\0\0\0\0{}",                         // a length in more bytes than needed
        b"\x88\x82\0\0\0\0\x03\xed",                         // a close with 1005, which must not be sent
    ];
    for bytes in broken {
        let mut client = server.client().await;
        client.send_bytes(bytes).await.unwrap();
        client.drain().await;
        assert_eq!(client.close_reason.as_ref().map(|reason| reason.code), Some(1002), "{bytes:?}");
        other_client.assert_served().await;
    }
    let mut client = server.client().await;
    let reason_that_is_not_utf8 = b"\x88\x83\0\0\0\0\x03\xe8\xff";
    client.send_bytes(reason_that_is_not_utf8).await.unwrap();
    client.drain().await;
    assert_eq!(client.close_reason.as_ref().map(|reason| reason.code), Some(1007));
    other_client.assert_served_and_memory_freed().await;
}

/// Receives the next message, which must be an error that belongs to no request.
async fn expect_refusal(client: &mut Client, message: &str) {
    let expected: Value = json!({"id": -1, "error": {"code": INVALID_REQUEST, "message": message}});
    assert_eq!(client.next().await, expected);
}

/// A frame whose mask is zeros, so that the mask does not change the payload.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    assert!(payload.len() < 126);
    [&[0x80 | opcode, 0x80 | payload.len() as u8, 0, 0, 0, 0], payload].concat()
}
