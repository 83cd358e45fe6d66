//! Limits for the number and size of the headers and trailers of a response.

use crate::support::{failure, fetcher, get, load, reply};
use fetch::FailureKind;
use testkit::{HttpPeer, http_ok, read_http_request};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

/// The error for headers over one of the limits.
const OVER_LIMIT: &str =
    "http/request failed: the headers of the answer are over the bound of 262144 bytes or 1000 headers";

#[tokio::test]
async fn headers_without_end_and_a_header_without_end_are_cut_off_early() {
    for part in ["X-Flood: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n", "x"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_http_request(&mut stream).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nX-First: ").await.unwrap();
            let flood = part.repeat(1000);
            let mut written = 0_usize;
            while written < 1 << 30 && stream.write_all(flood.as_bytes()).await.is_ok() {
                written += flood.len();
            }
            written
        });
        assert_eq!(failure(fetcher(&[]).send(get(url)).await), (FailureKind::Protocol, OVER_LIMIT.to_owned()));
        let written = server.await.unwrap();
        assert!(written < 64 << 20, "{written}");
    }
}

#[tokio::test]
async fn informational_answers_without_end_are_cut_off_early() {
    let (note_sent, mut sent) = tokio::sync::mpsc::unbounded_channel();
    let server = HttpPeer::with_handler(move |_, mut stream| {
        let note_sent = note_sent.clone();
        async move {
            let flood = "HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
            let mut written = 0;
            while written < 256 << 20 && stream.write_all(flood.as_bytes()).await.is_ok() {
                written += flood.len();
            }
            note_sent.send(written).unwrap();
        }
    })
    .await;
    let (kind, text) = failure(fetcher(&[]).send(get(server.url("/"))).await);
    let expected = "http/request failed: the answer is not valid HTTP: 278528 bytes came, and the headers of the answer are still not complete";
    assert_eq!((kind, text.as_str()), (FailureKind::Protocol, expected));
    let sent = sent.recv().await.unwrap();
    // Most of these bytes were in the buffers of the kernel.
    assert!(sent < 64 << 20, "{sent}");
}

#[tokio::test]
async fn the_bytes_before_an_answer_are_counted_for_each_request_of_a_connection() {
    let early = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n".repeat(3000);
    let server = HttpPeer::answering(move |_| reply(early.clone() + &http_ok(&"x".repeat(500_000)))).await;
    let fetcher = fetcher(&[]);
    for _ in 0..4 {
        let (status, body) = load(&fetcher, get(server.url("/"))).await.unwrap();
        assert_eq!((status, body.len()), (200, 500_000));
    }
    assert_eq!(server.connections_accepted(), 1);
}

#[tokio::test]
async fn a_thousand_headers_are_delivered_and_one_more_is_an_error() {
    // `Content-Length` is one of the headers.
    let response_with_headers = |count: usize| {
        let headers: String = (1..count).map(|number| format!("x-{number}: 1\r\n")).collect();
        format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{headers}\r\n")
    };
    let server = HttpPeer::answering(move |request| {
        reply(response_with_headers(if request.contains("/more") { 1001 } else { 1000 }))
    })
    .await;
    let fetcher = fetcher(&[]);
    assert_eq!(fetcher.send(get(server.url("/"))).await.unwrap().headers.len(), 1000);
    assert_eq!(failure(fetcher.send(get(server.url("/more"))).await), (FailureKind::Protocol, OVER_LIMIT.to_owned()));
}

#[tokio::test]
async fn a_large_header_below_the_limit_is_delivered() {
    let server =
        HttpPeer::answering(|_| reply(format!("HTTP/1.1 204 No\r\nx: {}\r\n\r\n", "y".repeat(200_000)))).await;
    let response = fetcher(&[]).send(get(server.url("/"))).await.unwrap();
    assert_eq!(response.headers[0].1.len(), 200_000);
}

#[tokio::test]
async fn trailers_over_the_limit_are_an_error() {
    let flood = "x-flood: aaaaaaaaaaaaaaaaaaaa\r\n".repeat(50_000);
    let answer = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n{flood}");
    let server = HttpPeer::answering(move |_| reply(answer.clone())).await;
    assert_eq!(failure(load(&fetcher(&[]), get(server.url("/"))).await).0, FailureKind::Protocol);
}
