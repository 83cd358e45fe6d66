//! Redirects of `http/request`: which of them the exec-server follows, with which method, and which headers it sends
//! to another origin (scheme, host and port).

use testkit::{HttpPeer, base64, http_ok, json};

use crate::support::{fetch, fetch_error, server, server_with};

/// A response that redirects to `location`.
fn redirect_to(status: u16, location: &str) -> String {
    format!("HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 4\r\n\r\ngone")
}

#[tokio::test]
async fn a_redirect_is_followed_or_returned_as_asked() {
    let (server, peer) = (
        server().await,
        HttpPeer::closing(|request| {
            if request.starts_with("GET /old") { redirect_to(302, "/new") } else { http_ok("arrived") }
        })
        .await,
    );
    let mut client = server.client().await;
    let (status, _, body) = fetch(&mut client, peer.url("/old"), json!({})).await;
    assert_eq!((status, body.as_str()), (200, "arrived"));
    let (status, _, body) = fetch(&mut client, peer.url("/old"), json!({"redirectPolicy": "follow"})).await;
    assert_eq!((status, body.as_str()), (200, "arrived"));
    let (status, headers, body) = fetch(&mut client, peer.url("/old"), json!({"redirectPolicy": "stop"})).await;
    assert_eq!((status, body.as_str()), (302, "gone"));
    assert!(headers.as_array().unwrap().contains(&json!({"name": "location", "value": "/new"})), "{headers}");
}

#[tokio::test]
async fn each_redirect_status_keeps_or_changes_the_method_as_http_says() {
    let (server, peer) = (
        server().await,
        HttpPeer::closing(|request| {
            let path = request.split(' ').nth(1).unwrap();
            path.strip_prefix("/from/")
                .map_or_else(|| http_ok("done"), |status| redirect_to(status.parse().unwrap(), "/to"))
        })
        .await,
    );
    let mut client = server.client().await;
    for (status, method) in [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")] {
        let changes = json!({"method": "POST", "bodyBase64": base64("body")});
        fetch(&mut client, peer.url(&format!("/from/{status}")), changes).await;
        let last = peer.requests().pop().unwrap();
        assert!(last.starts_with(&format!("{method} /to ")), "{status}: {last}");
        assert_eq!(last.ends_with("body"), method == "POST", "{status}: {last}");
    }
    fetch(&mut client, peer.url("/from/303"), json!({"method": "HEAD"})).await;
    assert!(peer.requests().pop().unwrap().starts_with("HEAD /to "));
}

#[tokio::test]
async fn secret_headers_are_not_sent_to_another_origin() {
    let other = HttpPeer::closing(|_| http_ok("")).await;
    let target = other.url("/");
    let (server, peer) = (server().await, HttpPeer::closing(move |_| redirect_to(307, &target)).await);
    let mut client = server.client().await;
    let headers: Vec<_> = ["Authorization", "Cookie", "Proxy-Authorization", "X-Kept"]
        .map(|name| json!({"name": name, "value": "value"}))
        .into();
    fetch(&mut client, peer.url("/"), json!({"headers": headers})).await;
    let arrived = other.requests()[0].to_ascii_lowercase();
    assert!(arrived.contains("\r\nx-kept: value\r\n"), "{arrived}");
    assert!(!arrived.contains("authorization:") && !arrived.contains("cookie:"), "{arrived}");
}

#[tokio::test]
async fn header_values_from_the_environment_are_not_sent_to_another_origin() {
    let other = HttpPeer::closing(|_| http_ok("")).await;
    let target = other.url("/");
    let (server, peer) = (
        server_with(&[], &[("MY_TOKEN", "s3cret")]).await,
        HttpPeer::closing(move |_| redirect_to(307, &target)).await,
    );
    let mut client = server.client().await;
    let headers = json!([
        {"name": "X-Api-Key", "value": "", "valueEnvVar": "MY_TOKEN"},
        {"name": "X-Kept", "value": "value"},
    ]);
    fetch(&mut client, peer.url("/"), json!({"headers": headers})).await;
    assert!(peer.requests()[0].contains("s3cret"));
    let arrived = other.requests()[0].to_ascii_lowercase();
    assert!(arrived.contains("\r\nx-kept: value\r\n"), "{arrived}");
    assert!(!arrived.contains("s3cret") && !arrived.contains("x-api-key"), "{arrived}");
}

#[tokio::test]
async fn redirect_loops_and_other_schemes_are_errors() {
    let (server, peer) = (
        server().await,
        HttpPeer::closing(|request| {
            if request.starts_with("GET /circle") {
                redirect_to(302, "/circle")
            } else {
                redirect_to(302, "ftp://elsewhere/")
            }
        })
        .await,
    );
    let mut client = server.client().await;
    for path in ["/circle", "/strange"] {
        let (code, message) = fetch_error(&mut client, peer.url(path), json!({})).await;
        assert_eq!(code, -32603);
        assert!(message.starts_with("http/request failed: "), "{message}");
    }
    // The server follows at most ten redirects, so it makes eleven requests.
    assert_eq!(peer.requests().iter().filter(|request| request.starts_with("GET /circle")).count(), 11);
}
