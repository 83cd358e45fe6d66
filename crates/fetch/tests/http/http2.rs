//! HTTP/2: when it is used, what requests and responses look like over it, and which responses are errors.

use std::sync::Arc;

use crate::http2_peer::{
    END_HEADERS, END_STREAM, Http2Call, Http2Peer, RawHttp2Peer, STATUS_200, frame, kind, send_body,
};
use crate::proxies::TunnelPeer;
use crate::socks::{SocksPeer, allow_all};
use crate::support::{failure, get, header, load, ok, request};
use crate::tls::{SecureServer, fetcher_that_trusts, fetcher_with_authorities};
use bytes::Bytes;
use fetch::{FailureKind, FetchRequest, Redirects};
use http::{HeaderMap, Response};
use testkit::tls_acceptor;
use tokio::sync::{Notify, mpsc};

#[tokio::test]
async fn http2_is_used_if_the_server_chooses_it() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        let body = call.read_body().await;
        let response = Response::builder().status(201).header("X-Two", "a").header("x-one", "1").header("x-two", "b");
        call.send(response.body(()).unwrap(), body.into()).await;
    })
    .await;
    let fetcher = server.fetcher(&[]);
    let headers = vec![header("X-B", "1"), header("Authorization", "secret"), header("x-b", "2")];
    let upload =
        FetchRequest { headers, body: Some("body".into()), ..request("POST", server.url("/a?q=1#fragment")) };
    let response = fetcher.send(upload).await.unwrap();
    assert_eq!(response.status, 201);
    // Request and response look as over HTTP/1.1: names are in lower case, and repeated names are together.
    let headers: Vec<_> = response.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    assert_eq!(headers, ["x-two: a", "x-two: b", "x-one: 1"]);
    assert_eq!(response.body.collect(100).await.unwrap(), "body");
    load(&fetcher, get(server.url("/b"))).await.unwrap();
    let host = format!("localhost:{}", server.port);
    let post =
        format!("POST https://{host}/a?q=1\nx-b: 1\nx-b: 2\nauthorization: secret\naccept: */*\ncontent-length: 4");
    assert_eq!(server.requests(), [post, format!("GET https://{host}/b\naccept: */*")]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn http1_is_used_if_the_server_does_not_choose_http2() {
    for protocols in [&[][..], &["http/1.1"]] {
        let server = SecureServer::start_with_alpn("localhost", protocols, |_| ok("old")).await;
        let fetcher = fetcher_that_trusts(&server, &[]);
        let url = format!("https://localhost:{}/", server.port);
        for _ in 0..2 {
            assert_eq!(load(&fetcher, get(url.clone())).await.unwrap(), (200, "old".into()));
        }
        let expected = format!("GET / HTTP/1.1\r\naccept: */*\r\nhost: localhost:{}\r\n\r\n", server.port);
        assert_eq!(server.requests(), [expected.clone(), expected]);
    }
}

#[tokio::test]
async fn a_valid_host_header_becomes_the_host_of_the_url_and_an_invalid_one_stays_a_header() {
    let server = Http2Peer::start("localhost", |call: Http2Call| async move { call.answer("").await }).await;
    let fetcher = server.fetcher(&[]);
    for host in ["other.test:81", "a b"] {
        let headers = vec![header("host", host), header("X-A", "1"), header("X-B", "2")];
        load(&fetcher, FetchRequest { headers, ..get(server.url("/")) }).await.unwrap();
    }
    let with_valid_host = "GET https://other.test:81/\nx-a: 1\nx-b: 2\naccept: */*".to_owned();
    let with_invalid_host = format!("GET https://localhost:{}/\nhost: a b\nx-a: 1\nx-b: 2\naccept: */*", server.port);
    assert_eq!(server.requests(), [with_valid_host, with_invalid_host]);
}

#[tokio::test]
async fn headers_that_are_about_an_http1_connection_are_not_sent() {
    let server = Http2Peer::start("localhost", |call: Http2Call| async move { call.answer("").await }).await;
    let headers =
        ["Connection: x-hop", "X-Hop: 1", "Keep-Alive: 5", "Upgrade: h2c", "TE: gzip", "Proxy-Connection: x"];
    let headers = headers.iter().map(|line| line.split_once(": ").unwrap()).map(|(name, value)| header(name, value));
    load(&server.fetcher(&[]), FetchRequest { headers: headers.collect(), ..get(server.url("/")) }).await.unwrap();
    assert_eq!(server.requests(), [format!("GET https://localhost:{}/\naccept: */*", server.port)]);
}

#[tokio::test]
async fn http2_requests_share_one_tunnel_through_a_proxy() {
    let server = Http2Peer::start("secure.test", |call: Http2Call| async move { call.answer("inner").await }).await;
    let proxy = TunnelPeer::start(server.port).await;
    let fetcher = server.fetcher(&[("HTTPS_PROXY", &format!("http://user:pass@127.0.0.1:{}", proxy.port))]);
    for _ in 0..2 {
        assert_eq!(load(&fetcher, get("https://secure.test/path")).await.unwrap().1, "inner");
    }
    assert_eq!(server.requests(), ["GET https://secure.test/path\naccept: */*"; 2]);
    assert_eq!((proxy.asked.lock().len(), server.connections()), (1, 1));
}

#[tokio::test]
async fn a_proxy_with_tls_is_offered_only_http1_and_http2_goes_through_its_tunnel() {
    let server = Http2Peer::start("secure.test", |call: Http2Call| async move { call.answer("inner").await }).await;
    // The proxy would choose HTTP/2 if the fetcher offered it.
    let (authority, acceptor) = tls_acceptor("localhost", &["h2", "http/1.1"]);
    let proxy = TunnelPeer::start_with_handshake(server.port, move |stream| {
        let handshake = acceptor.accept(stream);
        async { handshake.await.ok() }
    })
    .await;
    let authorities = format!("{authority}{}", server.authority);
    let proxy_url = format!("https://localhost:{}", proxy.port);
    let fetcher = fetcher_with_authorities(&authorities, &[("HTTPS_PROXY", &proxy_url)]);
    assert_eq!(load(&fetcher, get("https://secure.test/")).await.unwrap().1, "inner");
    assert_eq!(*proxy.asked.lock(), ["CONNECT secure.test:443 HTTP/1.1\r\nHost: secure.test:443\r\n\r\n"]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn http2_requests_share_one_connection_through_a_socks_proxy() {
    let server = Http2Peer::start("secure.test", |call: Http2Call| async move { call.answer("inner").await }).await;
    let proxy = SocksPeer::start(allow_all(server.port)).await;
    let fetcher = server.fetcher(&[("ALL_PROXY", &proxy.url("socks5h", ""))]);
    for _ in 0..2 {
        assert_eq!(load(&fetcher, get("https://secure.test/")).await.unwrap().1, "inner");
    }
    assert_eq!(proxy.asked(), ["name secure.test:443"]);
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn redirects_within_an_origin_stay_on_the_connection() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        match call.path() {
            "/from" => {
                let response = Response::builder().status(302).header("location", "/to").body(()).unwrap();
                // More than the fetcher reads of the body of a redirect that it follows.
                call.send(response, vec![b'x'; 4 << 20].into()).await;
            }
            _ => call.answer("there").await,
        }
    })
    .await;
    let fetcher = server.fetcher(&[]);
    assert_eq!(load(&fetcher, get(server.url("/from"))).await.unwrap().1, "there");
    // A redirect that is not followed is returned with its whole body.
    let stop = FetchRequest { redirects: Redirects::Stop, ..get(server.url("/from")) };
    let stopped = fetcher.send(stop).await.unwrap();
    assert_eq!((stopped.status, server.connections()), (302, 1));
    assert_eq!(stopped.body.collect(u64::MAX).await.unwrap().len(), 4 << 20);
}

#[tokio::test]
async fn a_response_to_head_has_no_body_whatever_its_content_length_is() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        let response = Response::builder().header("content-length", 1_000_000).body(()).unwrap();
        // The end of the stream is in a frame of its own.
        let mut stream = call.reply.send_response(response, false).unwrap();
        stream.send_data(Bytes::new(), true).unwrap();
    })
    .await;
    let limited = FetchRequest { max_body_bytes: Some(5), ..request("HEAD", server.url("/")) };
    let response = server.fetcher(&[]).send(limited).await.unwrap();
    assert_eq!(response.headers, [("content-length".to_owned(), "1000000".to_owned())]);
    assert_eq!(response.body.collect(5).await.unwrap(), "");
}

#[tokio::test]
async fn uploads_are_sent_whole_and_trailers_of_responses_are_dropped() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        let length = call.read_body().await.len().to_string();
        let mut stream = call.begin();
        send_body(&mut stream, length.into(), false).await;
        let trailers: HeaderMap = [("x-trailer".parse().unwrap(), "1".parse().unwrap())].into_iter().collect();
        stream.send_trailers(trailers).unwrap();
    })
    .await;
    let fetcher = server.fetcher(&[]);
    for size in [0, 1, 9_000_001] {
        let upload = FetchRequest { body: Some(vec![b'x'; size].into()), ..request("PUT", server.url("/")) };
        assert_eq!(load(&fetcher, upload).await.unwrap().1, size.to_string());
        let length = if size == 0 { String::new() } else { format!("\ncontent-length: {size}") };
        let expected = format!("PUT https://localhost:{}/\naccept: */*{length}", server.port);
        assert_eq!(server.requests().pop().unwrap(), expected);
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_response_before_the_end_of_an_upload_is_returned_and_the_connection_is_used_again() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        if call.request.method() == "GET" {
            return call.answer("next").await;
        }
        let response = Response::builder().status(413).body(()).unwrap();
        call.send(response, "no".into()).await;
    })
    .await;
    let fetcher = server.fetcher(&[]);
    let upload = FetchRequest { body: Some(vec![b'x'; 64 << 20].into()), ..request("POST", server.url("/")) };
    assert_eq!(load(&fetcher, upload).await.unwrap(), (413, "no".into()));
    assert_eq!(load(&fetcher, get(server.url("/"))).await.unwrap(), (200, "next".into()));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn headers_up_to_the_limits_are_returned_and_headers_over_the_limits_are_an_error() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        let mut response = Response::new(());
        let headers = response.headers_mut();
        match call.path() {
            "/many" => headers.extend((1..=1000).map(|number| (header_name(number), "1".parse().unwrap()))),
            "/more" => headers.extend((1..=1001).map(|number| (header_name(number), "1".parse().unwrap()))),
            "/large" => drop(headers.insert("x", "y".repeat(200_000).parse().unwrap())),
            "/larger" => drop(headers.insert("x", "y".repeat(300_000).parse().unwrap())),
            other => panic!("{other}"),
        }
        call.send(response, Bytes::new()).await;
    })
    .await;
    let fetcher = server.fetcher(&[]);
    assert_eq!(fetcher.send(get(server.url("/many"))).await.unwrap().headers.len(), 1000);
    assert_eq!(fetcher.send(get(server.url("/large"))).await.unwrap().headers[0].1.len(), 200_000);
    let over = "http/request failed: the headers of the answer are over the bound of 262144 bytes or 1000 headers";
    let failed = failure(fetcher.send(get(server.url("/more"))).await);
    assert_eq!(failed, (FailureKind::Protocol, over.to_owned()));
    let over =
        "http/request failed: the answer is not valid HTTP/2, or its headers are over the bound of 262144 bytes";
    let failed = failure(fetcher.send(get(server.url("/larger"))).await);
    assert_eq!(failed, (FailureKind::Protocol, over.to_owned()));
    assert_eq!(fetcher.send(get(server.url("/many"))).await.unwrap().status, 200);
    assert_eq!((server.connections(), server.requests().len()), (1, 5));
}

fn header_name(number: usize) -> http::HeaderName {
    format!("x-{number}").parse().unwrap()
}

#[tokio::test]
async fn a_body_at_the_limit_is_returned_and_a_larger_body_is_an_error() {
    let server = Http2Peer::start("localhost", |mut call: Http2Call| async move {
        match call.path() {
            "/with-content-length" => call.answer("abcdef").await,
            _ => send_body(&mut call.begin(), "abcdef".into(), true).await,
        }
    })
    .await;
    let fetcher = server.fetcher(&[]);
    for path in ["/with-content-length", "/without-content-length"] {
        let limited = |max_body_bytes| FetchRequest { max_body_bytes: Some(max_body_bytes), ..get(server.url(path)) };
        assert_eq!(load(&fetcher, limited(6)).await.unwrap().1, "abcdef");
        let expected = "failed to read http/request response body: it is larger than 5 bytes".to_owned();
        assert_eq!(failure(load(&fetcher, limited(5)).await), (FailureKind::BodyTooLarge, expected));
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_body_that_is_cut_off_is_an_error() {
    // `content-length: 10` as HPACK writes it (RFC 7541): a header with a name from the static table.
    let length_10 = [STATUS_200, &[0x0f, 0x0d, 2], b"10"].concat();
    let reset_with_no_error = frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 0]);
    let reset_with_cancel = frame(kind::RST_STREAM, 0, 1, &[0, 0, 0, 8]);
    let closed = "the connection was closed before the answer was complete";
    let invalid = "the answer is not valid HTTP/2, or its headers are over the bound of 262144 bytes";
    for (headers, data_flags, after_data, reason) in [
        (&length_10[..], END_STREAM, Vec::new(), invalid),
        (STATUS_200, 0, reset_with_no_error, closed),
        (STATUS_200, 0, reset_with_cancel, "the server ended the HTTP/2 stream: stream no longer needed"),
    ] {
        let head = frame(kind::HEADERS, END_HEADERS, 1, headers);
        let rest = [frame(kind::DATA, data_flags, 1, b"half"), after_data].concat();
        // The server sends the rest only when the client has the headers, so that not `send` but the body fails.
        let (note_headers, headers_arrived) = mpsc::unbounded_channel();
        let headers_arrived = Arc::new(tokio::sync::Mutex::new(headers_arrived));
        let server = RawHttp2Peer::start(move |_, mut connection| {
            let (head, rest, headers_arrived) = (head.clone(), rest.clone(), Arc::clone(&headers_arrived));
            async move {
                connection.next_request().await;
                connection.send_bytes(&head).await.unwrap();
                let _: Option<()> = headers_arrived.lock().await.recv().await;
                connection.send_bytes(&rest).await.unwrap();
                while connection.next_frame().await.is_some() {}
            }
        })
        .await;
        let mut body = server.fetcher().send(get(server.url())).await.unwrap().body;
        note_headers.send(()).unwrap();
        let failed = loop {
            match body.next().await {
                Ok(piece) => assert_eq!(piece.unwrap(), "half"),
                Err(error) => break failure::<()>(Err(error)),
            }
        };
        let expected = format!("failed to read http/request response body: {reason}");
        assert_eq!(failed, (FailureKind::Protocol, expected));
    }
}

#[tokio::test]
async fn a_body_whose_connection_is_lost_is_an_error() {
    let close = Arc::new(Notify::new());
    let closing = Arc::clone(&close);
    let server = Http2Peer::start("localhost", move |mut call: Http2Call| {
        let closing = Arc::clone(&closing);
        async move {
            let mut stream = call.begin();
            send_body(&mut stream, "half".into(), false).await;
            closing.notified().await;
            call.vanish().await;
        }
    })
    .await;
    let mut body = server.fetcher(&[]).send(get(server.url("/"))).await.unwrap().body;
    assert_eq!(body.next().await.unwrap().unwrap(), "half");
    close.notify_one();
    let expected =
        "failed to read http/request response body: the connection was closed before the answer was complete";
    assert_eq!(failure(body.next().await), (FailureKind::Protocol, expected.to_owned()));
}
