//! HTTP proxies: requests that they pass on, tunnels, credentials, and hosts that are reached without a proxy. Also
//! the cookies of ChatGPT: a test can play the role of this host only behind a proxy.

use std::sync::Arc;

use crate::support::{failure, fetcher, get, header, load, method_and_target, ok, redirect, reply};
use crate::tls::{SecureServer, fetcher_that_trusts, write_temporary_file};
use fetch::{FailureKind, FetchRequest, Redirects};
use parking_lot::Mutex;
use testkit::tls_acceptor;
use testkit::{HttpPeer, PeerReply, read_http_request};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A proxy that connects every tunnel to one port of 127.0.0.1, and keeps the CONNECT requests that it got.
pub(crate) struct TunnelPeer {
    pub(crate) port: u16,
    /// The CONNECT requests, each as text.
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl TunnelPeer {
    pub(crate) async fn start(target_port: u16) -> Self {
        Self::start_with_handshake(target_port, |stream| async { Some(stream) }).await
    }

    /// A proxy that makes `handshake`, for example that of TLS, on each connection before it reads the request.
    pub(crate) async fn start_with_handshake<T, F>(
        target_port: u16,
        handshake: impl Fn(TcpStream) -> F + Send + Sync + 'static,
    ) -> Self
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        F: Future<Output = Option<T>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = asked.clone();
        let task = tokio::spawn(async move {
            loop {
                let connected = handshake(listener.accept().await.unwrap().0);
                let noted = noted.clone();
                tokio::spawn(async move {
                    let mut stream = connected.await.unwrap();
                    let request = read_http_request(&mut stream).await.unwrap();
                    noted.lock().push(request);
                    let mut target = TcpStream::connect(("127.0.0.1", target_port)).await.unwrap();
                    stream.write_all(b"HTTP/1.1 200 Connected\r\nX: y\r\n\r\n").await.unwrap();
                    drop(tokio::io::copy_bidirectional(&mut stream, &mut target).await);
                });
            }
        });
        Self { port, asked, task }
    }
}

impl Drop for TunnelPeer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_proxy_gets_http_requests_with_the_absolute_url_and_the_credentials_for_the_proxy() {
    let proxy = HttpPeer::answering(|_| ok("by proxy")).await;
    let fetcher = fetcher(&[("http_proxy", &format!("http://us%40er:pass@127.0.0.1:{}", proxy.port))]);
    for host in ["one.test", "two.test:81"] {
        let url = format!("http://user@{host}/path?q#f");
        let request = FetchRequest { headers: vec![header("Authorization", "mine")], ..get(url) };
        assert_eq!(load(&fetcher, request).await.unwrap().1, "by proxy");
    }
    let expected = |host| {
        format!(
            "GET http://{host}/path?q HTTP/1.1\r\nauthorization: mine\r\naccept: */*\r\nhost: {host}\r\nproxy-authorization: Basic dXNAZXI6cGFzcw==\r\n\r\n"
        )
    };
    assert_eq!(proxy.requests(), [expected("one.test"), expected("two.test:81")]);
    // Requests to different hosts use the same connection to the proxy.
    assert_eq!(proxy.connections_accepted(), 1);
}

#[tokio::test]
async fn host_names_and_paths_that_are_not_ascii_are_encoded_as_ascii() {
    let proxy = HttpPeer::answering(|_| ok("")).await;
    let fetcher = fetcher(&[("ALL_PROXY", &format!("127.0.0.1:{}", proxy.port))]);
    load(&fetcher, get("http://BÜCHER.test/ä")).await.unwrap();
    assert_eq!(
        proxy.requests(),
        ["GET http://xn--bcher-kva.test/%C3%A4 HTTP/1.1\r\naccept: */*\r\nhost: xn--bcher-kva.test\r\n\r\n"]
    );
}

#[tokio::test]
async fn hosts_in_no_proxy_are_reached_directly_at_each_hop() {
    let proxy = HttpPeer::answering(|_| ok("by proxy")).await;
    let server = HttpPeer::answering(|request| match method_and_target(request) {
        "GET /away" => redirect(302, "http://other.test/"),
        _ => ok("straight"),
    })
    .await;
    let address = format!("http://127.0.0.1:{}", proxy.port);
    let fetcher = fetcher(&[("HTTP_PROXY", &address), ("NO_PROXY", "internal.test, 127.0.0.0/8")]);
    assert_eq!(load(&fetcher, get(server.url("/"))).await.unwrap().1, "straight");
    assert_eq!(proxy.connections_accepted(), 0);
    assert_eq!(load(&fetcher, get(server.url("/away"))).await.unwrap().1, "by proxy");
    assert_eq!(method_and_target(&proxy.requests()[0]), "GET http://other.test/");
}

#[tokio::test]
async fn the_credentials_of_a_proxy_are_not_sent_to_servers() {
    let server = HttpPeer::answering(|_| ok("")).await;
    let target = server.url("/");
    let proxy = HttpPeer::answering(move |_| redirect(302, &target)).await;
    let address = format!("http://user:pass@127.0.0.1:{}", proxy.port);
    let fetcher = fetcher(&[("HTTP_PROXY", &address), ("NO_PROXY", "127.0.0.1")]);
    load(&fetcher, get("http://some.test/")).await.unwrap();
    assert!(proxy.requests()[0].contains("proxy-authorization"));
    assert!(!server.requests()[0].contains("proxy-authorization"));
}

#[tokio::test]
async fn https_goes_through_a_tunnel_that_is_used_again() {
    let server = SecureServer::start("secure.test", |_| ok("secret")).await;
    let proxy = TunnelPeer::start(server.port).await;
    let address = format!("http://user:pass@127.0.0.1:{}", proxy.port);
    let fetcher = fetcher_that_trusts(&server, &[("HTTPS_PROXY", &address)]);
    for _ in 0..2 {
        let request = FetchRequest { headers: vec![header("X", "y")], ..get("https://secure.test/path") };
        assert_eq!(load(&fetcher, request).await.unwrap(), (200, "secret".into()));
    }
    let connect = "CONNECT secure.test:443 HTTP/1.1\r\nHost: secure.test:443\r\nProxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n";
    assert_eq!(*proxy.asked.lock(), [connect]);
    assert_eq!(server.requests()[1], "GET /path HTTP/1.1\r\nx: y\r\naccept: */*\r\nhost: secure.test\r\n\r\n");
}

#[tokio::test]
async fn a_proxy_can_be_reached_over_tls() {
    let proxy = SecureServer::start("localhost", |_| ok("by proxy")).await;
    let fetcher = fetcher_that_trusts(&proxy, &[("ALL_PROXY", &format!("https://localhost:{}", proxy.port))]);
    assert_eq!(load(&fetcher, get("http://some.test/")).await.unwrap().1, "by proxy");
}

#[tokio::test]
async fn https_through_a_proxy_with_tls_is_tls_inside_of_tls() {
    let server = SecureServer::start("secure.test", |_| ok("inner")).await;
    let (authority, acceptor) = tls_acceptor("localhost", &[]);
    let proxy = TunnelPeer::start_with_handshake(server.port, move |stream| {
        let handshake = acceptor.accept(stream);
        async { handshake.await.ok() }
    })
    .await;
    let (_directory, path) = write_temporary_file(&format!("{authority}{}", server.authority));
    let address = format!("https://localhost:{}", proxy.port);
    let fetcher = fetcher(&[("HTTPS_PROXY", &address), ("SSL_CERT_FILE", &path)]);
    assert_eq!(load(&fetcher, get("https://secure.test/")).await.unwrap().1, "inner");
    assert_eq!(*proxy.asked.lock(), ["CONNECT secure.test:443 HTTP/1.1\r\nHost: secure.test:443\r\n\r\n"]);
}

#[tokio::test]
async fn the_error_for_a_proxy_that_refuses_or_sends_nonsense_names_the_proxy_but_no_credentials() {
    let cases = [
        ("HTTP/1.1 407 Auth\r\n\r\n".to_owned(), "proxy authorization required"),
        ("HTTP/1.0 503 No\r\n\r\n".to_owned(), "unsuccessful"),
        ("SSH-2.0-x\r\n\r\n".to_owned(), "unsuccessful"),
        ("HTTP/1.1 200 OK\r\n".to_owned() + &"x".repeat(20_000), "proxy response headers too long"),
    ];
    for (answer, reason) in cases {
        let proxy = HttpPeer::answering(move |_| reply(answer.clone())).await;
        let fetcher = fetcher(&[("HTTPS_PROXY", &format!("http://user:pass@127.0.0.1:{}", proxy.port))]);
        let (kind, text) = failure(fetcher.send(get("https://secure.test/secret")).await);
        let expected = format!(
            "http/request failed: the proxy 127.0.0.1:{} opened no connection to secure.test:443: tunnel error: {reason}",
            proxy.port
        );
        assert_eq!((kind, text), (FailureKind::Connect, expected));
    }
    let proxy = HttpPeer::answering(|_| PeerReply::Close(Vec::new())).await;
    let fetcher = fetcher(&[("HTTPS_PROXY", &format!("127.0.0.1:{}", proxy.port))]);
    assert_eq!(failure(fetcher.send(get("https://secure.test/")).await).0, FailureKind::Connect);
}

#[tokio::test]
async fn a_proxy_url_with_an_unsupported_scheme_fails_the_request_and_no_connection_is_opened() {
    let server = HttpPeer::answering(|_| ok("")).await;
    let fetcher = fetcher(&[("ALL_PROXY", "socks4://user:pass@127.0.0.1:1")]);
    let (kind, text) = failure(fetcher.send(get(server.url("/"))).await);
    let expected = "http/request failed: the proxy that ALL_PROXY names cannot be used; expected http://HOST:PORT, https://HOST:PORT, socks5://HOST:PORT or socks5h://HOST:PORT";
    assert_eq!((kind, text.as_str()), (FailureKind::Other, expected));
    assert_eq!(server.connections_accepted(), 0);
}

#[tokio::test]
async fn only_the_cookies_of_cloudflare_are_kept_for_chatgpt_and_cookies_of_the_caller_replace_them() {
    let answer = "HTTP/1.1 204 No\r\nSet-Cookie: __cf_bm=kept; Path=/; Max-Age=60\r\nSet-Cookie: session=not\r\n\r\n";
    let server = SecureServer::start("chatgpt.com", move |_| reply(answer)).await;
    let proxy = TunnelPeer::start(server.port).await;
    let fetcher = fetcher_that_trusts(&server, &[("https_proxy", &format!("http://127.0.0.1:{}", proxy.port))]);
    let cookies = ["set-cookie: __cf_bm=kept; Path=/; Max-Age=60", "set-cookie: session=not"];
    for redirects in [Redirects::Follow, Redirects::Stop] {
        let response = fetcher.send(FetchRequest { redirects, ..get("https://chatgpt.com/a") }).await.unwrap();
        let headers: Vec<_> = response.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        assert_eq!(headers, cookies, "the caller gets all cookies");
    }
    let own = FetchRequest { headers: vec![header("Cookie", "own=1")], ..get("https://chatgpt.com/a") };
    load(&fetcher, own).await.unwrap();
    let request = |headers: &str| format!("GET /a HTTP/1.1\r\n{headers}host: chatgpt.com\r\n\r\n");
    assert_eq!(
        server.requests(),
        [
            request("accept: */*\r\n"),
            request("accept: */*\r\ncookie: __cf_bm=kept\r\n"),
            request("cookie: own=1\r\naccept: */*\r\n"),
        ]
    );
}
