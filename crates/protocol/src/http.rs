//! HTTP requests made from the environment.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::Base64Bytes;

/// A header of a request or an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpHeader {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// In a request: a variable of the environment whose value is put behind `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_env_var: Option<String>,
}

/// What to do with an answer that points elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectPolicy {
    /// Go there.
    #[default]
    Follow,
    /// Return it.
    Stop,
}

/// Params of `http/request`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRequestParams {
    /// Any HTTP method.
    pub method: String,
    /// `http` or `https`.
    pub url: String,
    /// In the order they are sent.
    #[serde(default)]
    pub headers: Vec<HttpHeader>,
    /// What to send.
    #[serde(rename = "bodyBase64", default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Base64Bytes>,
    /// For everything together; none: no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What to do with an answer that points elsewhere.
    #[serde(default)]
    pub redirect_policy: RedirectPolicy,
    /// Names the stream of a streamed body; a client of ours chooses it itself.
    pub request_id: String,
    /// Send the body in pieces.
    #[serde(default)]
    pub stream_response: bool,
    /// Extension `httpLimits`: a longer body is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u64>,
}

impl HttpRequestParams {
    /// A request without headers and body.
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Self {
        Self {
            method: method.into(),
            url: url.into(),
            headers: Vec::new(),
            body: None,
            timeout_ms: None,
            redirect_policy: RedirectPolicy::Follow,
            request_id: String::new(),
            stream_response: false,
            max_body_bytes: None,
        }
    }
}

/// Result of `http/request`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpResponse {
    /// The status code, whatever it is.
    pub status: u16,
    /// Names are in lower case.
    pub headers: Vec<HttpHeader>,
    /// The whole body, unless it is streamed.
    #[serde(rename = "bodyBase64")]
    pub body: Base64Bytes,
}

/// Params of `http/cancel`, extension `httpCancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpCancelParams {
    /// Which request; one that is over is fine.
    pub request_id: String,
}

/// Params of `http/flow`, extension `httpLimits`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpFlowParams {
    /// Which streamed body; one that is over is fine.
    pub request_id: String,
    /// Whether its pieces are to wait.
    pub paused: bool,
}

/// Params of `http/request/bodyDelta`, as a server sends them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BodyDelta<'a> {
    /// Which stream.
    pub request_id: &'a str,
    /// From 1, without holes.
    pub seq: u64,
    /// The bytes.
    #[serde(rename = "deltaBase64")]
    pub delta: Base64Bytes,
    /// Whether this is the last.
    pub done: bool,
    /// Why the body ends before its end.
    pub error: Option<&'a str>,
}

/// Params of `http/request/bodyDelta`, as a client decodes them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushedBodyDelta<'a> {
    /// Which stream.
    #[serde(borrow)]
    pub request_id: Cow<'a, str>,
    /// From 1, without holes.
    pub seq: u64,
    /// The bytes, still in base64.
    #[serde(borrow)]
    pub delta_base64: Cow<'a, str>,
    /// Whether this is the last.
    #[serde(default)]
    pub done: bool,
    /// Why the body ends before its end.
    #[serde(default)]
    pub error: Option<String>,
}
