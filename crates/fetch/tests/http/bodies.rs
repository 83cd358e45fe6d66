//! Bodies of responses: their pieces, their limits and deadlines, and that a server can send no faster than the
//! caller reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{failure, fetcher, get, load, ok, reply, with_timeout_ms};
use fetch::{FailureKind, FetchRequest};
use testkit::{HttpPeer, PeerReply, read_http_request};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

#[tokio::test]
async fn large_bodies_come_in_pieces_of_at_most_a_mebibyte() {
    let size = 9_000_001;
    let server = HttpPeer::answering(move |_| ok(&"x".repeat(size))).await;
    let mut body = fetcher(&[]).send(get(server.url("/"))).await.unwrap().body;
    let mut received = 0;
    while let Some(piece) = body.next().await.unwrap() {
        assert!(!piece.is_empty() && piece.len() <= 1 << 20, "{}", piece.len());
        received += piece.len();
    }
    assert_eq!(received, size);
    assert_eq!(body.next().await.unwrap(), None);
}

#[tokio::test]
async fn chunks_are_joined_and_trailers_are_dropped_and_the_connection_is_used_again() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n";
    let server = HttpPeer::answering(move |_| reply(chunked)).await;
    let fetcher = fetcher(&[]);
    for _ in 0..2 {
        assert_eq!(load(&fetcher, get(server.url("/"))).await.unwrap(), (200, "abcde".into()));
    }
    assert_eq!(server.connections_accepted(), 1);
}

#[tokio::test]
async fn a_body_without_a_length_ends_with_the_connection() {
    let server = HttpPeer::answering(|_| PeerReply::Close(b"HTTP/1.1 200 OK\r\n\r\nuntil here".to_vec())).await;
    assert_eq!(load(&fetcher(&[]), get(server.url("/"))).await.unwrap(), (200, "until here".into()));
}

#[tokio::test]
async fn a_piece_is_returned_before_the_rest_of_the_body_arrives() {
    let first = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n";
    let server = HttpPeer::answering(move |_| reply(first)).await;
    let mut body = fetcher(&[]).send(get(server.url("/"))).await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "event");
}

/// Limit for the bytes that the server can send while the caller reads nothing. Far less than the server offers, and
/// far more than the buffers of two sockets and one connection hold.
const MAX_BUFFERED_BYTES: usize = 64 << 20;

#[tokio::test]
async fn a_server_must_wait_while_nobody_reads_the_body_and_the_bytes_it_has_sent_can_be_read_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicUsize::new(0));
    let sent_by_server = sent.clone();
    let (note_full_buffers, mut full_buffers) = tokio::sync::mpsc::channel(1);
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_http_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n").await.unwrap();
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..1 << 14 {
            // A write that waits this long has found every buffer on the way full.
            match tokio::time::timeout(Duration::from_millis(300), stream.write_all(&piece)).await {
                Ok(outcome) => outcome.unwrap(),
                Err(_) => {
                    note_full_buffers.send(()).await.unwrap();
                    return stream;
                }
            }
            sent_by_server.fetch_add(piece.len(), Ordering::SeqCst);
        }
        panic!("the server could send the whole body although the caller read nothing");
    });
    let mut body = fetcher(&[]).send(get(url)).await.unwrap().body;
    full_buffers.recv().await.unwrap();
    let buffered = sent.load(Ordering::SeqCst);
    assert!(buffered < MAX_BUFFERED_BYTES, "{buffered}");
    // The bytes that the server has sent can still be read after the server has closed the connection. Then the
    // missing rest is an error.
    let stream = server.await.unwrap();
    let mut received = body.next().await.unwrap().unwrap().len();
    drop(stream);
    let (kind, _) = failure(loop {
        match body.next().await {
            Ok(piece) => received += piece.unwrap().len(),
            Err(error) => break Err::<(), _>(error),
        }
    });
    assert_eq!(kind, FailureKind::Protocol);
    assert!(received >= buffered, "{received} of {buffered}");
}

#[tokio::test]
async fn a_body_at_the_limit_is_returned_and_the_error_for_a_larger_body_names_the_limit() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n1\r\nf\r\n0\r\n\r\n";
    let server =
        HttpPeer::answering(move |request| if request.contains("/chunked") { reply(chunked) } else { ok("abcdef") })
            .await;
    let fetcher = fetcher(&[]);
    for path in ["/with-content-length", "/chunked"] {
        let limited = |max_body_bytes| FetchRequest { max_body_bytes: Some(max_body_bytes), ..get(server.url(path)) };
        assert_eq!(load(&fetcher, limited(6)).await.unwrap().1, "abcdef");
        let expected = "failed to read http/request response body: it is larger than 5 bytes".to_owned();
        assert_eq!(failure(load(&fetcher, limited(5)).await), (FailureKind::BodyTooLarge, expected.clone()));
        let response = fetcher.send(get(server.url(path))).await.unwrap();
        assert_eq!(failure(response.body.collect(5).await), (FailureKind::BodyTooLarge, expected));
        let response = fetcher.send(limited(6)).await.unwrap();
        assert_eq!(response.body.collect(100).await.unwrap(), "abcdef");
    }
}

#[tokio::test]
async fn a_content_length_over_the_limit_fails_before_the_body_arrives_and_closes_the_connection() {
    let server = HttpPeer::answering(|_| reply(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n")).await;
    let mut body =
        fetcher(&[]).send(FetchRequest { max_body_bytes: Some(5), ..get(server.url("/")) }).await.unwrap().body;
    assert_eq!(failure(body.next().await).0, FailureKind::BodyTooLarge);
    assert_eq!(body.next().await.unwrap(), None);
    server.wait_until_closed(1).await;
}

#[tokio::test]
async fn a_connection_that_the_server_closes_before_the_end_of_the_body_is_an_error() {
    let incomplete = [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ];
    for answer in incomplete {
        let server = HttpPeer::answering(move |_| PeerReply::Close(answer.into())).await;
        let mut body = fetcher(&[]).send(get(server.url("/"))).await.unwrap().body;
        assert_eq!(body.next().await.unwrap().unwrap(), "abc");
        let text =
            "failed to read http/request response body: the connection was closed before the answer was complete";
        assert_eq!(failure(body.next().await), (FailureKind::Protocol, text.to_owned()), "{answer}");
    }
}

#[tokio::test]
async fn an_invalid_chunk_is_an_error_whose_text_does_not_quote_the_chunk() {
    let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nsecret\r\n";
    let server = HttpPeer::answering(move |_| reply(answer)).await;
    let (kind, text) = failure(load(&fetcher(&[]), get(server.url("/"))).await);
    assert_eq!(kind, FailureKind::Protocol);
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn bytes_after_the_end_of_a_body_are_never_taken_for_the_next_response() {
    let poison = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    let server = HttpPeer::answering(move |_| reply(poison)).await;
    let fetcher = fetcher(&[]);
    for _ in 0..3 {
        assert_eq!(load(&fetcher, get(server.url("/"))).await.unwrap(), (200, "abc".into()));
    }
    assert_eq!(server.connections_accepted(), 3);
}

#[tokio::test]
async fn the_deadline_ends_a_body_that_stalls_and_closes_the_connection() {
    let first = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc";
    let server = HttpPeer::answering(move |_| reply(first)).await;
    let mut body = fetcher(&[]).send(with_timeout_ms(1000, get(server.url("/")))).await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "abc");
    let text = "failed to read http/request response body: the time given for the request is over".to_owned();
    assert_eq!(failure(body.next().await), (FailureKind::Timeout, text));
    server.wait_until_closed(1).await;
}

#[tokio::test]
async fn the_deadline_ends_a_body_that_arrives_without_end() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_http_request(&mut stream).await.unwrap();
        stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
        while stream.write_all(&[b'x'; 64 * 1024]).await.is_ok() {}
    });
    let mut body = fetcher(&[]).send(with_timeout_ms(1000, get(url))).await.unwrap().body;
    let error = loop {
        match body.next().await {
            Ok(piece) => assert!(piece.is_some()),
            Err(error) => break error,
        }
    };
    assert_eq!(failure::<()>(Err(error)).0, FailureKind::Timeout);
    server.await.unwrap();
}
