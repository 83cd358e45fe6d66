//! A peer that notes what it is asked and answers in bytes the test chooses.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use testkit::{Client, TestServer, Value, json, unbase64};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Variables of this machine that would change where requests go.
const PROXY_VARIABLES: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
    "SSL_CERT_FILE",
    "CODEX_CA_CERTIFICATE",
];

/// A server whose requests go where they say.
pub(crate) async fn server() -> TestServer {
    server_with(&[], &[]).await
}

pub(crate) async fn server_with(args: &[&str], variables: &[(&str, &str)]) -> TestServer {
    TestServer::with(args, |command| {
        for name in PROXY_VARIABLES {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied())
    })
    .await
}

/// A server on loopback. Ends with its value.
pub(crate) struct Peer {
    port: u16,
    seen: Arc<Seen>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Seen {
    accepted: AtomicUsize,
    requests: Mutex<Vec<String>>,
}

impl Peer {
    /// Answers each request, and closes the connection after it, as it says: nobody else would send a POST on it again.
    pub(crate) async fn answering(answer: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        let answer = Arc::new(answer);
        Self::start(move |request, mut stream| {
            let answer = Arc::clone(&answer);
            async move {
                let answer = answer(&request).replacen("\r\n", "\r\nConnection: close\r\n", 1);
                let _gone = stream.write_all(answer.as_bytes()).await;
                let _gone = stream.shutdown().await;
            }
        })
        .await
    }

    /// Hands each request over, with its connection.
    pub(crate) async fn start<F, A>(answer: F) -> Self
    where
        F: Fn(String, TcpStream) -> A + Send + Sync + 'static,
        A: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(Seen::default());
        let (answer, noted) = (Arc::new(answer), Arc::clone(&seen));
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                noted.accepted.fetch_add(1, Ordering::SeqCst);
                let (answer, noted) = (Arc::clone(&answer), Arc::clone(&noted));
                tokio::spawn(async move {
                    let Some(request) = read_request(&mut stream).await else { return };
                    noted.requests.lock().unwrap().push(request.clone());
                    answer(request, stream).await;
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
        self.seen.requests.lock().unwrap().clone()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.task.abort();
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

pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn request(url: impl Into<String>, changes: Value) -> Value {
    let mut params = json!({"method": "GET", "url": url.into(), "requestId": "r"});
    for (name, value) in changes.as_object().unwrap() {
        params[name] = value.clone();
    }
    params
}

/// Makes a request and returns its answer with the body as text.
pub(crate) async fn fetch(client: &mut Client, url: impl Into<String>, changes: Value) -> (u64, Value, String) {
    let answer = client.call("http/request", request(url, changes)).await;
    let body = String::from_utf8(unbase64(&answer["bodyBase64"])).unwrap();
    (answer["status"].as_u64().unwrap(), answer["headers"].clone(), body)
}

/// The error of a request.
pub(crate) async fn refused(client: &mut Client, url: impl Into<String>, changes: Value) -> (i64, String) {
    let error = client.call_error("http/request", request(url, changes)).await;
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

/// Begins a streamed request, and returns its answer.
pub(crate) async fn open(client: &mut Client, id: &str, url: String, mut changes: Value) -> Value {
    changes["streamResponse"] = true.into();
    changes["requestId"] = id.into();
    let answer = client.call("http/request", request(url, changes)).await;
    assert_eq!(answer["bodyBase64"], "");
    answer
}

/// A body that comes in pieces.
pub(crate) struct Pieces {
    id: String,
    seq: u64,
}

impl Pieces {
    pub(crate) fn of(id: &str) -> Self {
        Self { id: id.to_owned(), seq: 0 }
    }

    /// The next piece; at the end, why there are no more.
    pub(crate) async fn next(&mut self, client: &mut Client) -> Result<Vec<u8>, Option<String>> {
        let is_ours = |message: &Value| {
            message["method"] == "http/request/bodyDelta" && message["params"]["requestId"] == self.id
        };
        let params = client.take(is_ours).await["params"].clone();
        self.seq += 1;
        assert_eq!(params["seq"], self.seq);
        let bytes = unbase64(&params["deltaBase64"]);
        assert!(bytes.len() <= 1 << 20);
        if params["done"] == false {
            assert!(!bytes.is_empty() && params["error"].is_null());
            return Ok(bytes);
        }
        assert!(bytes.is_empty());
        Err(params["error"].as_str().map(str::to_owned))
    }

    /// The whole body, and why it ended early.
    pub(crate) async fn rest(&mut self, client: &mut Client) -> (Vec<u8>, Option<String>) {
        let mut body = Vec::new();
        loop {
            match self.next(client).await {
                Ok(piece) => body.extend(piece),
                Err(error) => return (body, error),
            }
        }
    }
}
