//! Clients that break the rules of `tcp/*`: each gets an error or loses its stream, and the connection stays usable.

use testkit::{Client, TestServer, Value, base64, json, unbase64};
use tokio::io::AsyncReadExt as _;

use crate::support::{ClosedPort, echo_server, in_time, tcp_server};

async fn connect(client: &mut Client, stream: &str, port: u16) -> Value {
    client.call("tcp/connect", json!({"streamId": stream, "host": "127.0.0.1", "port": port})).await
}

async fn send(client: &mut Client, stream: &str, bytes: &[u8]) {
    client.notify("tcp/data", json!({"streamId": stream, "chunk": base64(bytes)})).await;
}

/// The next `tcp/close` or the next error with id -1.
async fn next_refusal(client: &mut Client) -> Value {
    client.take(|message| message["method"] == "tcp/close" || message["id"] == -1).await
}

async fn kind_of_error(client: &mut Client, params: Value) -> (i64, String) {
    let error = client.call_error("tcp/connect", params).await;
    (error["code"].as_i64().unwrap(), error["data"]["kind"].as_str().unwrap_or_default().to_owned())
}

/// Checks that the connection can still open a stream and use it.
async fn expect_usable(client: &mut Client, stream: &str, echo: u16) {
    connect(client, stream, echo).await;
    send(client, stream, b"ping").await;
    let data =
        client.take(|message| message["method"] == "tcp/data" && message["params"]["streamId"] == stream).await;
    assert_eq!(unbase64(&data["params"]["chunk"]), b"ping");
}

#[tokio::test]
async fn params_that_make_no_sense_are_refused() {
    let (server, echo, closed) = (TestServer::start().await, echo_server().await, ClosedPort::reserve());
    let mut client = server.client().await;
    let restricted = json!({"permissions": {"type": "managed", "file_system": {"type": "unrestricted"}, "network": "restricted"}, "windowsSandboxLevel": "disabled"});
    for (params, expected) in [
        (json!({"streamId": "s", "host": "127.0.0.1", "port": 0}), (-32602, "")),
        (json!({"streamId": "s", "host": "127.0.0.1", "port": 65536}), (-32602, "")),
        (json!({"streamId": "s", "host": "", "port": 1}), (-32602, "")),
        (json!({"streamId": "s", "host": "x".repeat(256), "port": 1}), (-32602, "")),
        (json!({"streamId": "i".repeat(2000), "host": "127.0.0.1", "port": echo}), (-32602, "")),
        (json!({"streamId": 7, "host": "127.0.0.1", "port": echo}), (-32602, "")),
        (json!({"streamId": "s", "host": "127.0.0.1"}), (-32602, "")),
        (json!({"streamId": "s", "host": "127.0.0.1", "port": closed.number}), (-32603, "connectionRefused")),
        (json!({"streamId": "s", "host": "no such host", "port": 1}), (-32603, "unknownHost")),
        (
            json!({"streamId": "s", "host": "127.0.0.1", "port": echo, "sandbox": restricted}),
            (-32600, "sandboxDenied"),
        ),
    ] {
        let (code, kind) = kind_of_error(&mut client, params.clone()).await;
        assert_eq!((code, kind.as_str()), expected, "{params}");
    }
    expect_usable(&mut client, "s", echo).await;
}

#[tokio::test]
async fn a_stream_id_in_use_is_refused_and_its_stream_goes_on() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let mut client = server.client().await;
    expect_usable(&mut client, "s", echo).await;
    let params = json!({"streamId": "s", "host": "127.0.0.1", "port": echo});
    assert_eq!(client.call_error("tcp/connect", params).await["message"], "stream id `s` is already in use");
    send(&mut client, "s", b"still here").await;
    let data = client.take(|message| message["method"] == "tcp/data").await;
    assert_eq!(unbase64(&data["params"]["chunk"]), b"still here");
}

#[tokio::test]
async fn bytes_for_an_unknown_stream_and_messages_that_cannot_be_read_are_refused() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let mut client = server.client().await;
    let huge = "u".repeat(1 << 20);
    for (method, params) in [
        ("tcp/data", json!({"streamId": "unknown", "chunk": ""})),
        ("tcp/data", json!({"streamId": huge, "chunk": "aGk="})),
        ("tcp/data", json!({"streamId": "quo\"te", "chunk": "aGk=", "end": true})),
        ("tcp/data", json!({"chunk": "aGk="})),
        ("tcp/data", json!([])),
        ("tcp/flow", json!({"streamId": "s", "credit": -1})),
        ("tcp/flow", json!({"streamId": "s"})),
        ("tcp/close", json!({"streamId": null})),
        ("tcp/unknown", json!({})),
    ] {
        client.notify(method, params).await;
        let refusal = next_refusal(&mut client).await;
        assert_eq!((&refusal["id"], &refusal["error"]["code"]), (&json!(-1), &json!(-32600)), "{method}: {refusal}");
        assert!(refusal.to_string().len() < 1000, "an error repeats little of its message");
    }
    // These may come after the end of a stream.
    client.notify("tcp/flow", json!({"streamId": "gone", "credit": 1})).await;
    client.notify("tcp/close", json!({"streamId": "gone"})).await;
    expect_usable(&mut client, "s", echo).await;
}

#[tokio::test]
async fn bytes_without_credit_close_the_stream_and_reach_nobody_else() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let mut client = server.client().await;
    // A target that never reads, so that its credit runs out.
    let silent = tcp_server(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let credit = connect(&mut client, "s", silent).await["credit"].as_u64().unwrap();
    let block = vec![0; 512 << 10];
    // The kernel takes some bytes, which give new credit, so a few more blocks are needed than the credit alone.
    for _ in 0..(credit as usize / block.len()) + 64 {
        send(&mut client, "s", &block).await;
    }
    let close = next_refusal(&mut client).await;
    assert_eq!(close["params"]["kind"], "streamViolation", "{close}");
    // The id stays in use until the client confirms, and late bytes are ignored.
    send(&mut client, "s", b"late").await;
    let params = json!({"streamId": "s", "host": "127.0.0.1", "port": echo});
    assert_eq!(client.call_error("tcp/connect", params).await["code"], -32602);
    client.notify("tcp/close", json!({"streamId": "s"})).await;
    expect_usable(&mut client, "s", echo).await;
}

#[tokio::test]
async fn a_stream_is_closed_if_its_bytes_are_no_base64_or_come_after_its_end() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let mut client = server.client().await;
    connect(&mut client, "bad", echo).await;
    client.notify("tcp/data", json!({"streamId": "bad", "chunk": "???"})).await;
    let close = next_refusal(&mut client).await;
    assert_eq!((&close["params"]["streamId"], &close["params"]["kind"]), (&json!("bad"), &json!("streamViolation")));
    let silent = tcp_server(|mut stream| async move {
        let _end = stream.read_u8().await;
        std::future::pending::<()>().await;
    })
    .await;
    connect(&mut client, "late", silent).await;
    client.notify("tcp/data", json!({"streamId": "late", "chunk": "", "end": true})).await;
    send(&mut client, "late", b"x").await;
    let close = next_refusal(&mut client).await;
    assert_eq!((&close["params"]["streamId"], &close["params"]["kind"]), (&json!("late"), &json!("streamViolation")));
    expect_usable(&mut client, "s", echo).await;
}

#[tokio::test]
async fn the_id_of_a_closed_stream_is_free_after_the_last_message_of_the_client() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let mut client = server.client().await;
    let last_messages =
        [("tcp/data", json!({"streamId": "s", "chunk": "", "end": true})), ("tcp/close", json!({"streamId": "s"}))];
    for (method, params) in last_messages {
        // The last message comes after the server has closed the stream.
        connect(&mut client, "s", echo).await;
        client.notify("tcp/data", json!({"streamId": "s", "chunk": "???"})).await;
        next_refusal(&mut client).await;
        client.notify(method, params.clone()).await;
        // Here it comes at the same time, and the server handles it before or after it has closed the stream.
        connect(&mut client, "s", echo).await;
        client.notify("tcp/data", json!({"streamId": "s", "chunk": "???"})).await;
        client.notify(method, params).await;
        next_refusal(&mut client).await;
    }
    expect_usable(&mut client, "s", echo).await;
}

#[tokio::test]
async fn a_target_is_read_only_as_far_as_the_client_has_given_credit() {
    let server = TestServer::start().await;
    let mut client = server.client().await;
    let talking = tcp_server(|stream| crate::support::send_pattern(stream, 3, 100_000)).await;
    let params = json!({"streamId": "s", "host": "127.0.0.1", "port": talking, "credit": 1000});
    client.call("tcp/connect", params).await;
    let mut received = 0;
    let mut credit = 1000;
    let mut ended = false;
    while !ended {
        let data = client.take(|message| message["method"] == "tcp/data").await;
        received += unbase64(&data["params"]["chunk"]).len();
        ended = data["params"]["end"] == true;
        assert!(received <= credit, "{received} bytes with a credit of {credit}");
        if received == credit {
            credit += 50_000;
            client.notify("tcp/flow", json!({"streamId": "s", "credit": 50_000})).await;
        }
    }
    assert_eq!(received, 100_000);
}

#[tokio::test]
async fn the_number_of_streams_is_limited_for_a_connection_and_for_the_server() {
    let server = TestServer::with_args(&["--max-port-streams", "2", "--max-port-streams-total", "3"]).await;
    let echo = echo_server().await;
    let (mut first, mut second) = (server.client().await, server.client().await);
    connect(&mut first, "1", echo).await;
    connect(&mut first, "2", echo).await;
    let third = json!({"streamId": "3", "host": "127.0.0.1", "port": echo});
    let error = first.call_error("tcp/connect", third.clone()).await;
    assert_eq!(error["data"]["kind"], "tooManyStreams");
    assert!(error["message"].as_str().unwrap().contains("--max-port-streams)"), "{error}");
    connect(&mut second, "3", echo).await;
    let error = second.call_error("tcp/connect", json!({"streamId": "4", "host": "127.0.0.1", "port": echo})).await;
    assert!(error["message"].as_str().unwrap().contains("--max-port-streams-total)"), "{error}");
    first.notify("tcp/close", json!({"streamId": "1"})).await;
    assert_eq!(
        next_refusal(&mut first).await["params"],
        json!({"streamId": "1"}),
        "a close is answered with a close"
    );
    testkit::eventually_async("the place of a closed stream is free", async || {
        second
            .request("tcp/connect", json!({"streamId": "4", "host": "127.0.0.1", "port": echo}))
            .await
            .get("result")
            .cloned()
    })
    .await;
}

#[tokio::test]
async fn streams_beyond_the_limit_of_memory_get_a_small_window_and_work() {
    let server = TestServer::with_args(&["--max-port-buffers", "1MiB"]).await;
    let echo = echo_server().await;
    let mut client = server.client().await;
    for (stream, window) in [("1", 1 << 20), ("2", 64 << 10), ("3", 64 << 10)] {
        assert_eq!(connect(&mut client, stream, echo).await, json!({"credit": window}), "stream {stream}");
    }
    expect_usable(&mut client, "4", echo).await;
}

#[tokio::test]
async fn a_connect_that_hangs_is_cancelled_or_times_out() {
    let server = TestServer::with_args(&["--port-connect-timeout", "200ms"]).await;
    let mut client = server.client().await;
    let full = full_listener().await;
    let params = json!({"streamId": "s", "host": "127.0.0.1", "port": full.port});
    let error = client.call_error("tcp/connect", params).await;
    assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!("timedOut")), "{error}");
    let patient = TestServer::start().await;
    let mut client = patient.client().await;
    let id = client.send("tcp/connect", json!({"streamId": "s", "host": "127.0.0.1", "port": full.port})).await;
    client.notify("tcp/close", json!({"streamId": "s"})).await;
    assert_eq!(in_time(client.answer(id)).await["error"]["data"]["kind"], "cancelled");
    let id = client.send("tcp/connect", json!({"streamId": "t", "host": "127.0.0.1", "port": full.port})).await;
    client.notify("tcp/data", json!({"streamId": "t", "chunk": "???"})).await;
    assert_eq!(in_time(client.answer(id)).await["error"]["data"]["kind"], "streamViolation");
}

/// A listener whose queue of connections is full, so that the kernel answers no further one.
struct FullListener {
    port: u16,
    _listener: tokio::net::TcpListener,
    _waiting: Vec<tokio::task::JoinHandle<()>>,
}

async fn full_listener() -> FullListener {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let connected = std::sync::Arc::new(tokio::sync::Notify::new());
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let connected = std::sync::Arc::clone(&connected);
        waiting.push(tokio::spawn(async move {
            let stream = tokio::net::TcpStream::connect(address).await;
            connected.notify_one();
            std::future::pending::<()>().await;
            drop(stream);
        }));
    }
    in_time(connected.notified()).await;
    FullListener { port: address.port(), _listener: listener, _waiting: waiting }
}

#[tokio::test]
async fn a_server_that_forwards_no_ports_says_so_and_refuses_the_messages() {
    let server = TestServer::with_args(&["--no-port-forward"]).await;
    let mut client = server.client().await;
    let info = client.call("environment/info", json!({})).await;
    assert_eq!(info["capabilities"]["portForward"], false);
    let params = json!({"streamId": "s", "host": "127.0.0.1", "port": 1});
    assert_eq!(kind_of_error(&mut client, params).await, (-32600, "portForwardOff".to_owned()));
    send(&mut client, "s", b"x").await;
    let refusal = next_refusal(&mut client).await;
    assert_eq!(refusal["error"]["message"], "unexpected notification `tcp/data`");
}

#[tokio::test]
async fn a_connection_without_a_handshake_opens_no_stream() {
    let (server, echo) = (TestServer::start().await, echo_server().await);
    let mut client = server.connect_without_handshake().await;
    let error = client.call_error("tcp/connect", json!({"streamId": "s", "host": "127.0.0.1", "port": echo})).await;
    assert_eq!(error["message"], "client must call initialize before using tcp methods");
    send(&mut client, "s", b"x").await;
    assert_eq!(next_refusal(&mut client).await["id"], -1);
}
