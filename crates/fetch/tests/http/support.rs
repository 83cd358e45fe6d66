//! A server that notes what it is asked and answers in bytes the test chooses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use fetch::{FailureKind, FetchError, FetchRequest, Fetcher, FetcherConfig, Header, Redirects};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What a server does with a request.
pub(crate) enum Answer {
    /// Writes this and waits for the next request, also if this is not a whole answer.
    Keep(Vec<u8>),
    /// Writes this and closes.
    Close(Vec<u8>),
}

pub(crate) struct Server {
    pub(crate) port: u16,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    accepted: AtomicUsize,
    closed: tokio::sync::watch::Sender<usize>,
    requests: Mutex<Vec<String>>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        let (answer, noted) = (Arc::new(answer), seen.clone());
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                noted.accepted.fetch_add(1, Ordering::SeqCst);
                let (answer, noted) = (answer.clone(), noted.clone());
                tokio::spawn(async move {
                    serve(stream, &*answer, &noted.requests).await;
                    noted.closed.send_modify(|closed| *closed += 1);
                });
            }
        });
        Self { port, seen, task }
    }

    pub(crate) fn url(&self, rest: &str) -> String {
        format!("http://127.0.0.1:{}{rest}", self.port)
    }

    pub(crate) fn accepted(&self) -> usize {
        self.seen.accepted.load(Ordering::SeqCst)
    }

    /// Heads and bodies, as they came.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.seen.requests.lock().clone()
    }

    pub(crate) async fn wait_until_closed(&self, connections: usize) {
        self.seen.closed.subscribe().wait_for(|closed| *closed >= connections).await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers requests on one connection until either end closes it.
pub(crate) async fn serve<T>(mut stream: T, answer: &impl Fn(&str) -> Answer, requests: &Mutex<Vec<String>>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    while let Some(request) = read_request(&mut stream).await {
        let answer = answer(&request);
        requests.lock().push(request);
        let (Answer::Keep(bytes) | Answer::Close(bytes)) = &answer;
        if stream.write_all(bytes).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        if let Answer::Close(_) = answer {
            return drop(stream.shutdown().await);
        }
    }
}

/// Head and body of a request, `None` when the peer is gone.
pub(crate) async fn read_request<T: AsyncRead + Unpin>(stream: &mut T) -> Option<String> {
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

pub(crate) fn raw(bytes: impl Into<Vec<u8>>) -> Answer {
    Answer::Keep(bytes.into())
}

pub(crate) fn ok(body: &str) -> Answer {
    raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
}

pub(crate) fn redirect(status: u16, location: &str) -> Answer {
    raw(format!("HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 4\r\n\r\ngone"))
}

/// What was asked for: method and target.
pub(crate) fn first_line(request: &str) -> &str {
    request.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1")
}

pub(crate) fn fetcher(variables: &[(&str, &str)]) -> Fetcher {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Fetcher::new(FetcherConfig { environment }).unwrap()
}

pub(crate) fn request(method: &str, url: impl Into<String>) -> FetchRequest {
    FetchRequest {
        method: method.into(),
        url: url.into(),
        headers: Vec::new(),
        body: None,
        timeout: None,
        redirects: Redirects::Follow,
        max_body_bytes: None,
    }
}

pub(crate) fn get(url: impl Into<String>) -> FetchRequest {
    request("GET", url)
}

pub(crate) fn within(milliseconds: u64, request: FetchRequest) -> FetchRequest {
    FetchRequest { timeout: Some(Duration::from_millis(milliseconds)), ..request }
}

pub(crate) fn header(name: &str, value: &str) -> Header {
    Header { name: name.into(), value: value.into(), value_env_var: None }
}

pub(crate) async fn text(fetcher: &Fetcher, request: FetchRequest) -> Result<(u16, String), FetchError> {
    let response = fetcher.send(request).await?;
    let body: Bytes = response.body.collect(u64::MAX).await?;
    Ok((response.status, String::from_utf8(body.into()).unwrap()))
}

/// Kind and text of a failure.
#[track_caller]
pub(crate) fn failure<T: std::fmt::Debug>(outcome: Result<T, FetchError>) -> (FailureKind, String) {
    match outcome.unwrap_err() {
        FetchError::Failed { kind, message } => (kind, message),
        FetchError::Invalid(message) => panic!("refused: {message}"),
    }
}
