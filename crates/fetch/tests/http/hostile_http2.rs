//! HTTP/2 servers that try to use up memory or processor time. The connection is closed before the server has sent
//! much.

use crate::http2_peer::{END_HEADERS, END_STREAM, RawHttp2Connection, RawHttp2Peer, STATUS_200, frame, kind};
use crate::support::{failure, get};
use fetch::{FailureKind, FetchError};
use tokio::sync::mpsc;

/// The most bytes that a server may send before its connection is closed. More than any limit of the client, and less
/// than the 1 GiB that the server tries to send.
const MAX_SENT_BYTES: usize = 200 << 20;

/// Starts a server that answers a request with `answer` and then repeats `bytes`. Makes a request, reads the body of
/// its response until it fails, and returns the failure.
async fn failure_of_flood(answer: Vec<u8>, bytes: Vec<u8>) -> (FailureKind, String) {
    let (note, mut sent) = mpsc::unbounded_channel();
    let server = RawHttp2Peer::start(move |_, mut connection| {
        let (note, answer, bytes) = (note.clone(), answer.clone(), bytes.clone());
        async move {
            assert_eq!(connection.next_request().await, Some(1));
            connection.send_bytes(&answer).await.unwrap();
            note.send(connection.flood(&bytes).await).unwrap();
        }
    })
    .await;
    let fetcher = server.fetcher();
    let outcome = async {
        let mut body = fetcher.send(get(server.url())).await?.body;
        while body.next().await?.is_some() {}
        Ok::<_, FetchError>(())
    };
    let failed = failure(outcome.await);
    let sent = sent.recv().await.unwrap();
    assert!(sent < MAX_SENT_BYTES, "{sent}");
    failed
}

/// A HEADERS frame for the first stream.
fn headers(flags: u8, block: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flags, 1, block)
}

#[tokio::test]
async fn headers_without_end_are_cut_off() {
    let continuation = frame(kind::CONTINUATION, 0, 1, &literal("x", &"y".repeat(16_000)));
    assert_eq!(failure_of_flood(headers(0, STATUS_200), continuation).await.0, FailureKind::Protocol);
    let empty = frame(kind::CONTINUATION, 0, 1, &[]);
    assert_eq!(failure_of_flood(headers(0, STATUS_200), empty.repeat(1000)).await.0, FailureKind::Protocol);
}

#[tokio::test]
async fn headers_that_are_small_on_the_wire_and_large_in_memory_are_cut_off() {
    // A header that HPACK adds to the dynamic table (0x40), and then one byte (0xbe) for each repetition of it.
    let mut block = STATUS_200.to_vec();
    block.push(0x40);
    block.extend(literal("x", &"y".repeat(4000)).split_off(1));
    block.extend([0xbe; 12_000]);
    let (kind, text) = failure_of_flood(headers(END_HEADERS, &block), frame(kind::PING, 0, 0, &[0; 8])).await;
    assert_eq!(kind, FailureKind::Protocol, "{text}");
}

#[tokio::test]
async fn frames_without_end_that_belong_to_no_response_are_cut_off() {
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    let settings = frame(kind::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100]);
    let unknown = frame(0xfa, 0, 0, &[0; 100]);
    let informational = headers(END_HEADERS, &literal(":status", "103"));
    let frames = [ping, settings, unknown, informational].concat().repeat(400);
    let (kind, text) = failure_of_flood(Vec::new(), frames).await;
    assert_eq!(kind, FailureKind::Protocol);
    assert!(text.contains("67108864 bytes came that are part of no response"), "{text}");
}

#[tokio::test]
async fn an_idle_connection_that_is_flooded_is_closed() {
    let (note, mut sent) = mpsc::unbounded_channel();
    let server = RawHttp2Peer::start(move |_, mut connection| {
        let note = note.clone();
        async move {
            connection.next_request().await;
            connection.send_bytes(&headers(END_HEADERS | END_STREAM, STATUS_200)).await.unwrap();
            note.send(connection.flood(&frame(kind::PING, 0, 0, &[0; 8]).repeat(4000)).await).unwrap();
        }
    })
    .await;
    let fetcher = server.fetcher();
    assert_eq!(fetcher.send(get(server.url())).await.unwrap().status, 200);
    let sent = sent.recv().await.unwrap();
    assert!(sent < MAX_SENT_BYTES, "{sent}");
}

#[tokio::test]
async fn a_body_of_empty_frames_without_end_is_cut_off() {
    let empty = frame(kind::DATA, 0, 1, &[]).repeat(1000);
    let (kind, _) = failure_of_flood(headers(END_HEADERS, STATUS_200), empty).await;
    assert_eq!(kind, FailureKind::Protocol);
}

/// Starts a server that repeats `bytes` in its response. Makes a request, but reads the body only after the
/// connection was closed. Returns how many bytes the server has sent.
async fn bytes_sent_unread(bytes: Vec<u8>) -> usize {
    let (note, mut sent) = mpsc::unbounded_channel();
    let server = RawHttp2Peer::start(move |_, mut connection: RawHttp2Connection| {
        let (note, bytes) = (note.clone(), bytes.clone());
        async move {
            connection.next_request().await;
            connection.send_bytes(&headers(END_HEADERS, STATUS_200)).await.unwrap();
            note.send(connection.flood(&bytes).await).unwrap();
        }
    })
    .await;
    let fetcher = server.fetcher();
    let response = fetcher.send(get(server.url())).await.unwrap();
    let sent = sent.recv().await.unwrap();
    let mut body = response.body;
    let failed = loop {
        match body.next().await {
            Ok(piece) => assert!(piece.is_some(), "the body has ended"),
            Err(error) => break failure::<()>(Err(error)),
        }
    };
    assert_eq!(failed.0, FailureKind::Protocol, "{failed:?}");
    sent
}

#[tokio::test]
async fn a_body_in_frames_of_one_byte_that_nobody_reads_is_cut_off() {
    let sent = bytes_sent_unread(frame(kind::DATA, 0, 1, b"x").repeat(1000)).await;
    assert!(sent < 16 << 20, "{sent}");
}

#[tokio::test]
async fn a_server_that_ignores_the_window_is_cut_off() {
    let sent = bytes_sent_unread(frame(kind::DATA, 0, 1, &[b'x'; 16_384])).await;
    assert!(sent < MAX_SENT_BYTES, "{sent}");
}

#[tokio::test]
async fn push_promises_frames_for_unknown_streams_and_garbage_end_the_connection() {
    let promise = frame(kind::PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2, 0x82, 0x87, 0x84]);
    let data = frame(kind::DATA, 0, 99, b"x");
    let reset = frame(kind::RST_STREAM, 0, 99, &[0; 4]);
    let garbage = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
    for bytes in [promise, data, reset, garbage] {
        assert_eq!(failure_of_flood(Vec::new(), bytes).await.0, FailureKind::Protocol);
    }
}

/// A header as HPACK writes it without the dynamic table and without Huffman coding (RFC 7541, section 6.2.2).
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut header = vec![0];
    for text in [name, value] {
        header.extend(text_length(text.len()));
        header.extend(text.as_bytes());
    }
    header
}

/// The length of a text without Huffman coding, as HPACK writes it (RFC 7541, section 5.2).
fn text_length(mut rest: usize) -> Vec<u8> {
    if rest < 127 {
        return vec![u8::try_from(rest).unwrap()];
    }
    rest -= 127;
    let mut bytes = vec![127];
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}
