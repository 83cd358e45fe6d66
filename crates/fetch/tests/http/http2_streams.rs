//! The streams of HTTP/2 connections: requests share a connection, each stream is as slow as its reader, and a
//! request can be cancelled alone. Also when connections are closed, and when they count as lost.

use std::sync::Arc;
use std::time::Duration;

use crate::http2_peer::{Http2Call, Http2Peer, RawHttp2Peer, send_body};
use crate::support::{assert_closed_after_a_minute, failure, get, load, ok, request, with_timeout_ms};
use crate::tls::{SecureServer, fetcher_with_authorities};
use bytes::Bytes;
use fetch::{FailureKind, FetchRequest, Fetcher};
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;

/// The limits of the crate: open streams of a connection, and bytes of a body that nobody takes.
const MAX_STREAMS: usize = fetch::limits::MAX_STREAMS;
const WINDOW_BYTES: usize = fetch::limits::MAX_UNREAD_BYTES;

/// Sends requests at the same time and returns the bodies of their responses, in any order.
async fn load_all_at_once(fetcher: &Fetcher, requests: impl IntoIterator<Item = FetchRequest>) -> Vec<String> {
    let mut running = JoinSet::new();
    for request in requests {
        let fetcher = fetcher.clone();
        running.spawn(async move { load(&fetcher, request).await.unwrap().1 });
    }
    running.join_all().await
}

#[tokio::test]
async fn concurrent_requests_share_a_connection() {
    let arrived = Arc::new(Barrier::new(MAX_STREAMS));
    let server = Http2Peer::start("localhost", move |call: Http2Call| {
        let arrived = Arc::clone(&arrived);
        async move {
            if call.path() == "/together" {
                // No request is answered before all have arrived.
                arrived.wait().await;
            }
            let number = call.connection.to_string();
            call.answer(number).await;
        }
    })
    .await;
    let fetcher = server.fetcher(&[]);
    load(&fetcher, get(server.url("/"))).await.unwrap();
    let answers = load_all_at_once(&fetcher, (0..MAX_STREAMS).map(|_| get(server.url("/together")))).await;
    assert_eq!(answers, ["0"; MAX_STREAMS]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn requests_beyond_the_streams_of_a_connection_get_another_connection() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        call.begin_until_reset("").await;
    })
    .await;
    let fetcher = server.fetcher(&[]);
    let mut open = Vec::new();
    for number in 0..=MAX_STREAMS {
        open.push(fetcher.send(get(server.url("/"))).await.unwrap());
        assert_eq!(server.connections(), 1 + number / MAX_STREAMS);
    }
    // A stream that is closed makes room for another.
    open.remove(0);
    open.push(fetcher.send(get(server.url("/"))).await.unwrap());
    assert_eq!(server.connections(), 2);
}

#[tokio::test]
async fn a_server_that_allows_one_stream_gets_a_second_connection_while_the_stream_is_open() {
    let settings = h2::server::Builder::new().max_concurrent_streams(1).clone();
    let server = Http2Peer::start_with_settings("localhost", &settings, |mut call: Http2Call| async move {
        match call.path() {
            "/endless" => drop(call.begin_until_reset("").await),
            _ => call.answer("quick").await,
        }
    })
    .await;
    let fetcher = server.fetcher(&[]);
    let unread = fetcher.send(get(server.url("/endless"))).await.unwrap();
    for _ in 0..3 {
        assert_eq!(load(&fetcher, get(server.url("/"))).await.unwrap().1, "quick");
    }
    assert_eq!(server.connections(), 2);
    drop(unread);
}

#[tokio::test]
async fn a_body_that_nobody_takes_stops_its_own_stream_and_no_other() {
    let size = 4 * WINDOW_BYTES;
    // The server sends a message when an unread body fills its window, and another when the body is sent completely.
    let (note_progress, mut progress) = mpsc::unbounded_channel();
    let server = Http2Peer::start("localhost", move |mut call: Http2Call| {
        let note_progress = note_progress.clone();
        async move {
            if call.path() == "/read" {
                return call.answer(vec![b'r'; size]).await;
            }
            let mut stream = call.begin();
            send_body(&mut stream, vec![b'u'; WINDOW_BYTES].into(), false).await;
            note_progress.send(()).unwrap();
            // The window is full. This waits until the caller of the fetcher has taken some bytes.
            stream.reserve_capacity(1);
            let room = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await;
            assert!(room.unwrap().unwrap() > 0);
            send_body(&mut stream, vec![b'u'; size - WINDOW_BYTES].into(), true).await;
            note_progress.send(()).unwrap();
        }
    })
    .await;
    let fetcher = server.fetcher(&[]);
    let mut unread = Vec::new();
    for _ in 1..MAX_STREAMS {
        unread.push(fetcher.send(get(server.url("/unread"))).await.unwrap().body);
        progress.recv().await.unwrap();
    }
    // The windows of the unread streams are full. The last stream still transfers more than its own window.
    let body = fetcher.send(get(server.url("/read"))).await.unwrap().body;
    assert_eq!(body.collect(u64::MAX).await.unwrap().len(), size);
    assert!(progress.try_recv().is_err(), "an unread body was sent completely");
    let mut taken = 0;
    let mut first = unread.remove(0);
    while let Some(piece) = first.next().await.unwrap() {
        assert!(piece.len() <= WINDOW_BYTES && piece.iter().all(|byte| *byte == b'u'));
        taken += piece.len();
    }
    assert_eq!((taken, server.connections()), (size, 1));
    progress.recv().await.unwrap();
}

#[tokio::test]
async fn dropping_a_request_or_a_body_resets_its_stream_only() {
    // The server sends `None` when the request for `/silent` has arrived, and the reason when a stream is reset.
    let (note_event, mut events) = mpsc::unbounded_channel();
    let server = Http2Peer::start("localhost", move |mut call: Http2Call| {
        let note_event = note_event.clone();
        async move {
            match call.path() {
                "/silent" => {
                    note_event.send(None).unwrap();
                    note_event.send(Some(call.wait_for_reset().await)).unwrap();
                }
                "/begun" => note_event.send(Some(call.begin_until_reset("part").await)).unwrap(),
                _ => call.answer("other").await,
            }
        }
    })
    .await;
    let fetcher = server.fetcher(&[]);
    let sending = tokio::spawn({
        let (fetcher, url) = (fetcher.clone(), server.url("/silent"));
        async move { fetcher.send(get(url)).await.map(drop) }
    });
    assert_eq!(events.recv().await.unwrap(), None);
    sending.abort();
    assert_eq!(events.recv().await.unwrap(), Some(h2::Reason::CANCEL));
    let mut body = fetcher.send(get(server.url("/begun"))).await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "part");
    drop(body);
    assert_eq!(events.recv().await.unwrap(), Some(h2::Reason::CANCEL));
    assert_eq!(load(&fetcher, get(server.url("/"))).await.unwrap().1, "other");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn the_deadline_for_headers_bodies_and_uploads_resets_only_the_stream() {
    let (note_reset, mut resets) = mpsc::unbounded_channel();
    let server = Http2Peer::start("localhost", move |mut call: Http2Call| {
        let note_reset = note_reset.clone();
        async move {
            let reset = match call.path() {
                "/body" => call.begin_until_reset("part").await,
                _ => call.wait_for_reset().await,
            };
            note_reset.send(reset).unwrap();
        }
    })
    .await;
    let fetcher = server.fetcher(&[]);
    let reason = "the time given for the request is over";
    let failed = failure(load(&fetcher, with_timeout_ms(1000, get(server.url("/headers")))).await);
    assert_eq!(failed, (FailureKind::Timeout, format!("http/request failed: {reason}")));
    assert_eq!(resets.recv().await.unwrap(), h2::Reason::CANCEL);
    let failed = failure(load(&fetcher, with_timeout_ms(500, get(server.url("/body")))).await);
    assert_eq!(failed, (FailureKind::Timeout, format!("failed to read http/request response body: {reason}")));
    assert_eq!(resets.recv().await.unwrap(), h2::Reason::CANCEL);
    // The server does not read the upload, and the upload is larger than the windows of the server.
    let upload = FetchRequest { body: Some(vec![b'x'; 64 << 20].into()), ..request("POST", server.url("/upload")) };
    assert_eq!(failure(load(&fetcher, with_timeout_ms(500, upload)).await).0, FailureKind::Timeout);
    assert_eq!(resets.recv().await.unwrap(), h2::Reason::CANCEL);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_a_minute() {
    let server = Http2Peer::start("localhost", |call: Http2Call| async move { call.answer("x").await }).await;
    let fetcher = server.fetcher(&[]);
    load(&fetcher, get(server.url("/"))).await.unwrap();
    tokio::time::pause();
    assert_closed_after_a_minute(server.wait_until_closed(1)).await;
    drop(fetcher);
}

#[tokio::test]
async fn at_most_sixteen_idle_connections_of_http1_and_http2_are_kept() {
    let mut servers = Vec::new();
    let mut authorities = String::new();
    for _ in 0..9 {
        let http2 = Http2Peer::start("localhost", |call: Http2Call| async move { call.answer("x").await }).await;
        let http1 = SecureServer::start("localhost", |_| ok("x")).await;
        authorities += &format!("{}{}", http2.authority, http1.authority);
        servers.push((http2, http1));
    }
    let fetcher = fetcher_with_authorities(&authorities, &[]);
    for (http2, http1) in &servers {
        load(&fetcher, get(http2.url("/"))).await.unwrap();
        load(&fetcher, get(format!("https://localhost:{}/", http1.port))).await.unwrap();
    }
    servers[0].0.wait_until_closed(1).await;
    for (http2, _) in &servers[1..] {
        load(&fetcher, get(http2.url("/"))).await.unwrap();
        assert_eq!(http2.connections(), 1, "one of the sixteen connections that were used last was closed");
    }
}

#[tokio::test]
async fn after_the_fetcher_is_dropped_a_connection_stays_open_until_its_body_is_dropped() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        call.begin_until_reset("one").await;
    })
    .await;
    let fetcher = server.fetcher(&[]);
    let mut body = fetcher.send(get(server.url("/"))).await.unwrap().body;
    drop(fetcher);
    assert_eq!(body.next().await.unwrap().unwrap(), "one");
    drop(body);
    server.wait_until_closed(1).await;
}

#[tokio::test]
async fn closing_the_fetcher_ends_connections_and_their_tasks_and_later_requests_fail() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        call.begin_until_reset("").await;
    })
    .await;
    let tasks_before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let fetcher = server.fetcher(&[]);
    let mut body = fetcher.send(get(server.url("/"))).await.unwrap().body;
    fetcher.close().await;
    assert_eq!(failure(body.next().await).0, FailureKind::Protocol);
    server.wait_until_closed(1).await;
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), tasks_before);
    assert!(fetcher.send(get(server.url("/"))).await.is_err());
}

#[tokio::test]
async fn a_request_to_a_server_that_answers_no_pings_fails_within_a_minute() {
    let (note_request, mut requests_arrived) = mpsc::unbounded_channel();
    let server = RawHttp2Peer::start(move |_, mut connection| {
        let note_request = note_request.clone();
        async move {
            connection.next_request().await;
            note_request.send(()).unwrap();
            // Reads everything and sends nothing.
            while connection.next_frame().await.is_some() {}
        }
    })
    .await;
    let fetcher = server.fetcher();
    let sending = tokio::spawn({
        let request = request("POST", server.url());
        async move { fetcher.send(request).await.map(drop) }
    });
    requests_arrived.recv().await.unwrap();
    tokio::time::pause();
    let started = tokio::time::Instant::now();
    let (kind, text) = failure(sending.await.unwrap());
    let waited = started.elapsed();
    assert_eq!(kind, FailureKind::Connect);
    assert_eq!(text, "http/request failed: the connection was lost: the server does not answer pings");
    // The client sends a ping after 30 seconds, and waits 20 seconds for the answer.
    assert!((Duration::from_secs(40)..Duration::from_secs(60)).contains(&waited), "{waited:?}");
}

#[tokio::test]
async fn a_body_that_pauses_for_hours_does_not_fail_if_the_server_answers_pings() {
    let (send_rest, rest) = mpsc::channel::<Bytes>(1);
    let rest = Arc::new(tokio::sync::Mutex::new(rest));
    let server = Http2Peer::start("localhost", move |mut call: Http2Call| {
        let rest = Arc::clone(&rest);
        async move {
            let mut stream = call.begin();
            send_body(&mut stream, "first".into(), false).await;
            let last = rest.lock().await.recv().await.unwrap();
            send_body(&mut stream, last, true).await;
        }
    })
    .await;
    let mut body = server.fetcher(&[]).send(get(server.url("/"))).await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "first");
    tokio::time::pause();
    for _ in 0..600 {
        // sleep: one of the 600 steps of a pause of two hours, on a paused clock. Pings and their answers can arrive
        // between two steps.
        tokio::time::sleep(Duration::from_secs(12)).await;
    }
    tokio::time::resume();
    send_rest.send("last".into()).await.unwrap();
    assert_eq!(body.next().await.unwrap().unwrap(), "last");
    assert_eq!(body.next().await.unwrap(), None);
}
