//! Params, results and notifications of `http/*`: HTTP requests that the server makes from its own machine. How a request is
//! made, and which redirects and proxies it uses, is in the crate `fetch`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::Base64Bytes;
use crate::object_only::objects_only;

/// A header of a request or of a response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "camelCase")]
pub struct HttpHeader {
    /// Name of the header. In a response it is in lower case.
    pub name: String,
    /// Value of the header. With `valueEnvVar`, the prefix of the value.
    pub value: String,
    /// Only in a request: an environment variable of the server whose value is appended to `value`. It is an error if
    /// the variable is unset or empty, or if it holds a secret of the server itself. Absent: the header is sent with
    /// `value` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_env_var: Option<String>,
}

/// What the server does with a redirect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RedirectPolicy {
    /// Follow the redirect, up to ten times.
    #[default]
    Follow,
    /// Return the redirect as the response.
    Stop,
}

/// Params of `http/request`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRequestParams {
    /// The HTTP method, for example `GET`. Any valid HTTP token is accepted.
    pub method: String,
    /// Absolute URL with the scheme `http` or `https`. Its fragment is not sent.
    pub url: String,
    /// Headers of the request, in the order in which they are sent. Absent: empty.
    #[serde(default)]
    pub headers: Vec<HttpHeader>,
    /// Body of the request. Absent or null: no body.
    #[serde(rename = "bodyBase64", default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Base64Bytes>,
    /// Milliseconds for the whole request, redirects and body included. Absent or null: no timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What the server does with a redirect. Absent: `follow`.
    #[serde(default)]
    pub redirect_policy: RedirectPolicy,
    /// Chosen by the client, unique among the streamed requests of the connection. `http/cancel`, `http/flow` and the pieces of
    /// a streamed body refer to it. Required also without `streamResponse`.
    pub request_id: String,
    /// True: the body follows the response in `http/request/bodyDelta` notifications. False, or absent: the response contains
    /// the body.
    #[serde(default)]
    pub stream_response: bool,
    /// Extension `httpLimits`: the largest response body in bytes; a longer body is an error. Absent: the request
    /// sets no limit, but a body that is not streamed must still fit into one message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_body_bytes: Option<u64>,
}

impl HttpRequestParams {
    /// A request without headers and body that follows redirects, has no timeout and does not stream the response.
    /// `request_id` is empty; the client fills it in when it sends the request.
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
    /// Status code of the response. A status such as 404 or 500 is no error.
    pub status: u16,
    /// Headers of the response, with names in lower case. A header whose value is not visible ASCII is left out.
    pub headers: Vec<HttpHeader>,
    /// The whole body. Empty if the body is streamed.
    #[serde(rename = "bodyBase64")]
    pub body: Base64Bytes,
}

/// Params of `http/cancel`, extension `httpCancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpCancelParams {
    /// The request to cancel. One that has finished or is unknown is no error.
    pub request_id: String,
}

/// Params of `http/flow`, extension `httpLimits`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpFlowParams {
    /// The request whose streamed body is paused or resumed. One that has finished or is unknown is no error.
    pub request_id: String,
    /// True: the server sends no further pieces of the body, and stops reading from the web server. False: it
    /// continues.
    pub paused: bool,
}

/// Params of `http/request/bodyDelta`, as a server sends them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BodyDelta<'a> {
    /// The request that the body belongs to.
    pub request_id: &'a str,
    /// Number of this notification: 1 for the first of the body, and 1 more for each further notification.
    pub seq: u64,
    /// The next bytes of the body, at most 1 MiB. Empty in the last notification.
    #[serde(rename = "deltaBase64")]
    pub delta: Base64Bytes,
    /// Whether this is the last notification of the body.
    pub done: bool,
    /// Why the body is not complete. Null if the body is complete, and in every notification but the last.
    pub error: Option<&'a str>,
}

/// Params of `http/request/bodyDelta`, as a client decodes them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushedBodyDelta<'a> {
    /// The request that the body belongs to.
    #[serde(borrow)]
    pub request_id: Cow<'a, str>,
    /// Number of this notification: 1 for the first of the body, and 1 more for each further notification.
    pub seq: u64,
    /// The next bytes of the body in base64, not decoded yet.
    #[serde(borrow)]
    pub delta_base64: Cow<'a, str>,
    /// Whether this is the last notification of the body. Absent: false.
    #[serde(default)]
    pub done: bool,
    /// Why the body is not complete. Null or absent if the body is complete, and in every notification but the last.
    #[serde(default)]
    pub error: Option<String>,
}

objects_only!(HttpHeader);
