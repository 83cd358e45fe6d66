//! `http/request` with `streamResponse: false`: the server collects the whole body and returns it in its answer. The
//! peer is the HTTP server to which the request goes.

use testkit::{HttpPeer, base64, http_ok, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{fetch, fetch_error, server, server_with};

#[tokio::test]
async fn method_path_headers_and_body_are_sent_and_returned() {
    let (server, peer) = (server().await, HttpPeer::closing(|_| {
        "HTTP/1.1 418 Odd\r\nX-One: 1\r\nSet-Cookie: a\r\nX-Two: 2\r\nSet-Cookie: b\r\nContent-Length: 3\r\n\r\nyes".into()
    }).await);
    let mut client = server.client().await;
    let headers =
        json!([{"name": "X-A", "value": "1"}, {"name": "x-b", "value": "2"}, {"name": "X-A", "value": "3"}]);
    let changes = json!({"method": "PATCH", "headers": headers, "bodyBase64": base64("body")});
    let (status, headers, body) = fetch(&mut client, peer.url("/path?q=1"), changes).await;
    assert_eq!((status, body.as_str()), (418, "yes"));
    let pairs: Vec<_> = headers.as_array().unwrap().iter().map(|h| (&h["name"], &h["value"])).collect();
    let cookies: Vec<_> = pairs.iter().filter(|(name, _)| *name == "set-cookie").map(|(_, value)| *value).collect();
    assert_eq!(cookies, ["a", "b"]);
    assert!(pairs.contains(&(&json!("x-one"), &json!("1"))) && pairs.contains(&(&json!("x-two"), &json!("2"))));
    let requests = peer.requests();
    let [request] = &*requests else { panic!("{requests:?}") };
    assert!(request.starts_with("PATCH /path?q=1 HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\nbody"), "{request}");
    let lower = request.to_ascii_lowercase();
    let values: Vec<_> = lower.lines().filter_map(|line| line.strip_prefix("x-a: ")).collect();
    assert_eq!(values, ["1", "3"]);
    assert!(!lower.contains("user-agent"), "{request}");
}

/// The examples of the published protocol: whole answers of the server, and the bytes that it sends to the peer.
#[tokio::test]
async fn the_published_examples_hold() {
    let server = server_with(&[], &[("TOK", "abc")]).await;
    let peer = HttpPeer::closing(|_| {
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Two: a\r\nX-One: 1\r\nX-Two: b\r\nContent-Length: 2\r\n\r\nhi".into()
    })
    .await;
    let mut client = server.client().await;
    let plain = json!({"method": "GET", "url": peer.url("/a?q=1#frag"), "requestId": "r1"});
    let headers = json!([
        {"name": "X-B", "value": "1"}, {"name": "Accept", "value": "text/plain"},
        {"name": "Authorization", "value": "Bearer ", "valueEnvVar": "TOK"}, {"name": "x-b", "value": "2"}
    ]);
    let with_headers = json!({"method": "GET", "url": peer.url("/b"), "requestId": "r2", "headers": headers});
    let expected = json!({"status": 200, "bodyBase64": "aGk=", "headers": [
        {"name": "connection", "value": "close"},
        {"name": "content-type", "value": "text/plain"}, {"name": "x-two", "value": "a"}, {"name": "x-two", "value": "b"},
        {"name": "x-one", "value": "1"}, {"name": "content-length", "value": "2"}
    ]});
    for params in [plain, with_headers] {
        assert_eq!(client.call("http/request", params).await, expected);
    }
    // A request without a body has no `content-length`. The user in the URL is not sent. A method in lower case
    // stays as it is.
    let host = peer.url("").replace("http://", "");
    for method in ["POST", "PUT", "custom"] {
        let url = format!("http://user:secret@{host}/c");
        client.call("http/request", json!({"method": method, "url": url, "requestId": "r3"})).await;
    }
    let request_without_body = |method| format!("{method} /c HTTP/1.1\r\naccept: */*\r\nhost: {host}\r\n\r\n");
    assert_eq!(
        peer.requests(),
        [
            format!("GET /a?q=1 HTTP/1.1\r\naccept: */*\r\nhost: {host}\r\n\r\n"),
            format!(
                "GET /b HTTP/1.1\r\nx-b: 1\r\nx-b: 2\r\naccept: text/plain\r\nauthorization: Bearer abc\r\nhost: {host}\r\n\r\n"
            ),
            request_without_body("POST"),
            request_without_body("PUT"),
            request_without_body("custom"),
        ]
    );
    let valid = json!({"method": "GET", "url": "http://127.0.0.1/", "requestId": "r4"});
    for (member, value, message) in [
        ("redirectPolicy", "none", "unknown variant `none`, expected `follow` or `stop`"),
        ("bodyBase64", "!", "Invalid symbol 33, offset 0."),
        ("bodyBase64", "aGk", "Invalid padding"),
    ] {
        let mut params = valid.clone();
        params[member] = json!(value);
        let error = client.call_error("http/request", params).await;
        assert_eq!(error, json!({"code": -32602, "message": message}));
    }
}

#[tokio::test]
async fn a_fragment_is_not_sent_and_compressed_bodies_are_left_as_they_are() {
    let (server, peer) = (
        server().await,
        HttpPeer::closing(|_| "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nnotgz".into())
            .await,
    );
    let mut client = server.client().await;
    let (_, _, body) = fetch(&mut client, peer.url("/path#fragment"), json!({})).await;
    assert_eq!(body, "notgz");
    let requests = peer.requests();
    assert!(requests[0].starts_with("GET /path HTTP/1.1\r\n") && !requests[0].contains("fragment"), "{requests:?}");
}

#[tokio::test]
async fn response_headers_with_values_outside_of_visible_ascii_are_dropped() {
    let (server, peer) = (
        server().await,
        HttpPeer::closing(|_| {
            "HTTP/1.1 200 OK\r\nX-Odd: caf\u{e9}\r\nX-Even: plain\r\nContent-Length: 0\r\n\r\n".into()
        })
        .await,
    );
    let mut client = server.client().await;
    let (_, headers, _) = fetch(&mut client, peer.url("/"), json!({})).await;
    let names: Vec<_> = headers.as_array().unwrap().iter().map(|header| &header["name"]).collect();
    assert!(names.contains(&&json!("x-even")) && !names.contains(&&json!("x-odd")), "{names:?}");
}

#[tokio::test]
async fn invalid_requests_are_refused_before_anything_is_sent() {
    let (server, peer) = (server().await, HttpPeer::closing(|_| http_ok("")).await);
    let mut client = server.client().await;
    let url = peer.url("/");
    for (url, changes, start) in [
        (url.as_str(), json!({"method": "a b"}), "http/request method is invalid: "),
        ("nonsense", json!({}), "http/request url is invalid: "),
        ("ftp://x/", json!({}), "http/request only supports http and https URLs, got ftp"),
        (&url, json!({"headers": [{"name": "a b", "value": ""}]}), "http/request header name is invalid: "),
        (&url, json!({"headers": [{"name": "a", "value": "x\ny"}]}), "http/request header value is invalid for a: "),
        (&url, json!({"bodyBase64": "!"}), ""),
    ] {
        let (code, message) = fetch_error(&mut client, url, changes).await;
        assert_eq!(code, -32602, "{message}");
        assert!(message.starts_with(start), "{message}");
    }
    let error = client.call_error("http/request", json!({"method": "GET", "url": url})).await;
    assert_eq!(error["code"], -32602, "requestId is required: {error}");
    assert_eq!(peer.connections_accepted(), 0);
}

#[tokio::test]
async fn a_body_larger_than_allowed_is_an_error() {
    let (server, peer) = (
        server().await,
        HttpPeer::closing(|request| {
            if request.starts_with("GET /chunked") {
                return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n5\r\n67890\r\n0\r\n\r\n"
                    .into();
            }
            http_ok("1234567890")
        })
        .await,
    );
    let mut client = server.client().await;
    for path in ["/", "/chunked"] {
        let (status, ..) = fetch(&mut client, peer.url(path), json!({"maxBodyBytes": 10})).await;
        assert_eq!(status, 200);
        let (code, message) = fetch_error(&mut client, peer.url(path), json!({"maxBodyBytes": 9})).await;
        let expected = "failed to read http/request response body: it is larger than 9 bytes";
        assert_eq!((code, message.as_str()), (-32603, expected));
    }
}

#[tokio::test]
async fn a_body_that_does_not_fit_a_message_is_an_error_and_the_connection_stays_open() {
    let (server, peer) = (
        server_with(&["--max-message-bytes", "1MiB"], &[]).await,
        HttpPeer::closing(|_| http_ok(&"x".repeat(2 << 20))).await,
    );
    let mut client = server.client().await;
    let (code, message) = fetch_error(&mut client, peer.url("/"), json!({})).await;
    assert_eq!(code, -32603);
    assert!(message.contains("larger than"), "{message}");
    client.call("environment/status", json!({})).await;
}

#[tokio::test]
async fn the_memory_for_collected_answers_is_limited() {
    let server = server_with(&["--max-buffered-http", "100KiB"], &[]).await;
    let peer = HttpPeer::closing(|request| {
        http_ok(&"x".repeat(if request.starts_with("GET /large") { 2 << 20 } else { 9 }))
    })
    .await;
    let mut client = server.client().await;
    let limit_message = "HTTP answers that are collected exceed the limit of one session: 25600 bytes for a session and 102400 in all (--max-buffered-http); send the request with streamResponse";
    for _ in 0..3 {
        let (code, message) = fetch_error(&mut client, peer.url("/large"), json!({})).await;
        assert_eq!((code, message.as_str()), (-32603, limit_message));
        // Neither the refused answer nor answers that were sent count any longer.
        assert_eq!(fetch(&mut client, peer.url("/small"), json!({})).await.2, "x".repeat(9));
    }
}

#[tokio::test]
async fn one_session_may_use_a_quarter_of_the_memory_for_collected_answers() {
    let server = server_with(&["--max-buffered-http", "32MiB"], &[]).await;
    let peer = HttpPeer::with_handler(|request, mut stream| async move {
        let is_held = request.starts_with("GET /held");
        let body = "x".repeat(if is_held { 3 << 20 } else { 4 << 20 });
        let _ignored = stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{body}").as_bytes()).await;
        if is_held {
            // The body does not end while the connection is open.
            let _ignored = stream.read_u8().await;
        }
    })
    .await;
    let (mut greedy, mut other) = (server.client().await, server.client().await);
    for number in 0..12 {
        let params = json!({"method": "GET", "url": peer.url("/held"), "requestId": number.to_string()});
        greedy.send("http/request", params).await;
    }
    // A session may use 8 MiB, so at most two of the bodies of 3 MiB fit.
    for _ in 0..10 {
        let refused = greedy.next().await;
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("exceed the limit of one session: 8388608 bytes"), "{message}");
    }
    assert_eq!(fetch(&mut other, peer.url("/"), json!({})).await.2.len(), 4 << 20);
}

#[tokio::test]
async fn buffered_requests_may_share_an_id_and_do_not_wait_for_each_other() {
    let (server, peer) = (
        server().await,
        HttpPeer::with_handler(|request, mut stream| async move {
            use tokio::io::AsyncWriteExt as _;
            if request.starts_with("GET /never") {
                return std::future::pending().await;
            }
            let _ignored = stream.write_all(http_ok("now").as_bytes()).await;
        })
        .await,
    );
    let mut client = server.client().await;
    // Both requests have the id `r`.
    client.send("http/request", crate::support::request(peer.url("/never"), json!({}))).await;
    let (_, _, body) = fetch(&mut client, peer.url("/now"), json!({})).await;
    assert_eq!(body, "now");
}

#[tokio::test]
async fn the_number_of_requests_under_way_is_limited_for_each_connection() {
    let peer = HttpPeer::with_handler(|_, stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let server = server_with(&["--max-http-requests", "2"], &[]).await;
    let mut client = server.client().await;
    for id in ["a", "b"] {
        client.send("http/request", crate::support::request(peer.url("/"), json!({"requestId": id}))).await;
    }
    let (code, message) = fetch_error(&mut client, peer.url("/"), json!({"requestId": "c"})).await;
    let expected = "connection has reached its limit of 2 HTTP requests under way (--max-http-requests)";
    assert_eq!((code, message.as_str()), (-32600, expected));
    let (code, message) = fetch_error(&mut client, peer.url("/"), json!({"requestId": "a"})).await;
    assert_eq!((code, message.as_str()), (-32600, expected), "the limit is checked before the id");
    let mut other = server.client().await;
    for _ in 0..2 {
        other.send("http/request", crate::support::request(peer.url("/"), json!({}))).await;
    }
    let (code, _) = fetch_error(&mut other, peer.url("/"), json!({})).await;
    assert_eq!(code, -32600, "requests with the same id count too");
    testkit::eventually("requests of other connections do not count", || {
        (peer.connections_accepted() == 4).then_some(())
    })
    .await;
}
