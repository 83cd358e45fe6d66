//! A hop as HTTP/1.1 and HTTP/2 write it. The order of the headers is part of the protocol: requests look on the wire as those of the
//! published server. Sends nothing. Start with [`RequestMessage`].

use http::header::{ACCEPT, COOKIE, HOST, PROXY_AUTHORIZATION};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, Version};
use url::{Position, Url};

use crate::error::{FailureKind, RequestFailure};
use crate::proxy::{HttpProxy, Route};
use crate::request_body::RequestBody;
use crate::validate::Hop;

/// A request for one hop, which can be written more than once.
pub(crate) struct RequestMessage<'a> {
    pub(crate) hop: &'a Hop,
    pub(crate) route: &'a Route,
    /// Value of the `cookie` header, unless the caller gave one.
    pub(crate) cookie: Option<HeaderValue>,
}

impl RequestMessage<'_> {
    /// For an HTTP/1.1 connection. The first line has the whole URL if a proxy passes the request on, else path and query.
    pub(crate) fn http1(&self) -> Result<http::Request<RequestBody>, RequestFailure> {
        let mut headers = self.headers(|_| true);
        if !headers.contains_key(HOST) {
            headers.insert(HOST, HeaderValue::try_from(host(&self.hop.url)).map_err(unusable)?);
        }
        let uri = match self.route {
            Route::Forward(HttpProxy { authorization, .. }) => {
                if let Some(authorization) = authorization {
                    headers.entry(PROXY_AUTHORIZATION).or_insert_with(|| authorization.clone());
                }
                absolute_uri(&self.hop.url, host(&self.hop.url))?
            }
            _ => origin_uri(&self.hop.url)?,
        };
        Ok(self.request(Version::HTTP_11, uri, headers))
    }

    /// For an HTTP/2 connection. The host is in `:authority`, also if the caller gave it in a header, as curl does it: servers refuse a request
    /// in which the two differ. A value that cannot stand there stays a header.
    pub(crate) fn http2(&self) -> Result<http::Request<RequestBody>, RequestFailure> {
        let given = self.hop.headers.get(HOST).and_then(|given| Authority::try_from(given.as_bytes()).ok());
        let headers = self.headers(|name| name != HOST || given.is_none());
        let authority = given.as_ref().map_or_else(|| host(&self.hop.url), Authority::as_str);
        Ok(self.request(Version::HTTP_2, absolute_uri(&self.hop.url, authority)?, headers))
    }

    /// Those headers that do not depend on the version, in the order in which they go out. hyper adds `content-length` behind them if there is a body, and
    /// leaves out those that HTTP/2 does not allow.
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

/// Path and query. Never the fragment or the user.
pub(crate) fn origin_uri(url: &Url) -> Result<Uri, RequestFailure> {
    Uri::try_from(&url[Position::BeforePath..Position::AfterQuery]).map_err(unusable)
}

fn absolute_uri(url: &Url, host: &str) -> Result<Uri, RequestFailure> {
    let path_and_query = &url[Position::BeforePath..Position::AfterQuery];
    Uri::try_from(format!("{}://{host}{path_and_query}", url.scheme())).map_err(unusable)
}

/// Host and port, without a port that is the default.
fn host(url: &Url) -> &str {
    &url[Position::BeforeHost..Position::AfterPort]
}

fn unusable(error: impl ToString) -> RequestFailure {
    RequestFailure::new(FailureKind::Other, error.to_string())
}
