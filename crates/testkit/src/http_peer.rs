//! An HTTP server on loopback that records requests as text and answers with bytes that the test chooses, so that a
//! test can send responses that no HTTP library would send. It knows HTTP/1.1 with `content-length`, and no TLS.
//! Start reading at [`HttpPeer::answering`].

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What an [`HttpPeer`] does after it has read a request.
pub enum PeerReply {
    /// Writes these bytes and waits for the next request, even if the bytes are not a whole response.
    KeepOpen(Vec<u8>),
    /// Writes these bytes and closes the connection.
    Close(Vec<u8>),
}

/// An HTTP server on loopback. Dropping it closes its listener, but not the connections that it has accepted.
pub struct HttpPeer {
    /// The port on 127.0.0.1.
    pub port: u16,
    record: Arc<PeerRecord>,
    task: JoinHandle<()>,
}

/// What an [`HttpPeer`] has seen so far.
#[derive(Default)]
struct PeerRecord {
    /// How many connections were accepted.
    accepted: AtomicUsize,
    /// How many of these connections have ended.
    closed: watch::Sender<usize>,
    requests: RecordedRequests,
}

/// The requests that a peer has received, as text. Clones share them.
#[derive(Clone, Default)]
pub struct RecordedRequests(Arc<Mutex<Vec<String>>>);

impl RecordedRequests {
    /// Heads and bodies in the order in which they came.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Adds a request.
    pub fn push(&self, request: String) {
        self.0.lock().unwrap().push(request);
    }
}

impl HttpPeer {
    /// Starts a peer that answers each request with the bytes that `answer` returns for the text of the request.
    pub async fn answering(answer: impl Fn(&str) -> PeerReply + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        Self::serving(move |stream, requests| {
            let answer = Arc::clone(&answer);
            async move { serve_http(stream, &*answer, &requests).await }
        })
        .await
    }

    /// Starts a peer that closes the connection after each answer. The text that `answer` returns gets the
    /// header `Connection: close`.
    pub async fn closing(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let with_header = |answer: String| answer.replacen("\r\n", "\r\nConnection: close\r\n", 1);
        Self::answering(move |request| PeerReply::Close(with_header(answer(request)).into())).await
    }

    /// Starts a peer that reads and records the first request of each connection. `handle` gets this request and the
    /// connection, and does the rest.
    pub async fn with_handler<F, A>(handle: F) -> Self
    where
        F: Fn(String, TcpStream) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let handle = Arc::new(handle);
        Self::serving(move |mut stream, requests| {
            let handle = Arc::clone(&handle);
            async move {
                let Some(request) = read_http_request(&mut stream).await else { return };
                requests.push(request.clone());
                handle(request, stream).await;
            }
        })
        .await
    }

    /// Starts a peer that calls `serve` for each connection. The connection counts as closed when `serve` has
    /// returned.
    async fn serving<F, A>(serve: F) -> Self
    where
        F: Fn(TcpStream, RecordedRequests) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let record = Arc::new(PeerRecord::default());
        let shared_record = Arc::clone(&record);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared_record.accepted.fetch_add(1, Ordering::SeqCst);
                let record = Arc::clone(&shared_record);
                let serving = serve(stream, record.requests.clone());
                tokio::spawn(async move {
                    serving.await;
                    record.closed.send_modify(|closed| *closed += 1);
                });
            }
        });
        Self { port, record, task }
    }

    /// An `http://` URL with this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// How many connections were accepted.
    pub fn connections_accepted(&self) -> usize {
        self.record.accepted.load(Ordering::SeqCst)
    }

    /// Heads and bodies of the recorded requests, in the order in which they came.
    pub fn requests(&self) -> Vec<String> {
        self.record.requests.all()
    }

    /// Waits until at least this many connections have ended, no matter which end closed them.
    pub async fn wait_until_closed(&self, connections: usize) {
        self.record.closed.subscribe().wait_for(|closed| *closed >= connections).await.unwrap();
    }
}

impl Drop for HttpPeer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers the requests of one connection until either end closes it, and adds them to `requests`.
pub async fn serve_http<T>(mut stream: T, answer: &impl Fn(&str) -> PeerReply, requests: &RecordedRequests)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(request) = read_http_request(&mut stream).await {
        let reply = answer(&request);
        requests.push(request);
        let (PeerReply::KeepOpen(bytes) | PeerReply::Close(bytes)) = &reply;
        if stream.write_all(bytes).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if let PeerReply::Close(_) = reply {
            return drop(stream.shutdown().await);
        }
    }
}

/// Head and body of a request. `None` if the connection ends before the request is complete.
pub async fn read_http_request<T: AsyncRead + Unpin>(stream: &mut T) -> Option<String> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        request.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(request.clone()).unwrap().to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    request.extend(body);
    Some(String::from_utf8(request).unwrap())
}

/// The text of a response with status 200 and this body.
pub fn http_ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}
