//! HTTP/2 servers on loopback: one that answers as a test says, and one that can send frames which no library would
//! send. Both use TLS with a certificate of an authority that is made for the server. Start with [`Http2Peer::start`]
//! and [`RawHttp2Peer::start`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::server::TlsStream;

use crate::tls::fetcher_with_authorities;
use fetch::Fetcher;
use testkit::tls_acceptor;

/// An HTTP/2 server. Dropping it closes its listener, but not its connections.
pub(crate) struct Http2Peer {
    pub(crate) port: u16,
    /// The authority of the server's certificate, as PEM.
    pub(crate) authority: String,
    record: Arc<Http2Record>,
    task: JoinHandle<()>,
}

/// The connections and requests of an [`Http2Peer`] so far.
#[derive(Default)]
struct Http2Record {
    /// Number of connections on which the handshake of HTTP/2 succeeded.
    connections: AtomicUsize,
    /// Number of these connections that were closed.
    closed: watch::Sender<usize>,
    requests: Mutex<Vec<String>>,
}

/// A request that an [`Http2Peer`] got, and the means to answer it.
pub(crate) struct Http2Call {
    pub(crate) request: http::Request<RecvStream>,
    pub(crate) reply: SendResponse<Bytes>,
    /// The number of the connection, from 0.
    pub(crate) connection: usize,
    commands: mpsc::UnboundedSender<PeerCommand>,
}

/// A command to a connection of an [`Http2Peer`].
enum PeerCommand {
    /// Send GOAWAY, and close the connection when all accepted requests are answered.
    StopAccepting,
    /// Close the connection at once, without a GOAWAY frame.
    Vanish,
}

impl Http2Peer {
    /// Starts a server with a certificate for the host `name`. The server calls `answer` for each request.
    pub(crate) async fn start<F, A>(name: &str, answer: F) -> Self
    where
        F: Fn(Http2Call) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        Self::start_with_settings(name, &h2::server::Builder::new(), answer).await
    }

    pub(crate) async fn start_with_settings<F, A>(name: &str, settings: &h2::server::Builder, answer: F) -> Self
    where
        F: Fn(Http2Call) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let (authority, acceptor) = tls_acceptor(name, &["h2"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let record = Arc::new(Http2Record::default());
        let (shared, settings, answer) = (Arc::clone(&record), settings.clone(), Arc::new(answer));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, settings) = (acceptor.clone(), settings.clone());
                let (record, answer) = (Arc::clone(&shared), Arc::clone(&answer));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    // This fails if the client does not need the connection any more and has closed it.
                    let Ok(connection) = settings.handshake(stream).await else { return };
                    let number = record.connections.fetch_add(1, Ordering::SeqCst);
                    serve(connection, number, &*answer, &record).await;
                    record.closed.send_modify(|closed| *closed += 1);
                });
            }
        });
        Self { port, authority, record, task }
    }

    /// A URL for a server whose certificate is for `localhost`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.port)
    }

    /// A fetcher that trusts this server.
    pub(crate) fn fetcher(&self, variables: &[(&str, &str)]) -> Fetcher {
        fetcher_with_authorities(&self.authority, variables)
    }

    /// Number of connections on which the handshake of HTTP/2 succeeded.
    pub(crate) fn connections(&self) -> usize {
        self.record.connections.load(Ordering::SeqCst)
    }

    /// Each request as text: method and URL, then each header on a line of its own.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.record.requests.lock().clone()
    }

    /// Waits until at least this many connections are closed.
    pub(crate) async fn wait_until_closed(&self, connections: usize) {
        self.record.closed.subscribe().wait_for(|closed| *closed >= connections).await.unwrap();
    }
}

impl Drop for Http2Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the connection with this number until the client closes it or a [`PeerCommand`] ends it.
async fn serve<F, A>(
    mut connection: Connection<TlsStream<TcpStream>, Bytes>,
    number: usize,
    answer: &F,
    record: &Http2Record,
) where
    F: Fn(Http2Call) -> A,
    A: Future<Output = ()> + Send + 'static,
{
    let (commands, mut received_commands) = mpsc::unbounded_channel();
    let mut answers = JoinSet::new();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, reply))) = accepted else { return };
                record.requests.lock().push(describe(&request));
                answers.spawn(answer(Http2Call { request, reply, connection: number, commands: commands.clone() }));
            }
            Some(command) = received_commands.recv() => match command {
                PeerCommand::StopAccepting => connection.graceful_shutdown(),
                PeerCommand::Vanish => return,
            },
        }
    }
}

/// The text of a request for [`Http2Peer::requests`].
fn describe(request: &http::Request<RecvStream>) -> String {
    let headers = request.headers().iter().map(|(name, value)| format!("\n{name}: {}", value.to_str().unwrap()));
    format!("{} {}{}", request.method(), request.uri(), headers.collect::<String>())
}

impl Http2Call {
    pub(crate) fn path(&self) -> &str {
        self.request.uri().path()
    }

    /// Sends a response with status 200, the `content-length` of `body`, and `body`.
    pub(crate) async fn answer(mut self, body: impl Into<Bytes>) {
        let body = body.into();
        let response = http::Response::builder().header("content-length", body.len()).body(()).unwrap();
        self.send(response, body).await;
    }

    /// Sends the headers of `response`, and `body` as its body.
    pub(crate) async fn send(&mut self, response: http::Response<()>, body: Bytes) {
        let Ok(mut stream) = self.reply.send_response(response, body.is_empty()) else { return };
        if !body.is_empty() {
            send_body(&mut stream, body, true).await;
        }
    }

    /// Sends headers with status 200. The test then sends the body itself.
    pub(crate) fn begin(&mut self) -> h2::SendStream<Bytes> {
        self.reply.send_response(http::Response::new(()), false).unwrap()
    }

    /// Waits until the client resets the stream. For a request that is not answered.
    pub(crate) async fn wait_for_reset(&mut self) -> Reason {
        std::future::poll_fn(|cx| self.reply.poll_reset(cx)).await.unwrap()
    }

    /// Sends headers and the beginning of a body, and waits until the client resets the stream.
    pub(crate) async fn begin_until_reset(&mut self, beginning: &'static str) -> Reason {
        let mut stream = self.begin();
        send_body(&mut stream, beginning.into(), false).await;
        std::future::poll_fn(|cx| stream.poll_reset(cx)).await.unwrap()
    }

    /// Resets the stream instead of answering.
    pub(crate) fn reset(mut self, reason: Reason) {
        self.reply.send_reset(reason);
    }

    /// Sends GOAWAY. The connection is closed when all its accepted requests, also this one, are answered.
    pub(crate) fn stop_accepting(&self) {
        self.commands.send(PeerCommand::StopAccepting).unwrap();
    }

    /// Closes the connection without a GOAWAY frame. Never returns, because dropping `self` would reset the stream
    /// first.
    pub(crate) async fn vanish(self) {
        self.commands.send(PeerCommand::Vanish).unwrap();
        std::future::pending::<()>().await;
    }

    /// The whole body of the request.
    pub(crate) async fn read_body(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        while let Some(Ok(data)) = self.request.body_mut().data().await {
            self.request.body_mut().flow_control().release_capacity(data.len()).unwrap();
            body.extend_from_slice(&data);
        }
        body
    }
}

/// Sends a body, or a part of it if `is_end` is false, no faster than the windows of the client allow. Stops if the
/// client resets the stream. Sends nothing if `body` is empty, not even the end.
pub(crate) async fn send_body(stream: &mut h2::SendStream<Bytes>, mut body: Bytes, is_end: bool) {
    while !body.is_empty() {
        stream.reserve_capacity(body.len());
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        let piece = body.split_to(room.min(body.len()));
        let is_last = is_end && body.is_empty();
        if stream.send_data(piece, is_last).is_err() {
            return;
        }
    }
}

/// The types of frames in RFC 9113.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0;
    pub(crate) const HEADERS: u8 = 1;
    pub(crate) const RST_STREAM: u8 = 3;
    pub(crate) const SETTINGS: u8 = 4;
    pub(crate) const PUSH_PROMISE: u8 = 5;
    pub(crate) const PING: u8 = 6;
    pub(crate) const GOAWAY: u8 = 7;
    pub(crate) const CONTINUATION: u8 = 9;
}

/// Flags of frames in RFC 9113.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// `:status: 200` from the static table of RFC 7541.
pub(crate) const STATUS_200: &[u8] = &[0x88];

/// An HTTP/2 server that sends its settings on each connection, and then exactly the bytes that the test gives it.
pub(crate) struct RawHttp2Peer {
    pub(crate) port: u16,
    authority: String,
    task: JoinHandle<()>,
}

/// A connection of a [`RawHttp2Peer`], after the preface of the client and the settings of the server.
pub(crate) struct RawHttp2Connection {
    stream: TlsStream<TcpStream>,
}

impl RawHttp2Peer {
    /// Starts a server. The server calls `serve` for each connection, with its number from 0.
    pub(crate) async fn start<F, A>(serve: F) -> Self
    where
        F: Fn(usize, RawHttp2Connection) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let (authority, acceptor) = tls_acceptor("localhost", &["h2"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let mut number = 0;
            while let Ok((stream, _)) = listener.accept().await {
                let mut stream = acceptor.accept(stream).await.unwrap();
                stream.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).await.unwrap();
                let mut connection = RawHttp2Connection { stream };
                connection.send_frame(kind::SETTINGS, 0, 0, &[]).await.unwrap();
                tokio::spawn(serve(number, connection));
                number += 1;
            }
        });
        Self { port, authority, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://localhost:{}/", self.port)
    }

    pub(crate) fn fetcher(&self) -> Fetcher {
        fetcher_with_authorities(&self.authority, &[])
    }
}

impl Drop for RawHttp2Peer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl RawHttp2Connection {
    pub(crate) async fn send_frame(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> std::io::Result<()> {
        self.send_bytes(&frame(kind, flags, stream, payload)).await
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }

    /// Waits for the headers of the next request and returns the number of its stream. `None` if the client has
    /// closed the connection.
    pub(crate) async fn next_request(&mut self) -> Option<u32> {
        loop {
            let (frame_kind, stream) = self.next_frame().await?;
            if frame_kind == kind::HEADERS {
                return Some(stream);
            }
        }
    }

    /// Type and stream number of the next frame. `None` if the client has closed the connection.
    pub(crate) async fn next_frame(&mut self) -> Option<(u8, u32)> {
        let mut head = [0; 9];
        self.stream.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.stream.read_exact(&mut payload).await.ok()?;
        Some((head[3], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
    }

    /// Sends the same bytes again and again until the client closes the connection, or until 1 GiB is sent. Returns
    /// how many bytes were sent.
    pub(crate) async fn flood(self, bytes: &[u8]) -> usize {
        let (mut reader, mut writer) = tokio::io::split(self.stream);
        // The answers of the client are read, so that only the limits of the client can end the flood.
        let reading = tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
        let mut sent = 0;
        while sent < 1 << 30 && writer.write_all(bytes).await.is_ok() {
            sent += bytes.len();
        }
        reading.abort();
        sent
    }
}

/// A frame as bytes.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}
