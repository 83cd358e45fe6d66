//! `http/request` over HTTP/2, with a web server that offers nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use h2::server::SendResponse;
use http::Response;
use testkit::{TestServer, json, tls_acceptor};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{BodyReceiver, fetch, fetch_error, open_stream, server_with};

/// More than the server queues for a client, so the body cannot end while it is paused.
const LARGE_BODY_BYTES: usize = 24 << 20;

/// The library of the server closes an HTTP/2 connection after this many faulty responses.
const MORE_THAN_FAULTY_STREAMS: usize = 1100;

/// A web server on loopback, and an exec-server that trusts its certificate. The body of `/large` is large, and
/// that of `/faulty` is shorter than its headers say. The body of any other path is the path itself.
struct Http2Fixture {
    server: TestServer,
    port: u16,
    /// Connections since the fixture was started.
    connections: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Http2Fixture {
    async fn start() -> Self {
        let (authority, acceptor) = tls_acceptor("localhost", &["h2"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let mut connection = h2::server::handshake(stream).await.unwrap();
                    while let Some(Ok((request, reply))) = connection.accept().await {
                        let mut response = Response::new(());
                        let body = match request.uri().path() {
                            "/large" => vec![b'x'; LARGE_BODY_BYTES],
                            "/faulty" => {
                                response.headers_mut().insert("content-length", "10".parse().unwrap());
                                b"short".to_vec()
                            }
                            path => path.as_bytes().to_vec(),
                        };
                        tokio::spawn(send(reply, response, body.into()));
                    }
                });
            }
        });
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("authority.pem");
        std::fs::write(&file, authority).unwrap();
        // The server reads the file when it makes its first request, so the file must exist until then.
        let server = server_with(&[], &[("SSL_CERT_FILE", file.to_str().unwrap())]).await;
        let fixture = Self { server, port, connections, serving };
        let (status, _, body) = fetch(&mut fixture.server.client().await, fixture.url("/first"), json!({})).await;
        assert_eq!((status, body.as_str()), (200, "/first"));
        // No other session uses the connection of this request.
        fixture.connections.store(0, Ordering::SeqCst);
        fixture
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }
}

impl Drop for Http2Fixture {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Sends a response no faster than the windows of the client allow.
async fn send(mut reply: SendResponse<bytes::Bytes>, response: Response<()>, mut body: bytes::Bytes) {
    let mut stream = reply.send_response(response, false).unwrap();
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(Ok(window)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        let piece = body.split_to(window.min(body.len()));
        if stream.send_data(piece, body.is_empty()).is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn requests_of_one_session_share_an_http2_connection_and_another_session_has_its_own() {
    let web = Http2Fixture::start().await;
    let (mut one, mut other) = (web.server.client().await, web.server.client().await);
    for path in ["/a", "/b"] {
        assert_eq!(fetch(&mut one, web.url(path), json!({})).await.2, path);
    }
    assert_eq!(web.connections.load(Ordering::SeqCst), 1);
    for path in ["/a", "/b"] {
        assert_eq!(fetch(&mut other, web.url(path), json!({})).await.2, path);
    }
    assert_eq!(web.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_faulty_page_of_one_session_does_not_end_the_bodies_of_another() {
    let web = Http2Fixture::start().await;
    let (mut one, mut other) = (web.server.client().await, web.server.client().await);
    open_stream(&mut other, "large", web.url("/large"), json!({})).await;
    for _ in 0..MORE_THAN_FAULTY_STREAMS {
        let (_, message) = fetch_error(&mut one, web.url("/faulty"), json!({})).await;
        assert!(message.contains("not valid HTTP/2") || message.contains("connection"), "{message}");
    }
    let (body, error) = BodyReceiver::new("large").rest(&mut other).await;
    assert_eq!((body.len(), error), (LARGE_BODY_BYTES, None));
}

#[tokio::test]
async fn a_paused_body_delays_no_other_request_on_the_same_http2_connection() {
    let web = Http2Fixture::start().await;
    let mut client = web.server.client().await;
    open_stream(&mut client, "large", web.url("/large"), json!({})).await;
    client.call("http/flow", json!({"requestId": "large", "paused": true})).await;
    assert_eq!(fetch(&mut client, web.url("/small"), json!({})).await.2, "/small");
    client.call("http/flow", json!({"requestId": "large", "paused": false})).await;
    let (body, error) = BodyReceiver::new("large").rest(&mut client).await;
    assert_eq!((body.len(), error), (LARGE_BODY_BYTES, None));
    assert_eq!(web.connections.load(Ordering::SeqCst), 1);
}
