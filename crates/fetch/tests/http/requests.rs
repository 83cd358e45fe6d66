//! Requests as servers get them, and responses as callers get them.

use crate::support::{failure, fetcher, get, header, load, ok, reply, request};
use fetch::{FailureKind, FetchError, FetchRequest, Header};
use testkit::HttpPeer;

#[tokio::test]
async fn request_headers_are_grouped_by_name_and_followed_by_accept_and_host_and_the_real_length() {
    let server = HttpPeer::answering(|_| ok("done")).await;
    let fetcher = fetcher(&[("TOKEN", "t0ken")]);
    let headers = vec![
        header("X-B", "1"),
        header("X-A", "2"),
        header("X-B", "3"),
        Header { name: "Authorization".into(), value: "Bearer ".into(), value_env_var: Some("TOKEN".into()) },
        header("Content-Length", "999"),
        header("Transfer-Encoding", "chunked"),
    ];
    let request =
        FetchRequest { headers, body: Some("hello".into()), ..request("PATCH", server.url("/a%20b?q=1#fragment")) };
    assert_eq!(load(&fetcher, request).await.unwrap(), (200, "done".to_owned()));
    let expected = format!(
        "PATCH /a%20b?q=1 HTTP/1.1\r\nx-b: 1\r\nx-b: 3\r\nx-a: 2\r\nauthorization: Bearer t0ken\r\naccept: */*\r\nhost: 127.0.0.1:{}\r\ncontent-length: 5\r\n\r\nhello",
        server.port
    );
    assert_eq!(server.requests(), [expected]);
}

#[tokio::test]
async fn a_request_without_a_body_has_no_content_length_whatever_its_method_is() {
    let server = HttpPeer::answering(|_| ok("")).await;
    let fetcher = fetcher(&[]);
    for (method, body) in [("GET", None), ("POST", None), ("PUT", Some("".into())), ("custom", None)] {
        load(&fetcher, FetchRequest { body, ..request(method, server.url("/")) }).await.unwrap();
    }
    let expected = |method| format!("{method} / HTTP/1.1\r\naccept: */*\r\nhost: 127.0.0.1:{}\r\n\r\n", server.port);
    assert_eq!(server.requests(), ["GET", "POST", "PUT", "custom"].map(expected));
}

#[tokio::test]
async fn user_and_password_in_the_url_are_not_sent_and_special_characters_are_encoded() {
    let server = HttpPeer::answering(|_| ok("")).await;
    load(&fetcher(&[]), get(format!("http://user:secret@127.0.0.1:{}/a b?q=\"", server.port))).await.unwrap();
    let expected = format!("GET /a%20b?q=%22 HTTP/1.1\r\naccept: */*\r\nhost: 127.0.0.1:{}\r\n\r\n", server.port);
    assert_eq!(server.requests(), [expected]);
}

#[tokio::test]
async fn host_and_accept_headers_of_the_caller_replace_the_default_ones() {
    let server = HttpPeer::answering(|_| ok("")).await;
    let headers = vec![header("Host", "virtual.test"), header("X-A", "1"), header("Accept", "text/plain")];
    load(&fetcher(&[]), FetchRequest { headers, ..get(server.url("/")) }).await.unwrap();
    assert_eq!(server.requests(), ["GET / HTTP/1.1\r\nhost: virtual.test\r\nx-a: 1\r\naccept: text/plain\r\n\r\n"]);
}

#[tokio::test]
async fn response_headers_are_in_lower_case_and_grouped_by_name_and_left_out_if_not_visible_ascii() {
    let answer = b"HTTP/1.1 418 Teapot\r\nSet-Cookie: a\r\nX-One: 1\r\nX-Binary: \xff\r\nX-Umlaut: \xc3\xa4\r\nset-cookie: b\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nraw";
    let server = HttpPeer::answering(|_| reply(*answer)).await;
    let response = fetcher(&[]).send(get(server.url("/"))).await.unwrap();
    let headers: Vec<_> = response.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let expected = ["set-cookie: a", "set-cookie: b", "x-one: 1", "content-encoding: gzip", "content-length: 3"]
        .map(str::to_owned);
    assert_eq!((response.status, headers), (418, expected.to_vec()));
    // The body is not decompressed.
    assert_eq!(response.body.collect(3).await.unwrap(), "raw");
}

#[tokio::test]
async fn cookies_of_other_hosts_than_chatgpt_are_not_kept() {
    let server = HttpPeer::answering(|_| reply("HTTP/1.1 204 No\r\nSet-Cookie: a=b\r\n\r\n")).await;
    let fetcher = fetcher(&[]);
    for _ in 0..2 {
        assert_eq!(load(&fetcher, get(server.url("/"))).await.unwrap(), (204, String::new()));
    }
    assert!(!server.requests()[1].contains("cookie"));
}

#[tokio::test]
async fn a_request_with_a_refused_header_opens_no_connection() {
    let server = HttpPeer::answering(|_| ok("")).await;
    let fetcher = fetcher(&[("EMPTY", ""), ("OPENAI_API_KEY", "sk"), ("BROKEN", "a\nb")]);
    for (variable, text) in [
        ("MISSING", "http/request header X-Key requires executor environment variable MISSING"),
        ("EMPTY", "http/request header X-Key requires a non-empty executor environment variable EMPTY"),
        ("openai_API_key", "http/request header X-Key cannot use executor environment variable openai_API_key"),
        ("BROKEN", "http/request header value is invalid for X-Key: failed to parse header value"),
    ] {
        let refused = Header { name: "X-Key".into(), value: "p".into(), value_env_var: Some(variable.into()) };
        let request = FetchRequest { headers: vec![header("X-Fine", "1"), refused], ..get(server.url("/")) };
        assert_eq!(fetcher.send(request).await.unwrap_err(), FetchError::Invalid(text.into()));
    }
    assert_eq!(server.connections_accepted(), 0);
}

#[tokio::test]
async fn an_invalid_request_has_another_error_than_a_failed_one() {
    let fetcher = fetcher(&[]);
    let long = format!("http://127.0.0.1/{}", "x".repeat(70_000));
    for (method, url, text) in [
        ("G\nT", "http://h/", "http/request method is invalid: invalid HTTP method"),
        ("GET", "ftp://h/", "http/request only supports http and https URLs, got ftp"),
        ("GET", "h", "http/request url is invalid: relative URL without a base"),
        ("GET", long.as_str(), "http/request url is invalid: uri too long"),
    ] {
        assert_eq!(fetcher.send(request(method, url)).await.unwrap_err(), FetchError::Invalid(text.into()));
    }
    let (kind, _) = failure(fetcher.send(get("http://127.0.0.1:1/")).await);
    assert_eq!(kind, FailureKind::Connect);
}

#[tokio::test]
async fn informational_responses_are_skipped() {
    let server = HttpPeer::answering(|_| {
        reply("HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    })
    .await;
    assert_eq!(load(&fetcher(&[]), get(server.url("/"))).await.unwrap(), (200, "x".into()));
}

#[tokio::test]
async fn the_response_to_head_has_no_body() {
    let server = HttpPeer::answering(|_| reply("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")).await;
    let fetcher = fetcher(&[]);
    for _ in 0..2 {
        let request = FetchRequest { max_body_bytes: Some(10), ..request("HEAD", server.url("/")) };
        assert_eq!(load(&fetcher, request).await.unwrap(), (200, String::new()));
    }
    assert_eq!(server.connections_accepted(), 1);
}
