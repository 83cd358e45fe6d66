//! A server whose environment names no proxy, and helpers for `http/request` and its streamed bodies.

use testkit::{Client, TestServer, Value, json, unbase64};

/// Environment variables that would change where requests go or which certificates are trusted.
const NETWORK_VARIABLES: [&str; 10] = [
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

/// A server whose requests use no proxy.
pub(crate) async fn server() -> TestServer {
    server_with(&[], &[]).await
}

/// A server with further arguments and environment variables. It inherits none of the [`NETWORK_VARIABLES`].
pub(crate) async fn server_with(args: &[&str], variables: &[(&str, &str)]) -> TestServer {
    TestServer::start_with(args, |command| {
        for name in NETWORK_VARIABLES {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied())
    })
    .await
}

/// Params of a GET request with the id `r`, with some members changed.
pub(crate) fn request(url: impl Into<String>, changes: Value) -> Value {
    let mut params = json!({"method": "GET", "url": url.into(), "requestId": "r"});
    for (name, value) in changes.as_object().unwrap() {
        params[name] = value.clone();
    }
    params
}

/// Makes a request that must succeed. Returns status, headers and body.
pub(crate) async fn fetch(client: &mut Client, url: impl Into<String>, changes: Value) -> (u64, Value, String) {
    let answer = client.call("http/request", request(url, changes)).await;
    let body = String::from_utf8(unbase64(&answer["bodyBase64"])).unwrap();
    (answer["status"].as_u64().unwrap(), answer["headers"].clone(), body)
}

/// Makes a request that must fail. Returns code and message of the error.
pub(crate) async fn fetch_error(client: &mut Client, url: impl Into<String>, changes: Value) -> (i64, String) {
    let error = client.call_error("http/request", request(url, changes)).await;
    (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
}

/// Begins a request with a streamed body, and returns the answer, which comes before the body.
pub(crate) async fn open_stream(client: &mut Client, id: &str, url: String, mut changes: Value) -> Value {
    changes["streamResponse"] = true.into();
    changes["requestId"] = id.into();
    let answer = client.call("http/request", request(url, changes)).await;
    assert_eq!(answer["bodyBase64"], "");
    answer
}

/// Receives the body of one request, which comes in pieces.
pub(crate) struct BodyReceiver {
    id: String,
    /// Sequence number of the last piece.
    seq: u64,
}

impl BodyReceiver {
    pub(crate) fn new(id: &str) -> Self {
        Self { id: id.to_owned(), seq: 0 }
    }

    /// The next piece. `Err(None)` if the body is complete, and `Err` with the error text if it is not.
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

    /// All further pieces, joined, and the error text if the body is not complete.
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
