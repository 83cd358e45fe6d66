//! The request of a caller, before it is checked. [`FetchRequest`] and [`Header`] do not implement `Debug`, because
//! headers, bodies and URLs hold secrets.

use std::time::Duration;

use bytes::Bytes;

/// A request of a caller. [`crate::Fetcher::send`] checks it before anything is sent.
#[derive(Clone)]
pub struct FetchRequest {
    /// Any token of RFC 9110, for example `GET`. Sent as it is written.
    pub method: String,
    /// An absolute URL with the scheme http or https. User, password and fragment are not sent.
    pub url: String,
    /// Sent in this order, repeated names together. `accept: */*`, `cookie` (if cookies are kept for the host) and
    /// `host` are added after them unless they are given. `Content-Length` and `Transfer-Encoding` are ignored,
    /// because a wrong length could hide a second request in this one.
    pub headers: Vec<Header>,
    /// Sent again after a redirect, unless the redirect turns the request into a GET without a body.
    pub body: Option<Bytes>,
    /// The time for everything together: look-ups, connections, redirects, headers, and the body, however slowly the caller takes it. None: no
    /// limit.
    pub timeout: Option<Duration>,
    /// By default, redirects are followed.
    pub redirects: Redirects,
    /// A larger body of the response is an error. None: no limit.
    pub max_body_bytes: Option<u64>,
}

/// One header of a request.
#[derive(Clone)]
pub struct Header {
    /// In upper or lower case. Sent in lower case.
    pub name: String,
    /// The whole value, or the part before the value of the variable, for example `Bearer `.
    pub value: String,
    /// The name of an environment variable whose value is appended to `value`. Such a header is not sent to another
    /// origin after a redirect.
    pub value_env_var: Option<String>,
}

/// The treatment of a response that is a redirect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirects {
    /// At most ten redirects are followed; one more is an error. Credentials and values from the environment are not
    /// sent to another origin.
    #[default]
    Follow,
    /// The redirect itself is returned.
    Stop,
}
