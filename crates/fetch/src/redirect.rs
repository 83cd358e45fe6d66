//! The rules of redirects: which URL is requested next, and which method, body and headers that request has. A hop is
//! the request to one URL, and each redirect leads to another hop. The rules are part of the protocol of the
//! exec-server, and stricter than those of HTTP libraries: header values that come from environment variables are not
//! sent to another origin. This module sends nothing. Start with [`next_hop`].

use bytes::Bytes;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, COOKIE, HOST, LOCATION, PROXY_AUTHORIZATION, REFERER,
    WWW_AUTHENTICATE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use url::{Position, Url};

use crate::error::{FailureKind, RequestFailure};
use crate::validate::Hop;

/// The most redirects that are followed for one request.
pub const MAX_REDIRECTS: usize = 10;

/// The next hop, if the response is a redirect with a `Location`. `None` if the response goes to the caller.
pub(crate) fn next_hop(hop: &Hop, status: StatusCode, headers: &HeaderMap) -> Result<Option<Hop>, RequestFailure> {
    if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = headers.get(LOCATION) else { return Ok(None) };
    let url = std::str::from_utf8(location.as_bytes()).ok().and_then(|location| hop.url.join(location).ok());
    let Some(url) = url else { return Err(redirect_failure("the target of a redirect is not a URL")) };
    if !matches!(url.scheme(), "http" | "https") {
        let text =
            format!("a redirect leads to a URL of the scheme {}, and only http and https are followed", url.scheme());
        return Err(redirect_failure(text));
    }
    Ok(Some(hop_after_redirect(hop, url, status)))
}

/// The error for a request with more than [`MAX_REDIRECTS`] redirects, for example because they form a loop.
pub(crate) fn too_many() -> RequestFailure {
    redirect_failure(format!("too many redirects, more than {MAX_REDIRECTS}"))
}

fn redirect_failure(text: impl Into<String>) -> RequestFailure {
    RequestFailure::new(FailureKind::Redirect, text)
}

fn hop_after_redirect(hop: &Hop, url: Url, status: StatusCode) -> Hop {
    let mut next = hop.clone();
    let becomes_get = match status {
        StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND => hop.method == Method::POST,
        StatusCode::SEE_OTHER => hop.method != Method::HEAD,
        _ => false,
    };
    if becomes_get {
        next.method = Method::GET;
        next.body = Bytes::new();
        for body_header in [CONTENT_TYPE, CONTENT_ENCODING] {
            next.headers.remove(body_header);
        }
    }
    if url.origin() != hop.url.origin() {
        // These headers are meant for the old origin only. The query in a referer often contains a secret.
        for header in [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION, WWW_AUTHENTICATE, HOST, REFERER] {
            next.headers.remove(header);
        }
        // The same holds for values of environment variables, whatever the headers are called.
        for header in &hop.from_environment {
            next.headers.remove(header);
        }
    } else if let Some(referer) = referer(&hop.url) {
        next.headers.insert(REFERER, referer);
    }
    next.url = url;
    next
}

/// The `Referer` header of a redirect: the old URL without user, password and fragment.
fn referer(url: &Url) -> Option<HeaderValue> {
    let (before_user, after_user) =
        (&url[..Position::BeforeUsername], &url[Position::BeforeHost..Position::AfterQuery]);
    let mut value = HeaderValue::try_from(format!("{before_user}{after_user}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(method: &str, url: &str) -> Hop {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "cookie", "proxy-authorization", "www-authenticate", "x-own", "content-type"] {
            headers.insert(name, HeaderValue::from_static("1"));
        }
        let from_environment = Vec::new();
        let (method, url) = (method.parse().unwrap(), Url::parse(url).unwrap());
        Hop { method, url, headers, from_environment, body: "body".into() }
    }

    fn next(hop: &Hop, status: u16, location: &str) -> Result<Option<Hop>, String> {
        let headers = [(LOCATION, HeaderValue::from_str(location).unwrap())].into_iter().collect();
        next_hop(hop, StatusCode::from_u16(status).unwrap(), &headers).map_err(|failure| failure.text)
    }

    #[test]
    fn the_status_decides_whether_method_and_body_are_kept() {
        for (status, method, expected) in [
            (301, "POST", "GET"),
            (302, "POST", "GET"),
            (301, "PUT", "PUT body"),
            (302, "DELETE", "DELETE body"),
            (303, "POST", "GET"),
            (303, "PUT", "GET"),
            (303, "HEAD", "HEAD body"),
            (307, "POST", "POST body"),
            (308, "PATCH", "PATCH body"),
        ] {
            let next = next(&hop(method, "http://a/"), status, "/x").unwrap().unwrap();
            let shown = format!("{} {}", next.method, std::str::from_utf8(&next.body).unwrap());
            assert_eq!(shown.trim_end(), expected, "{status} {method}");
            assert_eq!(next.headers.contains_key(CONTENT_TYPE), expected.ends_with("body"));
        }
    }

    #[test]
    fn credentials_are_not_sent_to_another_origin() {
        let kept_headers = |from, to| next(&hop("GET", from), 302, to).unwrap().unwrap().headers.len();
        for same in ["http://a/y", "/y", "//a:80/y", "?q", "http://a:80"] {
            assert_eq!(kept_headers("http://a/x", same), 7, "{same}: all six and a referer");
        }
        for other in ["http://b/", "http://a:81/", "https://a/", "http://sub.a/", "//b"] {
            assert_eq!(kept_headers("http://a/x", other), 2, "{other}: only x-own and content-type");
        }
    }

    #[test]
    fn only_a_redirect_within_an_origin_has_a_referer() {
        let referer = |from, to| {
            let next = next(&hop("GET", from), 302, to).unwrap().unwrap();
            next.headers.get(REFERER).map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(referer("http://u:p@a:81/x?q=1#f", "/y").unwrap(), "http://a:81/x?q=1");
        for other in ["http://b/", "https://a:81/", "http://a/"] {
            assert_eq!(referer("http://a:81/x?q=1", other), None, "{other}");
        }
    }

    #[test]
    fn values_from_the_environment_are_not_sent_to_another_origin() {
        let from = Hop { from_environment: vec!["x-own".parse().unwrap()], ..hop("GET", "http://a/x") };
        let has_own = |to| next(&from, 302, to).unwrap().unwrap().headers.contains_key("x-own");
        assert!(has_own("/y") && !has_own("http://b/") && !has_own("https://a/"));
    }

    #[test]
    fn the_error_for_a_redirect_that_cannot_be_followed_does_not_contain_its_target() {
        let hop = hop("GET", "http://a/x");
        let scheme = "a redirect leads to a URL of the scheme ftp, and only http and https are followed";
        assert_eq!(next(&hop, 302, "ftp://b/secret").err().unwrap(), scheme);
        assert_eq!(next(&hop, 302, "http://b:99999/secret").err().unwrap(), "the target of a redirect is not a URL");
    }

    #[test]
    fn responses_that_are_not_redirects_are_returned_to_the_caller() {
        let hop = hop("GET", "http://a/x");
        for status in [200, 201, 300, 304, 305, 400] {
            assert!(next(&hop, status, "/y").unwrap().is_none());
        }
        // This response has the status of a redirect, but no `Location`.
        assert!(next_hop(&hop, StatusCode::FOUND, &HeaderMap::new()).ok().unwrap().is_none());
    }
}
