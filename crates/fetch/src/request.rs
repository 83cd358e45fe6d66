//! What is asked for. None of it can be printed for debugging: headers, bodies and URLs hold secrets.

use std::time::Duration;

use bytes::Bytes;

/// A request.
#[derive(Clone)]
pub struct FetchRequest {
    /// Any token.
    pub method: String,
    /// Absolute, http or https. A user, a password and a fragment in it are not sent.
    pub url: String,
    /// Sent in this order, repeated names together, before `accept: */*` and `host`, which are added unless they are here. `Content-Length` and `Transfer-Encoding` are made from the body whatever
    /// is said here, so that nobody can hide a second request in the first.
    pub headers: Vec<Header>,
    /// Sent again when a redirect asks for it.
    pub body: Option<Bytes>,
    /// One deadline for everything: the address, connections, redirects, headers, and the body, however slowly it is taken.
    pub timeout: Option<Duration>,
    /// Whether redirects are followed.
    pub redirects: Redirects,
    /// A larger body is an error.
    pub max_body_bytes: Option<u64>,
}

/// One header of a request.
#[derive(Clone)]
pub struct Header {
    /// Its name.
    pub name: String,
    /// Its value, or what stands before the value from the environment.
    pub value: String,
    /// A variable of this machine's environment whose value is appended. Such a header is not sent to another origin after a redirect.
    pub value_env_var: Option<String>,
}

/// Whether redirects are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Redirects {
    /// At most ten; credentials and values from the environment do not leave their origin.
    #[default]
    Follow,
    /// The redirect itself is the answer.
    Stop,
}
