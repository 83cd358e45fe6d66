//! Messages of a hundred megabytes, which is over the size limit, in one frame, in fragments and as a line. And large
//! messages within the limit, with answers that do not repeat them.

use testkit::{Client, TestServer, Value, json};

use crate::other_client::OtherClient;

const HUNDRED_MEGABYTES: usize = 100_000_000;
/// Bytes that are sent at a time.
const PIECE: usize = 1_000_000;

/// The first bytes of the message. The server takes the id for its error from them.
const BEGINNING: &[u8] = br#"{"id":"large","method":"process/write","params":{"chunk":""#;

/// The header of a WebSocket frame whose mask is zeros. `first_byte` has the FIN bit and the opcode.
fn header(first_byte: u8, payload_bytes: usize) -> Vec<u8> {
    [&[first_byte, 0xff], &(payload_bytes as u64).to_be_bytes()[..], &[0, 0, 0, 0]].concat()
}

/// Sends three large messages in pieces, while another client is served. Checks the errors, and that the connection
/// still works. `send_piece` sends the piece with this number. `peer` begins the name of the client in the error.
async fn assert_refused(server: &TestServer, peer: &str, mut send_piece: impl AsyncFnMut(&mut Client, usize)) {
    let mut other_client = OtherClient::connect(server).await;
    let mut client = server.client().await;
    for round in 0..3 {
        for piece in 0..HUNDRED_MEGABYTES / PIECE {
            send_piece(&mut client, piece).await;
            if piece == 50 {
                other_client.assert_served().await;
            }
        }
        let answer = client.next().await;
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("large"), &json!(-32600)), "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(&format!("JSON-RPC message from exec-server {peer}")), "{message}");
        assert!(message.ends_with("exceeds maximum length of 67108864 bytes"), "{message}");
        assert_eq!(client.run(&format!("p{round}"), &["echo", "hello"]).await.stdout, b"hello\n");
    }
    drop(client);
    other_client.assert_served_and_memory_freed().await;
}

/// Piece `number` of a message that begins like a request.
fn piece(number: usize) -> Vec<u8> {
    let mut piece = vec![b'A'; PIECE];
    if number == 0 {
        piece[..BEGINNING.len()].copy_from_slice(BEGINNING);
    }
    piece
}

#[tokio::test]
async fn a_message_over_the_limit_in_one_frame_is_refused() {
    let server = TestServer::start().await;
    assert_refused(&server, "websocket 127.0.0.1:", async |client, number| {
        if number == 0 {
            client.send_bytes(&header(0x81, HUNDRED_MEGABYTES)).await.unwrap();
        }
        client.send_bytes(&piece(number)).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_message_over_the_limit_in_fragments_is_refused() {
    let server = TestServer::start().await;
    assert_refused(&server, "websocket 127.0.0.1:", async |client, number| {
        // A text frame without FIN, continuation frames without FIN, and a continuation frame with FIN.
        let first_byte = match number {
            0 => 0x01,
            _ if number == HUNDRED_MEGABYTES / PIECE - 1 => 0x80,
            _ => 0x00,
        };
        client.send_bytes(&header(first_byte, PIECE)).await.unwrap();
        client.send_bytes(&piece(number)).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_line_over_the_limit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("unix://{}/exec.sock", directory.path().display());
    let server = TestServer::with_args(&["--listen", &url]).await;
    assert_refused(&server, "unix", async |client, number| {
        client.send_bytes(&piece(number)).await.unwrap();
        if number == HUNDRED_MEGABYTES / PIECE - 1 {
            client.send_bytes(b"\n").await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn large_messages_within_the_limit_leave_no_memory_behind() {
    let server = TestServer::start().await;
    let mut other_client = OtherClient::connect(&server).await;
    let mut client = server.client().await;
    for megabytes in [4, 20, 60, 30, 60] {
        let chunk = "AAAA".repeat(megabytes * 250_000);
        let result = client.call("process/write", json!({"processId": "nobody", "chunk": chunk})).await;
        assert_eq!(result, json!({"status": "unknownProcess"}));
        other_client.assert_served().await;
    }
    other_client.assert_served_and_memory_freed().await;
}

/// Longest answer that the test accepts for a request with a huge text.
const SHORT_ANSWER_BYTES: usize = 64 << 10;

#[tokio::test]
async fn an_error_repeats_only_a_part_of_a_huge_text() {
    let server = TestServer::with_args(&["--max-id-bytes", "16MiB"]).await;
    let mut client = server.client().await;
    let mut fresh = server.connect_without_handshake().await;
    let huge = "x".repeat(4 << 20);
    let uri = format!("file:///{huge}");
    let mut start = Client::start_params("p", &["true"]);
    start["cwd"] = json!(uri);
    let program = Client::start_params("p", &[&huge]);
    let exec = json!({"processId": "p", "argv": ["true"], "cwd": huge, "env": {}, "tty": false});
    let copy = json!({"sourcePath": uri, "destinationPath": uri, "recursive": false});
    let resume = json!({"clientName": "c", "resumeSessionId": huge});
    let errors = [
        ("initialize", fresh.request("initialize", resume).await),
        ("process/read", client.request("process/read", json!({"processId": huge})).await),
        ("process/signal", client.request("process/signal", json!({"processId": "p", "signal": huge})).await),
        ("process/start in a directory", client.request("process/start", start).await),
        ("process/start of a program", client.request("process/start", program).await),
        ("command/exec", client.request("command/exec", exec).await),
        ("fs/getMetadata", client.request("fs/getMetadata", json!({"path": uri})).await),
        ("fs/getMetadata without a URI", client.request("fs/getMetadata", json!({"path": huge})).await),
        ("fs/readFile", client.request("fs/readFile", json!({"path": uri})).await),
        ("fs/copy", client.request("fs/copy", copy).await),
        ("fs/readBlock", client.request("fs/readBlock", json!({"handleId": huge, "offset": 0, "len": 1})).await),
        ("an unknown member", client.request("process/list", json!({&huge: 1})).await),
    ];
    for (request, answer) in errors {
        let is_error = answer["error"]["message"].as_str().is_some_and(|message| !message.is_empty());
        let bytes = answer.to_string().len();
        assert!(is_error, "{request} must fail, and has an answer of {bytes} bytes");
        assert!(bytes <= SHORT_ANSWER_BYTES, "{request}: {bytes} bytes");
    }
    let ordinary = json!({"path": format!("file:///{}", "x".repeat(200))});
    let error = client.call_error("fs/getMetadata", ordinary.clone()).await;
    assert_eq!((&error["data"]["path"], &error["code"]), (&ordinary["path"], &Value::from(-32004)), "{error}");
}
