//! The rules for sending a request again that failed over HTTP/2.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::http2_peer::{
    END_HEADERS, END_STREAM, Http2Call, Http2Peer, RawHttp2Connection, RawHttp2Peer, STATUS_200, kind, send_body,
};
use crate::support::{failure, get, load, request};
use crate::tls::fetcher_with_authorities;
use fetch::FailureKind;
use h2::Reason;
use testkit::tls_acceptor;
use testkit::{RecordedRequests, http_ok, serve_http};
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// The payload of a GOAWAY frame with `NO_ERROR`. Streams after `last_stream` were not processed.
fn goaway_payload(last_stream: u32) -> Vec<u8> {
    [last_stream.to_be_bytes(), [0; 4]].concat()
}

/// Answers a request with status 200 and an empty body.
async fn answer_empty(connection: &mut RawHttp2Connection, stream: u32) {
    connection.send_frame(kind::HEADERS, END_HEADERS | END_STREAM, stream, STATUS_200).await.unwrap();
}

#[tokio::test]
async fn after_a_goaway_open_streams_are_finished_and_new_requests_use_another_connection() {
    let finish_long = Arc::new(Notify::new());
    let finish_signal = Arc::clone(&finish_long);
    let server = Http2Peer::start("localhost", move |mut call: Http2Call| {
        let finish_signal = Arc::clone(&finish_signal);
        async move {
            if call.path() != "/long" {
                let number = call.connection.to_string();
                return call.answer(number).await;
            }
            let mut stream = call.begin();
            call.stop_accepting();
            send_body(&mut stream, "first ".into(), false).await;
            finish_signal.notified().await;
            send_body(&mut stream, "last".into(), true).await;
        }
    })
    .await;
    let fetcher = server.fetcher(&[]);
    let mut long = fetcher.send(get(server.url("/long"))).await.unwrap().body;
    assert_eq!(long.next().await.unwrap().unwrap(), "first ");
    // A request that is still sent over the old connection, number 0, is sent again over connection number 1.
    for _ in 0..3 {
        assert_eq!(load(&fetcher, request("POST", server.url("/"))).await.unwrap().1, "1");
    }
    finish_long.notify_one();
    assert_eq!(long.collect(100).await.unwrap(), "last");
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_request_after_the_last_stream_of_a_goaway_is_sent_again_although_its_method_is_not_safe() {
    let server = RawHttp2Peer::start(|number, mut connection| async move {
        let first = connection.next_request().await.unwrap();
        answer_empty(&mut connection, first).await;
        if number == 0 {
            let second = connection.next_request().await.unwrap();
            assert!(second > first);
            connection.send_frame(kind::GOAWAY, 0, 0, &goaway_payload(first)).await.unwrap();
        }
        while connection.next_frame().await.is_some() {}
    })
    .await;
    let fetcher = server.fetcher();
    for _ in 0..2 {
        assert_eq!(fetcher.send(request("POST", server.url())).await.unwrap().status, 200);
    }
}

#[tokio::test]
async fn a_request_on_the_last_stream_of_a_goaway_is_sent_again_only_if_its_method_is_safe() {
    for method in ["POST", "GET"] {
        let is_first = Arc::new(AtomicBool::new(true));
        let server = RawHttp2Peer::start(move |_, mut connection| {
            let is_first = Arc::clone(&is_first);
            async move {
                let first = connection.next_request().await.unwrap();
                answer_empty(&mut connection, first).await;
                if is_first.swap(false, Ordering::SeqCst) {
                    let second = connection.next_request().await.unwrap();
                    connection.send_frame(kind::GOAWAY, 0, 0, &goaway_payload(second)).await.unwrap();
                    // The connection is closed without an answer to the second request.
                    return;
                }
                while connection.next_frame().await.is_some() {}
            }
        })
        .await;
        let fetcher = server.fetcher();
        fetcher.send(get(server.url())).await.unwrap();
        let outcome = fetcher.send(request(method, server.url())).await;
        match method {
            "GET" => assert_eq!(outcome.unwrap().status, 200),
            _ => assert_eq!(failure(outcome).0, FailureKind::Protocol),
        }
    }
}

#[tokio::test]
async fn a_request_whose_stream_is_refused_is_sent_three_times_at_most() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        match (call.path(), call.connection) {
            ("/warm", _) | ("/refused-once", 1..) => {
                let length = call.read_body().await.len().to_string();
                call.answer(length).await;
            }
            _ => call.reset(Reason::REFUSED_STREAM),
        }
    })
    .await;
    let fetcher = server.fetcher(&[]);
    load(&fetcher, get(server.url("/warm"))).await.unwrap();
    let upload = |path| fetch::FetchRequest { body: Some("upload".into()), ..request("POST", server.url(path)) };
    assert_eq!(load(&fetcher, upload("/refused-once")).await.unwrap().1, "6");
    assert_eq!(server.connections(), 2);
    let failed = failure(load(&fetcher, upload("/always-refused")).await);
    let reason = "refused stream before processing any application logic";
    let expected = format!("http/request failed: the server ended the HTTP/2 stream: {reason}");
    assert_eq!(failed, (FailureKind::Protocol, expected));
    let attempts = server.requests().iter().filter(|request| request.contains("/always-refused")).count();
    assert_eq!((attempts, server.connections()), (3, 4));
}

#[tokio::test]
async fn a_request_that_is_reset_with_internal_error_is_not_sent_again() {
    let server =
        Http2Peer::start("localhost", |call: Http2Call| async move { call.reset(Reason::INTERNAL_ERROR) }).await;
    let fetcher = server.fetcher(&[]);
    // Even many resets do not end the connection.
    for _ in 0..100 {
        let expected =
            "http/request failed: the server ended the HTTP/2 stream: unexpected internal error encountered";
        let failed = failure(fetcher.send(get(server.url("/"))).await);
        assert_eq!(failed, (FailureKind::Protocol, expected.to_owned()));
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 100));
}

#[tokio::test]
async fn a_request_on_a_lost_connection_is_sent_again_only_if_its_method_is_safe() {
    for method in ["GET", "POST"] {
        let server = Http2Peer::start("localhost", |call: Http2Call| async move {
            match (call.path(), call.connection) {
                ("/", 0) => call.vanish().await,
                _ => call.answer("again").await,
            }
        })
        .await;
        let fetcher = server.fetcher(&[]);
        load(&fetcher, get(server.url("/warm"))).await.unwrap();
        let outcome = load(&fetcher, request(method, server.url("/"))).await;
        match method {
            "GET" => assert_eq!(outcome.unwrap().1, "again"),
            _ => assert_eq!(failure(outcome).0, FailureKind::Protocol),
        }
        assert_eq!(server.connections(), if method == "GET" { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_request_is_sent_again_over_http1_if_the_server_requires_it() {
    let (authority, acceptor) = tls_acceptor("localhost", &["h2", "http/1.1"]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    let server = tokio::spawn(async move {
        let stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        let mut http2 = h2::server::handshake(stream).await.unwrap();
        let (_, mut reply) = http2.accept().await.unwrap().unwrap();
        reply.send_reset(Reason::HTTP_1_1_REQUIRED);
        let http2_task = tokio::spawn(async move { while http2.accept().await.is_some() {} });
        let stream = acceptor.accept(listener.accept().await.unwrap().0).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let requests = RecordedRequests::default();
        serve_http(stream, &|_: &str| testkit::PeerReply::Close(http_ok("old").into()), &requests).await;
        http2_task.abort();
        requests.all().len()
    });
    let fetcher = fetcher_with_authorities(&authority, &[]);
    assert_eq!(load(&fetcher, request("POST", url)).await.unwrap(), (200, "old".into()));
    assert_eq!(server.await.unwrap(), 1);
}
