//! The method `http/flow`, which pauses a body, and clients that do not read. In both cases the server soon stops
//! reading the body from the peer, which is the HTTP server to which the request goes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::{HttpPeer, eventually, json, resident_bytes};
use tokio::io::AsyncWriteExt as _;

use crate::support::{BodyReceiver, open_stream, server};

/// Size of the body that the peer sends.
const BODY_BYTES: usize = 200 << 20;

/// A peer that sends a large body and counts the bytes that it could write.
async fn counting_peer() -> (HttpPeer, Arc<AtomicUsize>) {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let peer = HttpPeer::with_handler(move |_, mut stream| {
        let counted = Arc::clone(&counted);
        async move {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
            let _ignored = stream.write_all(head.as_bytes()).await;
            let block = vec![b'x'; 64 << 10];
            for _ in 0..BODY_BYTES / block.len() {
                if stream.write_all(&block).await.is_err() {
                    return;
                }
                counted.fetch_add(block.len(), Ordering::SeqCst);
            }
        }
    })
    .await;
    (peer, sent)
}

/// Waits until the peer could send nothing for 300 ms, because the server does not read. Returns how many bytes the
/// peer has sent.
async fn wait_until_stalled(sent: &AtomicUsize) -> usize {
    let mut last = (0, Instant::now());
    eventually("the server reads no more bytes", || {
        let now = sent.load(Ordering::SeqCst);
        if now != last.0 {
            last = (now, Instant::now());
        }
        (last.0 > 0 && last.1.elapsed() > Duration::from_millis(300)).then_some(last.0)
    })
    .await
}

#[tokio::test]
async fn a_paused_body_is_not_read_from_the_peer() {
    let (server, (peer, sent)) = (server().await, counting_peer().await);
    let mut client = server.client().await;
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
    client.call("http/flow", json!({"requestId": "r", "paused": true})).await;
    let paused_at = wait_until_stalled(&sent).await;
    assert!(paused_at < 32 << 20, "the server has read {paused_at} bytes");
    // Other requests of the connection are answered.
    client.call("environment/status", json!({})).await;
    assert_eq!(wait_until_stalled(&sent).await, paused_at);
    client.call("http/flow", json!({"requestId": "r", "paused": false})).await;
    let (mut pieces, mut received) = (BodyReceiver::new("r"), 0);
    while let Ok(piece) = pieces.next(&mut client).await {
        received += piece.len();
    }
    assert_eq!(received, BODY_BYTES);
}

#[tokio::test]
async fn a_client_that_does_not_read_stalls_only_its_own_body() {
    let (server, (peer, sent)) = (server().await, counting_peer().await);
    let (mut unreading, mut other) = (server.client().await, server.client().await);
    let before = resident_bytes(server.pid());
    open_stream(&mut unreading, "r", peer.url("/"), json!({})).await;
    let sent = wait_until_stalled(&sent).await;
    assert!(sent < 48 << 20, "the peer has sent {sent} bytes");
    let grown = resident_bytes(server.pid()).saturating_sub(before);
    assert!(grown < 64 << 20, "the server uses {grown} more bytes for a client that does not read");
    other.call("environment/status", json!({})).await;
    let (mut pieces, mut received) = (BodyReceiver::new("r"), 0);
    while let Ok(piece) = pieces.next(&mut unreading).await {
        received += piece.len();
    }
    assert_eq!(received, BODY_BYTES);
}

#[tokio::test]
async fn a_pause_does_not_extend_the_timeout() {
    let (server, (peer, _)) = (server().await, counting_peer().await);
    let mut client = server.client().await;
    open_stream(&mut client, "r", peer.url("/"), json!({"timeoutMs": 1000})).await;
    client.call("http/flow", json!({"requestId": "r", "paused": true})).await;
    let (_, error) = BodyReceiver::new("r").rest(&mut client).await;
    let expected = "failed to read http/request response body: the time given for the request is over";
    assert_eq!(error.as_deref(), Some(expected));
}
