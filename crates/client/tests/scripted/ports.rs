//! Streams to TCP ports, also with servers that break the rules of such streams.

use client::{ExecServerError, PortStream};
use testkit::scripted::ScriptedReply;
use testkit::{ScriptedServer, Value, base64, eventually, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{connect, error_text};

/// A client with one stream, whose id is `tcp-1`. The client may send `credit` bytes on it.
async fn open_stream(server: &ScriptedServer, credit: u64) -> (client::ExecServerClient, PortStream) {
    server.on("tcp/connect", move |_| ScriptedReply::Result(json!({"credit": credit})));
    let client = connect(server).await;
    let stream = client.connect_port("db", 5432).await.unwrap();
    (client, stream)
}

fn push_data(server: &ScriptedServer, bytes: &[u8], end: bool) {
    server.push("tcp/data", json!({"streamId": "tcp-1", "chunk": base64(bytes), "end": end}));
}

/// The chunks that the client has sent, in base64.
fn sent_chunks(server: &ScriptedServer) -> Vec<Value> {
    let messages = server.received().into_iter().filter(|message| message.method == "tcp/data");
    messages.map(|message| message.params["chunk"].clone()).collect()
}

#[tokio::test]
async fn a_stream_reads_writes_and_ends_both_directions() {
    let server = ScriptedServer::new();
    let (client, mut stream) = open_stream(&server, 100).await;
    let asked = server.wait_for("tcp/connect", 1).await.params;
    assert_eq!((&asked["streamId"], &asked["host"], &asked["port"]), (&json!("tcp-1"), &json!("db"), &json!(5432)));
    stream.write_all(b"hello").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(server.wait_for("tcp/data", 2).await.params, json!({"streamId": "tcp-1", "chunk": "", "end": true}));
    assert_eq!(sent_chunks(&server), [json!(base64(b"hello")), json!("")]);
    push_data(&server, b"wor", false);
    push_data(&server, b"ld", true);
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "world");
    drop(stream);
    let _second = client.connect_port("db", 5432).await.unwrap();
    assert_eq!(server.count("tcp/close"), 0, "a stream that has ended in order is not closed");
}

#[tokio::test]
async fn a_write_waits_for_credit() {
    let server = ScriptedServer::new();
    let (_client, mut stream) = open_stream(&server, 3).await;
    let writing = tokio::spawn(async move {
        stream.write_all(b"abcdef").await.unwrap();
        stream
    });
    server.wait_for("tcp/data", 1).await;
    assert_eq!(sent_chunks(&server), [json!(base64(b"abc"))]);
    server.push("tcp/flow", json!({"streamId": "tcp-1", "credit": 2}));
    server.wait_for("tcp/data", 2).await;
    server.push("tcp/flow", json!({"streamId": "tcp-1", "credit": 2}));
    writing.await.unwrap();
    assert_eq!(sent_chunks(&server), [json!(base64(b"abc")), json!(base64(b"de")), json!(base64(b"f"))]);
}

#[tokio::test]
async fn bytes_that_came_before_a_close_are_read_before_its_reason() {
    let server = ScriptedServer::new();
    let (_client, stream) = open_stream(&server, 100).await;
    let (mut reader, mut writer) = stream.into_split();
    push_data(&server, b"part", false);
    server.push("tcp/close", json!({"streamId": "tcp-1", "kind": "connectionReset", "message": "the port is gone"}));
    assert_eq!(reader.recv().await.unwrap().unwrap(), "part");
    assert_eq!(error_text(reader.recv().await.unwrap()), "the port is gone");
    assert_eq!(writer.write_all(b"x").await.unwrap_err().to_string(), "the port is gone");
    drop((reader, writer));
    assert_eq!(server.wait_for("tcp/close", 1).await.params, json!({"streamId": "tcp-1"}), "a close is confirmed");
}

#[tokio::test]
async fn a_stream_or_a_connect_that_is_dropped_is_closed_and_late_bytes_are_ignored() {
    let server = ScriptedServer::new();
    let (client, stream) = open_stream(&server, 100).await;
    drop(stream);
    assert_eq!(server.wait_for("tcp/close", 1).await.params["streamId"], "tcp-1");
    push_data(&server, b"late", false);
    server.on("tcp/connect", |_| ScriptedReply::Silence);
    let second = client.clone();
    let connecting = tokio::spawn(async move { second.connect_port("db", 5432).await.map(drop) });
    server.wait_for("tcp/connect", 2).await;
    connecting.abort();
    assert_eq!(server.wait_for("tcp/close", 2).await.params["streamId"], "tcp-2");
    server.on("tcp/connect", |_| ScriptedReply::Result(json!({"credit": 1})));
    client.connect_port("db", 5432).await.unwrap();
    assert_eq!(server.connections_opened(), 1, "nothing was wrong with the connection");
}

#[tokio::test]
async fn a_lost_connection_ends_its_streams_and_new_ones_work_over_the_next() {
    let server = ScriptedServer::new();
    let (client, mut stream) = open_stream(&server, 100).await;
    server.cut();
    let error = stream.read_u8().await.unwrap_err().to_string();
    assert!(error.starts_with("exec-server transport disconnected"), "{error}");
    let mut second = client.connect_port("db", 5432).await.unwrap();
    second.write_all(b"x").await.unwrap();
    assert_eq!(server.connections_opened(), 2);
}

#[tokio::test]
async fn a_server_that_sends_more_than_its_credit_or_after_the_end_loses_the_connection() {
    for breaks in [
        |server: &ScriptedServer| (0..3).for_each(|_| push_data(server, &vec![0; 512 << 10], false)),
        |server: &ScriptedServer| [true, false].into_iter().for_each(|end| push_data(server, b"x", end)),
        |server: &ScriptedServer| server.push("tcp/data", json!({"streamId": "tcp-1", "chunk": "???"})),
    ] {
        let server = ScriptedServer::new();
        let (_client, _stream) = open_stream(&server, 100).await;
        breaks(&server);
        eventually("the client has reconnected", || (server.connections_opened() == 2).then_some(())).await;
    }
}

#[tokio::test]
async fn a_refusal_of_the_server_is_the_error_of_the_call() {
    let server = ScriptedServer::new();
    let client = connect(&server).await;
    server.on("tcp/connect", |_| {
        ScriptedReply::Error(-32603, "cannot connect to db:5432: nobody listens there".to_owned())
    });
    let Err(ExecServerError::Server { code, message, .. }) = client.connect_port("db", 5432).await.map(drop) else {
        panic!("the call should have failed")
    };
    assert_eq!((code, message.as_str()), (-32603, "cannot connect to db:5432: nobody listens there"));
    assert_eq!(server.count("tcp/close"), 0, "there is no stream to close");
}
