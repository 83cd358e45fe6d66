//! Plain HTTP requests with an absolute URL.

use testkit::{HttpPeer, PeerReply, http_ok};
use tokio::io::AsyncWriteExt as _;

use crate::support::{Setup, TestProxy, read_head};

#[tokio::test]
async fn a_request_is_sent_on_in_the_form_that_a_server_expects() {
    let peer = HttpPeer::closing(|_| http_ok("hello")).await;
    let proxy = TestProxy::start(Setup::default()).await;
    let url = peer.url("/path?query");
    let answer = proxy
        .request(
            &format!("GET {url}"),
            "Accept: a/b\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: keep-alive\r\nX-Gone: 1\r\nConnection: X-Gone\r\nTE: trailers\r\nUpgrade: h2c\r\n",
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer}");
    let [request] = peer.requests().try_into().unwrap();
    assert!(request.starts_with("GET /path?query HTTP/1.1\r\n"), "{request}");
    let lower = request.to_lowercase();
    assert!(lower.contains("\r\naccept: a/b\r\n"), "{request}");
    assert!(lower.contains(&format!("\r\nhost: 127.0.0.1:{}\r\n", peer.port)), "{request}");
    for gone in ["proxy-", "secret", "c2vjcmv0", "x-gone", "te:", "upgrade", "proxy.test"] {
        assert!(!lower.contains(gone), "{gone}: {request}");
    }
}

#[tokio::test]
async fn a_connection_carries_several_requests_and_each_is_decided() {
    let peer = HttpPeer::closing(|request| http_ok(request.lines().next().unwrap())).await;
    let proxy = TestProxy::start(Setup::default()).await;
    let mut stream = proxy.connect().await;
    for path in ["/one", "/two"] {
        let request = format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody", peer.url(path));
        let answer = testkit::http_exchange(&mut stream, &request).await;
        assert_eq!((answer.status, answer.body), (200, format!("POST {path} HTTP/1.1")));
    }
    assert_eq!(proxy.decisions().len(), 2);
    assert!(peer.requests().iter().all(|request| request.ends_with("\r\n\r\nbody")), "{:?}", peer.requests());
}

#[tokio::test]
async fn a_chunked_body_arrives_whole() {
    let peer = HttpPeer::with_handler(|_, mut stream| async move {
        let mut seen = Vec::new();
        while !seen.ends_with(b"0\r\n\r\n") {
            seen.push(tokio::io::AsyncReadExt::read_u8(&mut stream).await.unwrap());
        }
        let text = String::from_utf8(seen).unwrap();
        let sum: usize = text.matches('x').count();
        stream.write_all(http_ok(&sum.to_string()).as_bytes()).await.unwrap();
    })
    .await;
    let proxy = TestProxy::start(Setup::default()).await;
    let piece = format!("3e8\r\n{}\r\n", "x".repeat(1000));
    let body = format!("{}0\r\n\r\n", piece.repeat(100));
    let head = format!("POST {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", peer.url("/"));
    let answer = proxy.exchange(format!("{head}Transfer-Encoding: chunked\r\n\r\n{body}")).await;
    assert!(answer.ends_with("\r\n\r\n100000"), "{answer}");
}

#[tokio::test]
async fn a_large_response_without_a_length_arrives_whole() {
    let peer = HttpPeer::answering(|_| {
        PeerReply::Close([b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b'y'; 3 << 20]].concat())
    })
    .await;
    let proxy = TestProxy::start(Setup::default()).await;
    let answer = proxy.request(&format!("GET {}", peer.url("/")), "").await;
    assert_eq!(answer.matches('y').count(), 3 << 20);
}

#[tokio::test]
async fn requests_that_are_not_for_a_proxy_are_refused() {
    let proxy = TestProxy::start(Setup::default()).await;
    for line in [
        "GET /path",
        "GET https://a.test/",
        "GET ftp://a.test/",
        "OPTIONS *",
        "GET http://a.test:0/",
        "GET http://a.test:/",
        "CONNECT a.test",
        "CONNECT a.test:0",
        "GET http://a..b/",
        "ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJ http://a.test/",
    ] {
        let answer = proxy.request(line, "").await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{line}: {answer}");
    }
    assert_eq!(proxy.decisions(), []);
    assert_eq!(proxy.names.asked(), [""; 0]);
}

#[tokio::test]
async fn a_target_that_does_not_answer_with_http_becomes_502() {
    for reply in
        ["SSH-2.0-x\r\n\r\n\r\n", "", "HTTP/1.1 101 Switching\r\n\r\n", "HTTP/1.1 200 OK\r\nBad Name: x\r\n\r\n"]
    {
        let peer = HttpPeer::answering(move |_| PeerReply::Close(reply.into())).await;
        let proxy = TestProxy::start(Setup::default()).await;
        let answer = proxy.request(&format!("GET {}", peer.url("/")), "").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{reply}: {answer}");
    }
}

#[tokio::test]
async fn a_target_that_cannot_be_reached_becomes_502() {
    let proxy = TestProxy::start(Setup::default()).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let answer = proxy.request(&format!("GET http://{free}/"), "").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("connection refused"), "{answer}");
    let answer = proxy.request("GET http://unknown.test/", "").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("cannot be resolved"), "{answer}");
}

#[tokio::test]
async fn a_second_request_cannot_hide_in_the_body_of_the_first() {
    let peer = HttpPeer::closing(|_| http_ok("done")).await;
    let proxy = TestProxy::start(Setup::default()).await;
    let head = format!("GET {} HTTP/1.1\r\nHost: x\r\n", peer.url("/one"));
    let hidden = format!("GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", peer.url("/two"));
    // With both lengths, a proxy and a server could disagree about the end of the body.
    let both =
        format!("{head}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}", hidden.len());
    let different = format!("{head}Content-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len());
    for request in [both, different] {
        let before = (proxy.decisions().len(), peer.requests().len());
        assert_eq!(before.0, 0);
        proxy.exchange(&request).await;
        let decided = proxy.decisions().len();
        assert_eq!(peer.requests().len() - before.1, decided, "the target got a request that nobody decided");
    }
}

#[tokio::test]
async fn the_host_header_is_that_of_the_url() {
    let peer = HttpPeer::closing(|_| http_ok("")).await;
    let proxy = TestProxy::start(Setup::default()).await;
    let mut stream = proxy.connect().await;
    let request = format!("GET {} HTTP/1.1\r\nHost: other.test\r\n\r\n", peer.url("/"));
    stream.write_all(request.as_bytes()).await.unwrap();
    read_head(&mut stream).await;
    assert!(!peer.requests()[0].contains("other.test"), "{:?}", peer.requests());
}
