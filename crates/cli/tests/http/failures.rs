//! HTTP servers (peers) that are slow, cannot be reached, close the connection too early, send too many headers or do
//! not speak HTTP.

use testkit::{HttpPeer, http_ok, json, resident_bytes};
use tokio::io::AsyncWriteExt as _;

use crate::support::{BodyReceiver, fetch, fetch_error, open_stream, server};

/// A peer that answers with `text` and sends nothing more, and keeps the connection open.
async fn stalled_peer(text: &'static str) -> HttpPeer {
    HttpPeer::with_handler(move |_, mut stream| async move {
        let _ignored = stream.write_all(text.as_bytes()).await;
        std::future::pending::<()>().await;
    })
    .await
}

/// The text of the error after a timeout.
const TIMED_OUT: &str = "the time given for the request is over";

#[tokio::test]
async fn a_request_waits_until_its_timeout_and_without_a_timeout_until_the_answer() {
    let (server, peer) = (server().await, stalled_peer("").await);
    let mut client = server.client().await;
    let error =
        client.call_error("http/request", crate::support::request(peer.url("/"), json!({"timeoutMs": 10}))).await;
    let message = format!("http/request failed: {TIMED_OUT}");
    assert_eq!(error, json!({"code": -32603, "message": message, "data": {"kind": "timeout"}}));
    let slow = HttpPeer::with_handler(|_, mut stream| async move {
        // sleep: the answer comes after the timeout above, to show that without a timeout the request waits for it
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let _ignored = stream.write_all(http_ok("late").as_bytes()).await;
    })
    .await;
    for changes in [json!({}), json!({"timeoutMs": null})] {
        assert_eq!(fetch(&mut client, slow.url("/"), changes).await.2, "late");
    }
}

#[tokio::test]
async fn the_timeout_includes_the_body() {
    let (server, peer) = (server().await, stalled_peer("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await);
    let mut client = server.client().await;
    let text = format!("failed to read http/request response body: {TIMED_OUT}");
    let (code, message) = fetch_error(&mut client, peer.url("/"), json!({"timeoutMs": 500})).await;
    assert_eq!((code, &message), (-32603, &text));
    open_stream(&mut client, "r", peer.url("/"), json!({"timeoutMs": 500})).await;
    assert_eq!(BodyReceiver::new("r").rest(&mut client).await, (b"half".to_vec(), Some(text)));
}

#[tokio::test]
async fn a_stalled_peer_delays_no_other_request() {
    let (server, peer) = (server().await, stalled_peer("HTTP/1.1 200 OK\r\nX-Half").await);
    let quick = HttpPeer::closing(|_| http_ok("quick")).await;
    let mut client = server.client().await;
    client.send("http/request", crate::support::request(peer.url("/"), json!({}))).await;
    assert_eq!(fetch(&mut client, quick.url("/"), json!({})).await.2, "quick");
}

#[tokio::test]
async fn invalid_responses_are_errors_that_say_why() {
    let server = server().await;
    let mut client = server.client().await;
    let flood: String = (0..100_000).map(|n| format!("X-{n}: {n}\r\n")).collect();
    for (answer, start) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_owned(),
            "failed to read http/request response body: ",
        ),
        (
            format!("HTTP/1.1 200 OK\r\n{flood}\r\n"),
            "http/request failed: the headers of the answer are over the bound of ",
        ),
        ("nothing like HTTP\r\n\r\n".to_owned(), "http/request failed: "),
        (String::new(), "http/request failed: "),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n".to_owned(),
            "failed to read http/request response body: ",
        ),
    ] {
        let peer = HttpPeer::closing(move |_| answer.clone()).await;
        let (code, message) = fetch_error(&mut client, peer.url("/"), json!({})).await;
        assert_eq!(code, -32603, "{message}");
        assert!(message.starts_with(start), "{message}");
    }
}

#[tokio::test]
async fn a_refused_connection_and_an_unknown_host_are_errors() {
    let server = server().await;
    let mut client = server.client().await;
    for (url, kind) in [("http://127.0.0.1:1/", "connect"), ("http://no.such.host.invalid/", "dns")] {
        let error = client.call_error("http/request", crate::support::request(url, json!({}))).await;
        assert_eq!((&error["code"], &error["data"]["kind"]), (&json!(-32603), &json!(kind)), "{error}");
        assert!(error["message"].as_str().unwrap().starts_with("http/request failed: "), "{error}");
    }
}

#[tokio::test]
async fn endless_response_headers_take_little_memory() {
    let (server, peer) = (
        server().await,
        HttpPeer::with_handler(|_, mut stream| async move {
            let _ignored = stream.write_all(b"HTTP/1.1 200 OK\r\nX-Endless: ").await;
            let block = vec![b'x'; 1 << 20];
            for _ in 0..256 {
                if stream.write_all(&block).await.is_err() {
                    return;
                }
            }
        })
        .await,
    );
    let before = resident_bytes(server.pid());
    let (code, _) = fetch_error(&mut server.client().await, peer.url("/"), json!({})).await;
    assert_eq!(code, -32603);
    assert!(resident_bytes(server.pid()).saturating_sub(before) < 32 << 20);
}
