//! A server whose environment names no proxy, and shorthand for `http/request` and its streamed bodies.

use testkit::{Client, TestServer, Value, json, unbase64};

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
