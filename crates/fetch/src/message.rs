//! Makes the HTTP/1.1 or HTTP/2 message of a hop. A hop is the request to one URL. The order of the headers is part
//! of the protocol: web servers get the same headers in the same order as from `codex exec-server`. This module sends
//! nothing. Start with [`RequestMessage`].

use http::header::{ACCEPT, COOKIE, HOST, PROXY_AUTHORIZATION};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};
use url::{Position, Url};

use crate::error::{FailureKind, RequestFailure};
use crate::proxy::{HttpProxy, Route};
use crate::request_body::RequestBody;
use crate::validate::Hop;

/// The request of one hop. Its message can be made more than once, so that the request can be sent again.
pub(crate) struct RequestMessage<'a> {
    pub(crate) hop: &'a Hop,
    pub(crate) route: &'a Route,
    /// Value of the `cookie` header. Not used if the caller gave this header.
    pub(crate) cookie: Option<HeaderValue>,
}

impl RequestMessage<'_> {
    /// The message for an HTTP/1.1 connection. Its first line has the whole URL if a proxy passes the request on,
    /// else path and query.
    pub(crate) fn http1(&self) -> Result<http::Request<RequestBody>, RequestFailure> {
        let mut headers = self.headers(|_| true);
        if !headers.contains_key(HOST) {
            headers.insert(HOST, HeaderValue::try_from(host_and_port(&self.hop.url)).map_err(other_failure)?);
        }
        let uri = match self.route {
            Route::Forward(HttpProxy { authorization, .. }) => {
                if let Some(authorization) = authorization {
                    headers.entry(PROXY_AUTHORIZATION).or_insert_with(|| authorization.clone());
                }
                absolute_uri(&self.hop.url, host_and_port(&self.hop.url))?
            }
            _ => origin_uri(&self.hop.url)?,
        };
        Ok(self.request(Version::HTTP_11, uri, headers))
    }

    /// The message for an HTTP/2 connection. A `host` header of the caller becomes `:authority`, because servers
    /// refuse a request in which the two differ. curl does the same. A value that is not a valid authority stays a
    /// header.
    pub(crate) fn http2(&self) -> Result<http::Request<RequestBody>, RequestFailure> {
        let given_host = self.hop.headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let headers = self.headers(|name| name != HOST || given_host.is_none());
        let authority = given_host.as_ref().map_or_else(|| host_and_port(&self.hop.url), Authority::as_str);
        Ok(self.request(Version::HTTP_2, absolute_uri(&self.hop.url, authority)?, headers))
    }

    /// The headers of the caller for which `is_sent` returns true, then `accept` and `cookie` unless the caller gave
    /// them, in the order in which they are sent. hyper adds `content-length` after them if there is a body, and
    /// removes headers that HTTP/2 does not allow.
    fn headers(&self, is_sent: impl Fn(&HeaderName) -> bool) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(self.hop.headers.len() + 4);
        for (name, value) in self.hop.headers.iter().filter(|(name, _)| is_sent(name)) {
            headers.append(name.clone(), value.clone());
        }
        headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        if let Some(cookie) = &self.cookie {
            headers.entry(COOKIE).or_insert_with(|| cookie.clone());
        }
        headers
    }

    fn request(&self, version: Version, uri: Uri, headers: HeaderMap) -> http::Request<RequestBody> {
        let mut request = http::Request::new(RequestBody::new(self.hop.body.clone()));
        *request.method_mut() = self.hop.method.clone();
        *request.version_mut() = version;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request
    }
}

/// Path and query of a URL, which is the "origin form" of RFC 9112.
pub(crate) fn origin_uri(url: &Url) -> Result<Uri, RequestFailure> {
    Uri::try_from(&url[Position::BeforePath..Position::AfterQuery]).map_err(other_failure)
}

/// The whole URL with `host` instead of its own host and port, and without user and fragment.
fn absolute_uri(url: &Url, host: &str) -> Result<Uri, RequestFailure> {
    let path_and_query = &url[Position::BeforePath..Position::AfterQuery];
    Uri::try_from(format!("{}://{host}{path_and_query}", url.scheme())).map_err(other_failure)
}

/// Host and port of a URL. The default port of the scheme is left out.
fn host_and_port(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

fn other_failure(error: impl ToString) -> RequestFailure {
    RequestFailure::new(FailureKind::Other, error.to_string())
}
