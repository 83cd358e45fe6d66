//! Programs and targets that send garbage, send slowly or send too much, and programs that open too many connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proxy::limits::MAX_HEADERS;
use testkit::{HttpPeer, eventually, http_ok};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;

use crate::support::{PATIENCE, Setup, TestProxy, echo_target, read_head, read_to_end};

fn with_short_handshake_timeout() -> Setup {
    let mut setup = Setup::default();
    setup.limits.handshake_timeout = Duration::from_millis(100);
    setup
}

#[tokio::test]
async fn garbage_ends_only_its_own_connection() {
    let target = echo_target().await;
    let proxy = TestProxy::start(with_short_handshake_timeout()).await;
    let garbage: &[&[u8]] = &[
        b"\0",
        b"\x04\x01\0\x50\x7f\0\0\x01\0",
        b"\x05",
        b"\x05\xff",
        b"\x05\0",
        b"\x05\x01\0\x04\x01\0\x01",
        b"\x05\x01\0\x05\x01\0\x03\xffshort",
        b"\x16\x03\x01\x02\0\x01",
        b"GET",
        b"GET \r\n\r\n",
        b"\r\n\r\n\r\n\r\n",
        b"GET http://a b/ HTTP/1.1\r\n\r\n",
        b"GET http:// HTTP/1.1\r\n\r\n",
        b"CONNECT :80 HTTP/1.1\r\n\r\n",
        b"GET http://a.test/ HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET http://a.test/ HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST http://a.test/ HTTP/1.1\r\nTransfer-Encoding: chunked, x\r\n\r\n",
        b"GET http://[::1/ HTTP/1.1\r\n\r\n",
        b"GET http://user@/ HTTP/1.1\r\n\r\n",
    ];
    for bytes in garbage {
        let answer = proxy.exchange(bytes).await;
        assert!(!answer.contains(" 200 "), "{bytes:?}: {answer}");
    }
    proxy.tunnel_to(&target.to_string()).await;
}

#[tokio::test]
async fn a_program_that_sends_its_headers_slowly_is_disconnected() {
    let proxy = TestProxy::start(with_short_handshake_timeout()).await;
    let beginnings: &[&'static [u8]] = &[b"", b"G", b"GET http://a.test/ HTTP/1.1\r\nX: ", b"\x05\xff"];
    for beginning in beginnings {
        let started = Instant::now();
        let (mut from, mut to) = proxy.connect().await.into_split();
        to.write_all(beginning).await.unwrap();
        // Each byte is a sign of life, but the headers never end.
        let trickling = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(100));
            while !beginning.is_empty() && to.write_all(b"a").await.is_ok() {
                ticks.tick().await;
            }
            // A program that sends nothing at all keeps its end open.
            std::future::pending::<()>().await;
        });
        let mut rest = Vec::new();
        let ended = tokio::time::timeout(PATIENCE, from.read_to_end(&mut rest)).await;
        trickling.abort();
        assert!(ended.is_ok(), "{beginning:?} is still connected after {:?}", started.elapsed());
    }
}

#[tokio::test]
async fn a_connection_that_is_kept_open_without_a_request_is_closed() {
    let peer = HttpPeer::closing(|_| http_ok("x")).await;
    let proxy = TestProxy::start(with_short_handshake_timeout()).await;
    let mut stream = proxy.connect().await;
    let request = format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", peer.url("/"));
    assert_eq!(testkit::http_exchange(&mut stream, &request).await.body, "x");
    assert_eq!(read_to_end(&mut stream).await, "");
}

#[tokio::test]
async fn headers_that_are_too_large_are_refused() {
    let proxy = TestProxy::start(Setup::default()).await;
    let mut stream = proxy.connect().await;
    let writing = async {
        let head = format!("GET http://a.test/ HTTP/1.1\r\nX: {}", "x".repeat(10 << 20));
        let _refused = stream.write_all(head.as_bytes()).await;
        read_to_end(&mut stream).await
    };
    let answer = tokio::time::timeout(PATIENCE, writing).await.expect("the proxy reads without end");
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    // As many headers as are allowed, but too many bytes.
    let long: String = (0..900).map(|n| format!("X-{n}: {}\r\n", "1".repeat(100))).collect();
    let answer = proxy.request("GET http://a.test/", &long).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(proxy.decisions(), []);
}

/// `count` header lines.
fn header_lines(count: usize) -> String {
    (0..count).map(|n| format!("X-{n}: 1\r\n")).collect()
}

#[tokio::test]
async fn the_number_of_headers_is_limited_in_requests_and_responses() {
    // `TestProxy::request` sends `Host` and `Connection` too.
    let most = MAX_HEADERS - 2;
    let peer = HttpPeer::closing(|request| {
        // The peer adds `Connection: close`.
        let count = if request.contains("/many ") { MAX_HEADERS } else { MAX_HEADERS - 1 };
        format!("HTTP/1.1 200 OK\r\n{}\r\n", header_lines(count))
    })
    .await;
    let proxy = TestProxy::start(Setup::default()).await;
    let line = format!("GET {}", peer.url("/"));
    let answer = proxy.request(&line, &header_lines(most)).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let answer = proxy.request(&line, &header_lines(most + 1)).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let answer = proxy.request(&format!("GET {}", peer.url("/many")), "").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
}

#[tokio::test]
async fn a_response_with_too_large_headers_becomes_502() {
    let peer = HttpPeer::closing(|_| format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1 << 20))).await;
    let proxy = TestProxy::start(Setup::default()).await;
    let answer = proxy.request(&format!("GET {}", peer.url("/")), "").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{}", &answer[..100.min(answer.len())]);
}

#[tokio::test]
async fn a_target_that_sends_informational_responses_without_end_is_cut_off() {
    let (note_sent, mut sent) = tokio::sync::mpsc::unbounded_channel();
    let peer = HttpPeer::with_handler(move |_, mut stream| {
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
    let proxy = TestProxy::start(Setup::default()).await;
    let answer = proxy.request(&format!("GET {}", peer.url("/")), "").await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    let sent = sent.recv().await.unwrap();
    // Most of these bytes were in the buffers of the kernel.
    assert!(sent < 64 << 20, "{sent}");
}

#[tokio::test]
async fn an_idle_tunnel_is_closed() {
    let target = echo_target().await;
    let mut setup = Setup::default();
    setup.limits.idle_timeout = Duration::from_millis(100);
    let proxy = TestProxy::start(setup).await;
    let mut tunnel = proxy.tunnel_to(&target.to_string()).await;
    assert_eq!(read_to_end(&mut tunnel).await, "");
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_until_one_ends() {
    let target = echo_target().await;
    for (connections, permits) in [(2, [1000, 1000]), (1000, [2, 1000]), (1000, [1000, 2])] {
        let connection_permits = permits.map(|count| Arc::new(Semaphore::new(count))).into();
        let mut setup = Setup { connection_permits, ..Setup::default() };
        setup.limits.connections = connections;
        let proxy = TestProxy::start(setup).await;
        let first = proxy.tunnel_to(&target.to_string()).await;
        let second = proxy.tunnel_to(&target.to_string()).await;
        let mut third = proxy.connect().await;
        third.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
        assert_eq!(proxy.decisions().len(), 2);
        let answered = tokio::time::timeout(Duration::from_millis(50), third.peek(&mut [0])).await;
        assert!(answered.is_err(), "the third connection was served");
        drop(first);
        assert!(read_head(&mut third).await.starts_with("HTTP/1.1 200 "));
        drop(second);
        proxy.tunnel_to(&target.to_string()).await;
    }
}

#[tokio::test]
async fn a_proxy_waits_while_the_others_have_all_permits_that_they_share() {
    let target = echo_target().await;
    let shared = Arc::new(Semaphore::new(2));
    let proxy_of_another_session = || {
        let own = Arc::new(Semaphore::new(1000));
        TestProxy::start(Setup { connection_permits: vec![own, Arc::clone(&shared)], ..Setup::default() })
    };
    let (first, second) = (proxy_of_another_session().await, proxy_of_another_session().await);
    let tunnels = [first.tunnel_to(&target.to_string()).await, first.tunnel_to(&target.to_string()).await];
    let mut waiting = second.connect().await;
    waiting.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let answered = tokio::time::timeout(Duration::from_millis(50), waiting.peek(&mut [0])).await;
    assert!(answered.is_err(), "the connection was served");
    drop(tunnels);
    assert!(read_head(&mut waiting).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_program_that_does_not_read_does_not_make_the_proxy_read_the_target() {
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let peer = HttpPeer::with_handler(move |_, mut stream| {
        let counter = Arc::clone(&counter);
        async move {
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            let block = vec![b'x'; 64 << 10];
            while stream.write_all(&block).await.is_ok() {
                counter.fetch_add(block.len(), std::sync::atomic::Ordering::SeqCst);
            }
        }
    })
    .await;
    let proxy = TestProxy::start(Setup::default()).await;
    let mut stream = proxy.connect().await;
    stream.write_all(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", peer.url("/")).as_bytes()).await.unwrap();
    read_head(&mut stream).await;
    let mut last = usize::MAX;
    let total = eventually("the target can write no more", || {
        let now = sent.load(std::sync::atomic::Ordering::SeqCst);
        let is_full = now == last;
        last = now;
        is_full.then_some(now)
    })
    .await;
    assert!(total < 64 << 20, "{total} bytes were taken from the target");
    drop(stream);
    peer.wait_until_closed(1).await;
}
