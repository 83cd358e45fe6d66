//! The method `http/cancel`, with which a client cancels an `http/request`. The peer is the HTTP server to which the
//! request goes.

use std::sync::Arc;

use testkit::{HttpPeer, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Notify;

use crate::support::{BodyReceiver, open_stream, request, server};

/// A peer that answers with `text`, a part of a response, and sends nothing more. The [`Notify`] is notified when the
/// exec-server has closed the connection.
async fn peer_silent_after(text: &'static str) -> (HttpPeer, Arc<Notify>) {
    let closed = Arc::new(Notify::new());
    let notifier = Arc::clone(&closed);
    let peer = HttpPeer::with_handler(move |_, mut stream| {
        let notifier = Arc::clone(&notifier);
        async move {
            let _ignored = stream.write_all(text.as_bytes()).await;
            let _ignored = stream.read(&mut [0]).await;
            notifier.notify_one();
        }
    })
    .await;
    (peer, closed)
}

#[tokio::test]
async fn a_request_that_waits_for_its_answer_can_be_cancelled() {
    for is_streamed in [false, true] {
        let (server, (peer, closed)) = (server().await, peer_silent_after("").await);
        let mut client = server.client().await;
        let params = request(peer.url("/"), json!({"streamResponse": is_streamed}));
        let id = client.send("http/request", params).await;
        testkit::eventually("the request has arrived", || (peer.requests().len() == 1).then_some(())).await;
        assert_eq!(client.call("http/cancel", json!({"requestId": "r"})).await, json!({}));
        let error = client.answer(id).await["error"].clone();
        let expected =
            json!({"code": -32603, "message": "http/request failed: cancelled", "data": {"kind": "cancelled"}});
        assert_eq!(error, expected);
        closed.notified().await;
    }
}

#[tokio::test]
async fn a_streamed_body_can_be_cancelled_and_its_id_can_be_used_again() {
    let (server, (peer, closed)) =
        (server().await, peer_silent_after("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome").await);
    let mut client = server.client().await;
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
    let mut pieces = BodyReceiver::new("r");
    assert_eq!(pieces.next(&mut client).await, Ok(b"some".to_vec()));
    client.call("http/cancel", json!({"requestId": "r"})).await;
    assert_eq!(pieces.next(&mut client).await, Err(Some("cancelled".to_owned())));
    closed.notified().await;
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
}

#[tokio::test]
async fn a_buffered_body_can_be_cancelled() {
    let (server, (peer, closed)) =
        (server().await, peer_silent_after("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome").await);
    let mut client = server.client().await;
    let id = client.send("http/request", request(peer.url("/"), json!({}))).await;
    testkit::eventually("the request has arrived", || (peer.requests().len() == 1).then_some(())).await;
    client.call("http/cancel", json!({"requestId": "r"})).await;
    assert_eq!(client.answer(id).await["error"]["data"]["kind"], "cancelled");
    closed.notified().await;
}

#[tokio::test]
async fn a_paused_body_can_be_cancelled_and_later_calls_of_cancel_and_flow_succeed() {
    let (server, (peer, closed)) =
        (server().await, peer_silent_after("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome").await);
    let mut client = server.client().await;
    open_stream(&mut client, "r", peer.url("/"), json!({})).await;
    client.call("http/flow", json!({"requestId": "r", "paused": true})).await;
    client.call("http/cancel", json!({"requestId": "r"})).await;
    let (_, error) = BodyReceiver::new("r").rest(&mut client).await;
    assert_eq!(error.as_deref(), Some("cancelled"));
    closed.notified().await;
    for method in ["http/cancel", "http/flow"] {
        let params = json!({"requestId": "r", "paused": false});
        assert_eq!(client.call(method, params).await, json!({}));
    }
}
