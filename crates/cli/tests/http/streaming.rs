//! `http/request` with `streamResponse: true`: the body comes in pieces, as notifications after the answer.

use std::sync::Arc;
use std::time::Duration;

use testkit::{HttpPeer, TestServer, http_ok, json, peak_resident_bytes, resident_bytes};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::{Notify, Semaphore};

use crate::support::{BodyReceiver, fetch_error, open_stream, request, server};

/// Writes a part of a response. An error is ignored, because the connection may be closed.
async fn send(stream: &mut TcpStream, text: &str) {
    let _ignored = stream.write_all(text.as_bytes()).await;
}

const CHUNKED: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// A peer that sends one piece at once, and another one when the test adds a permit to the semaphore.
async fn slow_peer() -> (HttpPeer, Arc<Semaphore>) {
    let second_piece = Arc::new(Semaphore::new(0));
    let permits = Arc::clone(&second_piece);
    let peer = HttpPeer::with_handler(move |_, mut stream| {
        let permits = Arc::clone(&permits);
        async move {
            send(&mut stream, CHUNKED).await;
            send(&mut stream, "3\r\none\r\n").await;
            permits.acquire().await.unwrap().forget();
            send(&mut stream, "3\r\ntwo\r\n0\r\n\r\n").await;
        }
    })
    .await;
    (peer, second_piece)
}

#[tokio::test]
async fn the_answer_comes_first_then_the_pieces_then_the_end() {
    let (server, (peer, second_piece)) = (server().await, slow_peer().await);
    let mut client = server.client().await;
    let id = client.send("http/request", request(peer.url("/"), json!({"streamResponse": true}))).await;
    let answer = client.next().await;
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!((&answer["result"]["status"], &answer["result"]["bodyBase64"]), (&json!(200), &json!("")));
    let delta = |seq: u64, bytes: &str, done: bool| {
        let params = json!({"requestId": "r", "seq": seq, "deltaBase64": bytes, "done": done, "error": null});
        json!({"method": "http/request/bodyDelta", "params": params})
    };
    assert_eq!(client.next().await, delta(1, "b25l", false));
    second_piece.add_permits(1);
    assert_eq!(client.next().await, delta(2, "dHdv", false));
    assert_eq!(client.next().await, delta(3, "", true));
}

#[tokio::test]
async fn a_request_id_is_in_use_until_its_stream_has_ended() {
    let (server, (peer, second_piece)) = (server().await, slow_peer().await);
    let mut client = server.client().await;
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
    let (code, message) = fetch_error(&mut client, peer.url("/"), json!({"streamResponse": true})).await;
    let expected = "http/request streamResponse requestId `r` is already active";
    assert_eq!((code, message.as_str()), (-32602, expected));
    // Meanwhile other requests are answered, and other connections have ids of their own.
    client.call("environment/status", json!({})).await;
    open_stream(&mut server.client().await, "r", peer.url("/"), json!({})).await;
    second_piece.add_permits(2);
    assert_eq!(BodyReceiver::new("r").rest(&mut client).await, (b"onetwo".to_vec(), None));
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
}

#[tokio::test]
async fn a_request_id_is_free_after_a_request_that_failed() {
    let (server, (peer, _second_piece)) = (server().await, slow_peer().await);
    let mut client = server.client().await;
    let (code, _) = fetch_error(&mut client, "http://127.0.0.1:1/", json!({"streamResponse": true})).await;
    assert_eq!(code, -32603);
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
}

#[tokio::test]
async fn large_pieces_are_split_and_together_are_the_body() {
    // `BodyReceiver` checks that no piece has more than 1 MiB.
    let body: Vec<u8> = (0..5_000_000_u32).map(|n| b'a' + (n % 23) as u8).collect();
    let text = String::from_utf8(body.clone()).unwrap();
    let (server, peer) = (server().await, HttpPeer::closing(move |_| http_ok(&text)).await);
    let mut client = server.client().await;
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
    let (received, error) = BodyReceiver::new("r").rest(&mut client).await;
    assert!(received == body && error.is_none(), "{} bytes, {error:?}", received.len());
}

#[tokio::test]
async fn a_body_that_breaks_off_or_is_too_large_ends_with_an_error() {
    let (server, peer) =
        (server().await, HttpPeer::closing(|_| "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".into()).await);
    let mut client = server.client().await;
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
    let (body, error) = BodyReceiver::new("r").rest(&mut client).await;
    assert_eq!(body, b"short");
    assert!(error.unwrap().starts_with("failed to read http/request response body: "));
    open_stream(&mut client, "r", peer.url("/"), json!({"maxBodyBytes": 50})).await;
    let (body, error) = BodyReceiver::new("r").rest(&mut client).await;
    let expected = "failed to read http/request response body: it is larger than 50 bytes";
    assert_eq!((body.len(), error.as_deref()), (0, Some(expected)));
}

#[tokio::test]
async fn streams_end_when_their_client_disconnects() {
    let ended = Arc::new(Notify::new());
    let notifier = Arc::clone(&ended);
    let peer = HttpPeer::with_handler(move |_, mut stream| {
        let notifier = Arc::clone(&notifier);
        async move {
            send(&mut stream, CHUNKED).await;
            send(&mut stream, "3\r\none\r\n").await;
            // The read returns when the exec-server closes the connection.
            let _ignored = tokio::io::AsyncReadExt::read(&mut stream, &mut [0]).await;
            notifier.notify_one();
        }
    })
    .await;
    let server = server().await;
    let mut client = server.client().await;
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
    drop(client);
    ended.notified().await;
}

/// A peer that sends a body of this many MiB.
async fn peer_with_large_body(mebibytes: usize) -> HttpPeer {
    HttpPeer::with_handler(move |_, mut stream| async move {
        send(&mut stream, &format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", mebibytes << 20)).await;
        let block = vec![b'x'; 1 << 20];
        for _ in 0..mebibytes {
            if stream.write_all(&block).await.is_err() {
                return;
            }
        }
    })
    .await
}

/// Streams a body of this many MiB and checks that the memory of the server grows by less than 64 MiB.
async fn stream_and_measure(server: &TestServer, mebibytes: usize) {
    let peer = peer_with_large_body(mebibytes).await;
    let mut client = server.client().await;
    let before = resident_bytes(server.pid());
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
    let (mut pieces, mut received, mut peak) = (BodyReceiver::new("r"), 0_usize, 0);
    loop {
        match pieces.next(&mut client).await {
            Ok(piece) => received += piece.len(),
            Err(error) => break assert_eq!(error, None),
        }
        peak = peak.max(resident_bytes(server.pid()));
    }
    assert_eq!(received, mebibytes << 20);
    let grown = peak.saturating_sub(before);
    assert!(grown < 64 << 20, "the server uses {grown} more bytes for a body of {mebibytes} MiB");
}

#[tokio::test]
async fn a_gigabyte_passes_in_little_memory() {
    let server = server().await;
    stream_and_measure(&server, 1024).await;
}

/// An empty WebSocket close frame, masked with a key of zeros.
const CLOSE_FRAME: [u8; 6] = [0x88, 0x80, 0, 0, 0, 0];

#[tokio::test]
async fn after_a_client_has_sent_a_close_frame_its_body_is_not_gathered_in_memory() {
    let (stalled, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let notifiers = (Arc::clone(&stalled), Arc::clone(&ended));
    let peer = HttpPeer::with_handler(move |_, mut stream| {
        let (stalled, ended) = notifiers.clone();
        async move {
            send(&mut stream, "HTTP/1.1 200 OK\r\n\r\n").await;
            let block = vec![b'x'; 1 << 20];
            loop {
                match tokio::time::timeout(Duration::from_millis(300), stream.write_all(&block)).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => break ended.notify_one(),
                    Err(_) => stalled.notify_one(),
                }
            }
        }
    })
    .await;
    let server = server().await;
    let mut client = server.client().await;
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
    stalled.notified().await;
    let before = peak_resident_bytes(server.pid());
    client.send_bytes(&CLOSE_FRAME).await.unwrap();
    ended.notified().await;
    let grown = peak_resident_bytes(server.pid()) - before;
    assert!(grown < 32 << 20, "the server uses {grown} more bytes after the close frame");
}
