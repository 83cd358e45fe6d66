//! HTTP/2 servers that try to use up the memory or the processor time of the client. The client closes the connection
//! before the server has sent [`MAX_SENT_BYTES`].

use crate::http2_peer::{END_HEADERS, END_STREAM, RawHttp2Connection, RawHttp2Peer, STATUS_200, frame, kind};
use crate::support::{failure, get};
use fetch::{FailureKind, FetchError};
use tokio::sync::mpsc;

/// The client must close the connection before a server has sent this many bytes. This is more than any limit of the
/// client, and less than the 1 GiB that the server tries to send.
const MAX_SENT_BYTES: usize = 200 << 20;

/// Starts a server that answers a request with `answer` and then repeats `bytes`. Makes a request, which must fail
/// before its response or in the body of its response, and returns the failure. Also checks how much the server sent.
async fn failure_of_flood(answer: Vec<u8>, bytes: Vec<u8>) -> (FailureKind, String) {
    let (note_sent, mut sent) = mpsc::unbounded_channel();
    let server = RawHttp2Peer::start(move |_, mut connection| {
        let (note_sent, answer, bytes) = (note_sent.clone(), answer.clone(), bytes.clone());
        async move {
            assert_eq!(connection.next_request().await, Some(1));
            connection.send_bytes(&answer).await.unwrap();
            note_sent.send(connection.flood(&bytes).await).unwrap();
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

/// A HEADERS frame for the first stream, with headers that HPACK has encoded.
fn headers(flags: u8, encoded: &[u8]) -> Vec<u8> {
    frame(kind::HEADERS, flags, 1, encoded)
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
    // A header that HPACK adds to the dynamic table (first byte 0x40 instead of 0), and then one byte (0xbe) for each
    // repetition of this header.
    let mut encoded = STATUS_200.to_vec();
    encoded.push(0x40);
    encoded.extend(literal("x", &"y".repeat(4000)).split_off(1));
    encoded.extend([0xbe; 12_000]);
    let (kind, text) = failure_of_flood(headers(END_HEADERS, &encoded), frame(kind::PING, 0, 0, &[0; 8])).await;
    assert_eq!(kind, FailureKind::Protocol, "{text}");
}

#[tokio::test]
async fn frames_without_end_that_belong_to_no_response_are_cut_off() {
    let ping = frame(kind::PING, 0, 0, &[0; 8]);
    // The setting with number 3, SETTINGS_MAX_CONCURRENT_STREAMS, has the value 100.
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
    let (note_sent, mut sent) = mpsc::unbounded_channel();
    let server = RawHttp2Peer::start(move |_, mut connection| {
        let note_sent = note_sent.clone();
        async move {
            connection.next_request().await;
            connection.send_bytes(&headers(END_HEADERS | END_STREAM, STATUS_200)).await.unwrap();
            note_sent.send(connection.flood(&frame(kind::PING, 0, 0, &[0; 8]).repeat(4000)).await).unwrap();
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

/// Starts a server that sends the headers of a response and then repeats `bytes`. Makes a request, but reads the body
/// only after the client has closed the connection. Reading must then fail. Returns how many bytes the server sent
/// after the headers.
async fn bytes_sent_while_body_is_unread(bytes: Vec<u8>) -> usize {
    let (note_sent, mut sent) = mpsc::unbounded_channel();
    let server = RawHttp2Peer::start(move |_, mut connection: RawHttp2Connection| {
        let (note_sent, bytes) = (note_sent.clone(), bytes.clone());
        async move {
            connection.next_request().await;
            connection.send_bytes(&headers(END_HEADERS, STATUS_200)).await.unwrap();
            note_sent.send(connection.flood(&bytes).await).unwrap();
        }
    })
    .await;
    let fetcher = server.fetcher();
    let response = fetcher.send(get(server.url())).await.unwrap();
    let sent = sent.recv().await.unwrap();
    let mut body = response.body;
    let failed = loop {
        match body.next().await {
            Ok(piece) => assert!(piece.is_some(), "the body ended without an error"),
            Err(error) => break failure::<()>(Err(error)),
        }
    };
    assert_eq!(failed.0, FailureKind::Protocol, "{failed:?}");
    sent
}

#[tokio::test]
async fn a_body_in_frames_of_one_byte_that_nobody_reads_is_cut_off() {
    let sent = bytes_sent_while_body_is_unread(frame(kind::DATA, 0, 1, b"x").repeat(1000)).await;
    assert!(sent < 16 << 20, "{sent}");
}

#[tokio::test]
async fn a_server_that_sends_more_than_the_window_allows_is_cut_off() {
    let sent = bytes_sent_while_body_is_unread(frame(kind::DATA, 0, 1, &[b'x'; 16_384])).await;
    assert!(sent < MAX_SENT_BYTES, "{sent}");
}

#[tokio::test]
async fn garbage_and_push_promises_and_frames_for_unknown_streams_end_the_connection() {
    // Promises stream 2, as if the client had sent `GET /` on it.
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

/// The length of a text without Huffman coding, as HPACK writes it (RFC 7541, sections 5.1 and 5.2).
fn text_length(length: usize) -> Vec<u8> {
    if length < 127 {
        return vec![u8::try_from(length).unwrap()];
    }
    let mut rest = length - 127;
    let mut bytes = vec![127];
    while rest >= 128 {
        bytes.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    bytes.push(u8::try_from(rest).unwrap());
    bytes
}
