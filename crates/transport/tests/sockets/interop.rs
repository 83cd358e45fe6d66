//! Our WebSocket implementation with `tokio-websockets` as the peer, in both roles, and with itself. Also failed
//! upgrades and URLs and headers that a client refuses to use.

use crate::support::{TestSurface, accept_one, accept_one_with_limits, address, echo, listen, send, send_close};
use futures_util::{SinkExt, StreamExt};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_websockets::{ClientBuilder, CloseCode, Message, ServerBuilder};
use transport::{
    CloseReason, ConnectError, ConnectOptions, Framing, MessageLimits, ReadError, ReadEvent, Violation, connect,
};

fn closed(code: u16, reason: &str) -> ReadEvent {
    ReadEvent::Closed(Some(CloseReason { code, reason: reason.into() }))
}

#[tokio::test]
async fn a_client_of_tokio_websockets_talks_to_our_server() {
    let listener = listen(None).await;
    let url = listener.url();
    let accepted = accept_one(listener, TestSurface::default());
    let (mut client, _) = ClientBuilder::new().uri(&url).unwrap().connect().await.unwrap();
    let server = tokio::spawn(echo(accepted.await.unwrap().unwrap().unwrap().stream));

    for payload in ["", "{}", &"x".repeat(125), &"x".repeat(126), &"x".repeat(70_000), &"x".repeat(1 << 20)] {
        client.send(Message::text(payload.to_owned())).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap().as_text(), Some(payload));
    }
    // Our server sends every message as text.
    client.send(Message::binary(&b"binary"[..])).await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap().as_text(), Some("binary"));
    client.send(Message::ping(&b"are you there"[..])).await.unwrap();
    let pong = client.next().await.unwrap().unwrap();
    assert!(pong.is_pong() && pong.as_payload()[..] == b"are you there"[..]);
    client.send(Message::close(Some(CloseCode::GOING_AWAY), "done")).await.unwrap();
    assert_eq!(server.await.unwrap(), closed(1001, "done"));
}

#[tokio::test]
async fn our_client_talks_to_a_server_of_tokio_websockets() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (request, mut server) = ServerBuilder::new().accept(stream).await.unwrap();
        server.send(Message::ping(&b"you?"[..])).await.unwrap();
        let pong = server.next().await.unwrap().unwrap();
        assert!(pong.is_pong());
        while let Some(Ok(message)) = server.next().await {
            if message.is_close() {
                assert_eq!(message.as_close(), Some((CloseCode::NORMAL_CLOSURE, "bye")));
            } else {
                assert!(message.is_text());
                server.send(message).await.unwrap();
            }
        }
        request
    });
    let options = ConnectOptions {
        bearer_token: Some("secret".into()),
        headers: vec![("X-Extra".into(), "1".into())],
        ..ConnectOptions::default()
    };
    let mut client = connect(&url, options).await.unwrap();
    assert_eq!(client.reader.next().await.unwrap(), ReadEvent::Ping(b"you?"[..].into()));
    let mut pong = Vec::new();
    assert!(client.framing.pong(&mut pong, b"you?"));
    client.writer.write_all(&pong).await.unwrap();
    for payload in ["", "{}", &"x".repeat(126), &"x".repeat(70_000), &"x".repeat(1 << 20)] {
        send(&mut client, payload.as_bytes()).await;
        assert_eq!(client.reader.next().await.unwrap(), ReadEvent::Message(payload.to_owned().into()));
    }
    send_close(&mut client, 1000, "bye").await;
    assert_eq!(client.reader.next().await.unwrap(), closed(1000, ""));
    let request = server.await.unwrap();
    assert_eq!(
        (&request.headers()["authorization"], &request.headers()["x-extra"]),
        (&"Bearer secret".parse().unwrap(), &"1".parse().unwrap())
    );
}

#[tokio::test]
async fn an_overlong_message_leaves_the_connection_usable() {
    let listener = listen(None).await;
    let url = listener.url();
    let accepted = accept_one_with_limits(listener, TestSurface::default(), MessageLimits { message_bytes: 1000 });
    let mut client = connect(&url, ConnectOptions::default()).await.unwrap();
    let server = tokio::spawn(echo(accepted.await.unwrap().unwrap().unwrap().stream));
    // `echo` sends a message over the limit back as its first 1024 bytes, which is all that a reader keeps of it.
    for (sent, answered) in [(1000, 1000), (1001, 1001), (5_000_000, 1024), (3, 3)] {
        send(&mut client, &vec![b'x'; sent]).await;
        assert_eq!(client.reader.next().await.unwrap(), ReadEvent::Message(vec![b'x'; answered].into()));
    }
    send_close(&mut client, 1000, "").await;
    assert_eq!(server.await.unwrap(), closed(1000, ""));
}

#[tokio::test]
async fn an_upgrade_and_a_message_sent_byte_by_byte_arrive() {
    let listener = listen(None).await;
    let address = address(&listener);
    let accepted = accept_one(listener, TestSurface::default());
    let mut bytes = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".to_vec();
    Framing::WebSocketClient.frame(&mut bytes, 300, |out| out.extend_from_slice(&[b'x'; 300]));
    let mut client = TcpStream::connect(address).await.unwrap();
    client.set_nodelay(true).unwrap();
    for byte in bytes {
        client.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut server = accepted.await.unwrap().unwrap().unwrap().stream;
    assert_eq!(server.reader.next().await.unwrap(), ReadEvent::Message(vec![b'x'; 300].into()));
    client.shutdown().await.unwrap();
    assert_eq!(server.reader.next().await.unwrap(), ReadEvent::Closed(None));
}

#[tokio::test]
async fn messages_sent_with_the_upgrade_request_are_not_lost() {
    let listener = listen(None).await;
    let address = address(&listener);
    let accepted = accept_one(listener, TestSurface::default());
    let mut bytes = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".to_vec();
    Framing::WebSocketClient.frame(&mut bytes, 5, |out| out.extend_from_slice(b"early"));
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(&bytes).await.unwrap();
    let mut server = accepted.await.unwrap().unwrap().unwrap().stream;
    assert_eq!(server.reader.next().await.unwrap(), ReadEvent::Message(b"early"[..].into()));
}

#[tokio::test]
async fn an_unmasked_frame_is_a_violation() {
    let (mut server, mut client) = transport::in_memory(MessageLimits::default());
    let mut out = Vec::new();
    Framing::WebSocketServer.frame(&mut out, 2, |out| out.extend_from_slice(b"{}"));
    client.writer.write_all(&out).await.unwrap();
    let error = server.reader.next().await.unwrap_err();
    assert!(matches!(error, ReadError::Violation(Violation::Unmasked)));
    assert_eq!(error.to_string(), "the peer broke the WebSocket protocol: a frame from a client is not masked");
}

#[tokio::test]
async fn an_in_memory_pair_exchanges_messages() {
    let (server, mut client) = transport::in_memory(MessageLimits::default());
    let server = tokio::spawn(echo(server));
    let large = vec![b'x'; 1 << 20];
    let mut out = Vec::new();
    client.framing.frame(&mut out, large.len(), |out| out.extend_from_slice(&large));
    let (written, answer) = tokio::join!(client.writer.write_all(&out), client.reader.next());
    written.unwrap();
    assert_eq!(answer.unwrap(), ReadEvent::Message(large.into()));
    send_close(&mut client, 1000, "").await;
    assert_eq!(server.await.unwrap(), closed(1000, ""));
}

#[tokio::test]
async fn a_refused_upgrade_is_an_error_with_the_http_status() {
    let listener = listen(None).await;
    let url = listener.url();
    let _accepted = accept_one(listener, TestSurface { token: Some("secret") });
    let refused = connect(&url, ConnectOptions::default()).await.unwrap_err();
    assert!(matches!(refused, ConnectError::Refused { status: 401, .. }), "{refused}");
}

#[tokio::test]
async fn an_answer_with_a_wrong_accept_key_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream
            .write_all(b"HTTP/1.1 101 Sure\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
            .await
            .unwrap();
        stream
    });
    let refused = connect(&url, ConnectOptions::default()).await.unwrap_err();
    assert!(matches!(refused, ConnectError::BadResponse(_)), "{refused}");
    server.await.unwrap();
}

#[tokio::test]
async fn invalid_headers_and_urls_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let options = ConnectOptions { bearer_token: Some("a\r\nX: b".into()), ..ConnectOptions::default() };
    assert!(
        matches!(connect(&url, options).await, Err(ConnectError::InvalidHeader(name)) if name == "Authorization")
    );
    assert!(matches!(
        connect("http://127.0.0.1:1", ConnectOptions::default()).await,
        Err(ConnectError::UnsupportedUrl(_))
    ));
}
