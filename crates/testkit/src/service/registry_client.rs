//! Calls to a registry, as an end of the published implementation makes them.

use serde_json::Value;
use tokio::net::TcpStream;

use crate::http::{HttpAnswer, http_exchange};

/// Where a registry is, and who the caller is there.
#[derive(Clone)]
pub(super) struct RegistryClient {
    authority: String,
    prefix: String,
    token: String,
    pub(super) environment: String,
}

impl RegistryClient {
    /// `base_url` must begin with `http://`.
    pub(super) fn new(base_url: &str, token: &str, environment: &str) -> Self {
        let rest = base_url.strip_prefix("http://").expect("the registry of a test has no TLS");
        let (authority, prefix) = rest.split_once('/').map_or((rest, String::new()), |(authority, path)| {
            (authority, format!("/{}", path.trim_end_matches('/')))
        });
        let (authority, token) = (authority.to_owned(), token.to_owned());
        Self { authority, prefix, token, environment: environment.to_owned() }
    }

    /// The answer of a success, or the status and the body of a failure.
    pub(super) async fn call(&self, operation: &str, body: &Value) -> Result<Value, (u16, String)> {
        let Self { authority, prefix, token, environment } = self;
        let body = body.to_string();
        let request = format!(
            "POST {prefix}/cloud/environment/{environment}/{operation} HTTP/1.1\r\nHost: {authority}\r\n\
             Authorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut connection = TcpStream::connect(authority).await.map_err(|error| (0, error.to_string()))?;
        let HttpAnswer { status, body, .. } = http_exchange(&mut connection, &request).await;
        if status == 200 { Ok(serde_json::from_str(&body).unwrap()) } else { Err((status, body)) }
    }
}
