//! Functions that the tests share: fetchers and requests, the replies of the test servers, and checks of failures.

use std::time::Duration;

use bytes::Bytes;
use fetch::{FailureKind, FetchError, FetchRequest, Fetcher, FetcherConfig, Header, Redirects};
use testkit::{PeerReply, http_ok};

/// A reply of exactly these bytes, after which the connection stays open.
pub(crate) fn reply(bytes: impl Into<Vec<u8>>) -> PeerReply {
    PeerReply::KeepOpen(bytes.into())
}

/// A reply with status 200 and this body.
pub(crate) fn ok(body: &str) -> PeerReply {
    reply(http_ok(body))
}

pub(crate) fn redirect(status: u16, location: &str) -> PeerReply {
    reply(format!("HTTP/1.1 {status} Moved\r\nLocation: {location}\r\nContent-Length: 4\r\n\r\ngone"))
}

/// The first line of an HTTP/1.1 request without the version, for example `GET /path`.
pub(crate) fn method_and_target(request: &str) -> &str {
    request.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1")
}

/// A fetcher with these environment variables.
pub(crate) fn fetcher(variables: &[(&str, &str)]) -> Fetcher {
    let environment = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Fetcher::new(FetcherConfig { environment, ..FetcherConfig::default() }).unwrap()
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

pub(crate) fn with_timeout_ms(milliseconds: u64, request: FetchRequest) -> FetchRequest {
    FetchRequest { timeout: Some(Duration::from_millis(milliseconds)), ..request }
}

pub(crate) fn header(name: &str, value: &str) -> Header {
    Header { name: name.into(), value: value.into(), value_env_var: None }
}

/// Makes a request and returns the status and the whole body of the response.
pub(crate) async fn load(fetcher: &Fetcher, request: FetchRequest) -> Result<(u16, String), FetchError> {
    let response = fetcher.send(request).await?;
    let body: Bytes = response.body.collect(u64::MAX).await?;
    Ok((response.status, String::from_utf8(body.into()).unwrap()))
}

/// Waits until an idle connection is closed, and checks that this takes about a minute. The clock must be paused.
pub(crate) async fn assert_closed_after_a_minute(closed: impl Future<Output = ()>) {
    let last_used = tokio::time::Instant::now();
    closed.await;
    let idle_seconds = last_used.elapsed().as_secs();
    assert!((60..=70).contains(&idle_seconds), "{idle_seconds}");
}

/// Kind and text of a failure. Panics if the request succeeded or was invalid.
#[track_caller]
pub(crate) fn failure<T: std::fmt::Debug>(outcome: Result<T, FetchError>) -> (FailureKind, String) {
    match outcome.unwrap_err() {
        FetchError::Failed { kind, message } => (kind, message),
        FetchError::Invalid(message) => panic!("the request is invalid: {message}"),
    }
}
