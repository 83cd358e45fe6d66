//! Plain HTTP requests with an absolute URL.

use testkit::{HttpPeer, PeerReply, http_ok};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{PATIENCE, Setup, TestProxy, read_head};

#[tokio::test]
async fn a_request_is_forwarded_in_the_form_that_a_server_expects() {
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
async fn a_url_without_a_path_means_the_root() {
    let peer = HttpPeer::closing(|request| http_ok(request.lines().next().unwrap())).await;
    let proxy = TestProxy::start(Setup::default()).await;
    for (rest, expected) in
        [("", "/"), ("#x", "/"), ("?q=1", "/?q=1"), ("?q=1#x", "/?q=1"), ("?", "/?"), ("/#x", "/"), ("/p#x", "/p")]
    {
        let answer = proxy.request(&format!("GET {}", peer.url(rest)), "").await;
        assert!(answer.ends_with(&format!("\r\n\r\nGET {expected} HTTP/1.1")), "{rest}: {answer}");
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
async fn informational_responses_before_the_response_are_skipped() {
    let peer = HttpPeer::closing(|_| {
        let early = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        early.repeat(100) + &http_ok("hello")
    })
    .await;
    let proxy = TestProxy::start(Setup::default()).await;
    let answer = proxy.request(&format!("GET {}", peer.url("/")), "").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer}");
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
    for method in ["POST", "GET", "DELETE"] {
        let head = format!("{method} {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", peer.url("/"));
        let answer = proxy.exchange(format!("{head}Transfer-Encoding: chunked\r\n\r\n{body}")).await;
        assert!(answer.ends_with("\r\n\r\n100000"), "{method}: {answer}");
    }
}

#[tokio::test]
async fn a_broken_chunk_in_the_body_of_a_request_is_the_fault_of_the_program() {
    let peer = HttpPeer::with_handler(|_, mut stream| async move {
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await.unwrap();
    })
    .await;
    let proxy = TestProxy::start(Setup::default()).await;
    for body in ["zz\r\nhello\r\n", "5\r\nhello\r\nzz\r\n", "5\r\nhello!!\r\n"] {
        let head = format!("POST {} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", peer.url("/"));
        let answer = proxy.exchange(head + body).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{body:?}: {answer}");
        assert!(answer.ends_with("the body of the request is not valid\n"), "{body:?}: {answer}");
    }
}

#[tokio::test]
async fn other_transfer_codings_than_chunked_are_refused() {
    let chunks = "5\r\nhello\r\n0\r\n\r\n";
    let target_gets_no_request = HttpPeer::closing(|_| http_ok("")).await;
    let proxy = TestProxy::start(Setup::default()).await;
    for coding in ["gzip, chunked", "gzip,chunked", "gzip\r\nTransfer-Encoding: chunked", "chunked, chunked"] {
        let head = format!("POST {} HTTP/1.1\r\nHost: x\r\n", target_gets_no_request.url("/"));
        let request = format!("{head}Connection: close\r\nTransfer-Encoding: {coding}\r\n\r\n{chunks}");
        let answer = proxy.exchange(request).await;
        assert!(answer.starts_with("HTTP/1.1 501 "), "{coding}: {answer}");
    }
    assert_eq!(target_gets_no_request.connections_accepted(), 0);
    for coding in ["gzip", "gzip, chunked", "gzip\r\nTransfer-Encoding: chunked", "identity", "chunked, chunked"] {
        let peer =
            HttpPeer::closing(move |_| format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n{chunks}"))
                .await;
        let answer = proxy.request(&format!("GET {}", peer.url("/")), "").await;
        assert!(answer.starts_with("HTTP/1.1 502 "), "{coding}: {answer}");
    }
    for coding in ["chunked", "Chunked ", "\tCHUNKED"] {
        let peer = HttpPeer::with_handler(move |request, mut stream| async move {
            assert!(request.to_lowercase().contains("\r\ntransfer-encoding: chunked\r\n"), "{request}");
            stream.read_exact(&mut [0; 15]).await.unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n");
            stream.write_all((head + chunks).as_bytes()).await.unwrap();
        })
        .await;
        let head = format!("POST {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", peer.url("/"));
        let answer = proxy.exchange(format!("{head}Transfer-Encoding: {coding}\r\n\r\n{chunks}")).await;
        assert!(answer.ends_with(chunks), "{coding}: {answer}");
    }
}

const TINY_CHUNKS: usize = 4000;

/// A chunked body with as many chunks of one byte.
fn tiny_chunks() -> String {
    "1\r\nx\r\n".repeat(TINY_CHUNKS) + "0\r\n\r\n"
}

/// The number of chunks with bytes. All bytes must be there.
fn count_chunks(body: &str) -> usize {
    let (sizes, contents): (Vec<_>, Vec<_>) = body.lines().partition(|line| !line.starts_with('x'));
    assert_eq!(contents.concat().len(), TINY_CHUNKS);
    assert_eq!(sizes.iter().rfind(|line| !line.is_empty()), Some(&"0"), "{sizes:?}");
    contents.len()
}

#[tokio::test]
async fn tiny_chunks_that_arrive_together_are_sent_together() {
    let (note_body, mut bodies) = tokio::sync::mpsc::unbounded_channel();
    let peer = HttpPeer::with_handler(move |_, mut stream| {
        let note_body = note_body.clone();
        async move {
            let body = read_chunked(&mut stream).await;
            note_body.send(body).unwrap();
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
            stream.write_all((head + &tiny_chunks()).as_bytes()).await.unwrap();
        }
    })
    .await;
    let proxy = TestProxy::start(Setup::default()).await;
    let head = format!("POST {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n", peer.url("/"));
    let answer = proxy.exchange(format!("{head}Transfer-Encoding: chunked\r\n\r\n{}", tiny_chunks())).await;
    let sent = count_chunks(&bodies.recv().await.unwrap());
    assert!(sent < TINY_CHUNKS / 100, "the target got {sent} chunks");
    let received = count_chunks(answer.split_once("\r\n\r\n").unwrap().1);
    assert!(received < TINY_CHUNKS / 100, "the program got {received} chunks");
}

/// Reads a chunked body to its end.
async fn read_chunked(stream: &mut tokio::net::TcpStream) -> String {
    let mut body = Vec::new();
    while !body.ends_with(b"0\r\n\r\n") {
        body.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(body).unwrap()
}

#[tokio::test]
async fn a_chunk_does_not_wait_for_the_next_one() {
    let peer = HttpPeer::with_handler(|_, stream| async move {
        let (mut from, mut to) = stream.into_split();
        to.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        let _gone = tokio::io::copy(&mut from, &mut to).await;
    })
    .await;
    let proxy = TestProxy::start(Setup::default()).await;
    let mut stream = proxy.connect().await;
    let head = format!("POST {} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", peer.url("/"));
    stream.write_all(head.as_bytes()).await.unwrap();
    read_head(&mut stream).await;
    for _ in 0..10 {
        stream.write_all(b"1\r\nx\r\n").await.unwrap();
        let mut echo = [0; 6];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut echo)).await.expect("the chunk is held back").unwrap();
        assert_eq!(&echo, b"1\r\nx\r\n");
    }
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
async fn the_length_of_a_chunked_response_that_also_names_a_length_is_that_of_its_chunks() {
    let peer = HttpPeer::closing(|_| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
        format!("{head}a\r\n0123456789\r\n0\r\n\r\n")
    })
    .await;
    let proxy = TestProxy::start(Setup::default()).await;
    let answer = proxy.request(&format!("GET {}", peer.url("/")), "").await;
    assert!(answer.ends_with("\r\n\r\nA\r\n0123456789\r\n0\r\n\r\n"), "{answer}");
    assert!(!answer.to_lowercase().contains("content-length"), "{answer}");
}

#[tokio::test]
async fn malformed_proxy_requests_are_refused() {
    let proxy = TestProxy::start(Setup::default()).await;
    for line in [
        "GET /path",
        "GET https://a.test/",
        "GET ftp://a.test/",
        "OPTIONS *",
        "GET http://a.test:0/",
        "GET http://a.test:/",
        "GET http://a.test:99999/",
        "GET http://a.test:8o/",
        "GET http://a.test:+80/",
        "GET http://[::1]x/",
        "GET http://[::1]:x/",
        "CONNECT a.test",
        "CONNECT a.test:0",
        "CONNECT a.test:99999",
        "CONNECT a.test:+80",
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
