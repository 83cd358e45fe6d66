//! Checks the request of a caller before anything is sent. The texts of the errors are part of the protocol. Start
//! with [`first_hop`].

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use url::Url;

use crate::environment::Environment;
use crate::error::FetchError;
use crate::request::{FetchRequest, Header};

/// The request to one URL. A redirect leads to another hop.
#[derive(Clone)]
pub(crate) struct Hop {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// The headers of the caller, with the changes that earlier redirects made. The module `message` adds others.
    pub(crate) headers: HeaderMap,
    /// Names of the headers whose values contain the value of an environment variable. After a redirect to another
    /// origin, these headers are not sent.
    pub(crate) from_environment: Vec<HeaderName>,
    /// Empty if the request has no body.
    pub(crate) body: Bytes,
}

/// Checks method, URL and headers of a request, in this order, and returns its first hop. The error is about the
/// first part that is wrong.
pub(crate) fn first_hop(request: &FetchRequest, environment: &Environment) -> Result<Hop, FetchError> {
    let method = Method::from_bytes(request.method.as_bytes())
        .map_err(|error| FetchError::Invalid(format!("http/request method is invalid: {error}")))?;
    let url = parse_url(&request.url)?;
    let headers = checked_headers(&request.headers, environment)?;
    let using_variable = request.headers.iter().filter(|header| header.value_env_var.is_some());
    let from_environment =
        using_variable.filter_map(|header| HeaderName::from_bytes(header.name.as_bytes()).ok()).collect();
    Ok(Hop { method, url, headers, from_environment, body: request.body.clone().unwrap_or_default() })
}

fn parse_url(text: &str) -> Result<Url, FetchError> {
    let url =
        Url::parse(text).map_err(|error| FetchError::Invalid(format!("http/request url is invalid: {error}")))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(FetchError::Invalid(format!("http/request only supports http and https URLs, got {other}"))),
    }
}

fn checked_headers(headers: &[Header], environment: &Environment) -> Result<HeaderMap, FetchError> {
    let mut checked = HeaderMap::new();
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes())
            .map_err(|error| FetchError::Invalid(format!("http/request header name is invalid: {error}")))?;
        let mut value = HeaderValue::try_from(environment.header_value(header)?).map_err(|error| {
            FetchError::Invalid(format!("http/request header value is invalid for {}: {error}", header.name))
        })?;
        value.set_sensitive(true);
        // hyper sets these two headers itself if the request needs them. A wrong length could hide a second request
        // in the body of this one.
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
            continue;
        }
        let appended = checked.try_append(name, value);
        appended.map_err(|_| FetchError::Invalid("http/request has too many headers".to_owned()))?;
    }
    Ok(checked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Redirects;

    fn request(method: &str, url: &str, headers: &[(&str, &str)]) -> FetchRequest {
        let header = |(name, value): &(&str, &str)| Header {
            name: (*name).into(),
            value: (*value).into(),
            value_env_var: None,
        };
        FetchRequest {
            method: method.into(),
            url: url.into(),
            headers: headers.iter().map(header).collect(),
            body: None,
            timeout: None,
            redirects: Redirects::Follow,
            max_body_bytes: None,
        }
    }

    fn hop(method: &str, url: &str, headers: &[(&str, &str)]) -> Result<Hop, String> {
        first_hop(&request(method, url, headers), &Environment::new(Vec::new())).map_err(|error| error.to_string())
    }

    #[test]
    fn the_error_is_about_the_first_invalid_part_and_contains_no_secret() {
        let cases = [
            ("GE T", "nonsense", None, "http/request method is invalid: invalid HTTP method"),
            ("", "http://h/", None, "http/request method is invalid: invalid HTTP method"),
            ("GET", "/secret", Some(("b ad", "")), "http/request url is invalid: relative URL without a base"),
            ("GET", "http://h:99999/secret", None, "http/request url is invalid: invalid port number"),
            ("GET", "http://", None, "http/request url is invalid: empty host"),
            ("GET", "file:///secret", None, "http/request only supports http and https URLs, got file"),
            (
                "GET",
                "http://h/",
                Some(("b ad", "x")),
                "http/request header name is invalid: invalid HTTP header name",
            ),
            (
                "GET",
                "http://h/",
                Some(("X-One", "a\r\nX-Two: b")),
                "http/request header value is invalid for X-One: failed to parse header value",
            ),
        ];
        for (method, url, header, text) in cases {
            assert_eq!(hop(method, url, header.as_slice()).err().unwrap(), text);
        }
    }

    #[test]
    fn repeated_headers_are_kept_and_content_length_and_transfer_encoding_are_dropped() {
        let headers = [("b", "1"), ("a", "2"), ("b", "3"), ("Content-Length", "9"), ("Transfer-Encoding", "chunked")];
        let hop = hop("GET", "http://h/", &headers).unwrap();
        let kept: Vec<_> = hop.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(kept, [("b", "1"), ("b", "3"), ("a", "2")]);
    }

    #[test]
    fn a_method_that_no_standard_defines_is_accepted() {
        assert_eq!(hop("PURGE", "http://h/", &[]).unwrap().method, "PURGE");
    }

    #[test]
    fn too_many_headers_are_refused() {
        let names: Vec<String> = (0..40_000).map(|number| format!("x-{number}")).collect();
        let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
        assert_eq!(hop("GET", "http://h/", &headers).err().unwrap(), "http/request has too many headers");
    }

    #[test]
    fn user_and_password_in_the_url_add_no_header() {
        assert!(hop("GET", "http://u%40:p%3A@h/", &[]).unwrap().headers.is_empty());
    }
}
