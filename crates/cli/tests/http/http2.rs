//! `http/request` over HTTP/2, with a web server that offers nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use h2::server::SendResponse;
use http::Response;
use testkit::{TestServer, json, tls_acceptor};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{BodyReceiver, fetch, open_stream, server_with};

/// More than the server queues for a client, so the body cannot end while it is paused.
const LARGE_BODY_BYTES: usize = 24 << 20;

/// A web server on loopback, and an exec-server that trusts its certificate. The body of `/large` is large, and
/// the body of any other path is the path itself.
struct Http2Fixture {
    server: TestServer,
    port: u16,
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
                        let body = match request.uri().path() {
                            "/large" => vec![b'x'; LARGE_BODY_BYTES],
                            path => path.as_bytes().to_vec(),
                        };
                        tokio::spawn(send(reply, body.into()));
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
async fn send(mut reply: SendResponse<bytes::Bytes>, mut body: bytes::Bytes) {
    let mut stream = reply.send_response(Response::new(()), false).unwrap();
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
async fn requests_of_different_sessions_share_an_http2_connection() {
    let web = Http2Fixture::start().await;
    let (mut one, mut other) = (web.server.client().await, web.server.client().await);
    for path in ["/a", "/b"] {
        assert_eq!(fetch(&mut one, web.url(path), json!({})).await.2, path);
        assert_eq!(fetch(&mut other, web.url(path), json!({})).await.2, path);
    }
    assert_eq!(web.connections.load(Ordering::SeqCst), 1);
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
