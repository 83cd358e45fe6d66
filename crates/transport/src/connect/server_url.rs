//! Parses the URL of a server as a person writes it. The user and the query of a URL may be secret, so messages show the URL without
//! them.

use std::path::PathBuf;

use http::Uri;

use super::error::ConnectError;

/// The URL of a server, by transport.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ServerUrl {
    Unix(PathBuf),
    WebSocket(WebSocketUrl),
}

/// The parts of `ws://` and `wss://`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WebSocketUrl {
    pub(super) is_secure: bool,
    /// A host name or an IP address. An IPv6 address has no brackets here.
    pub(super) host: String,
    pub(super) port: u16,
    /// Host and port as written in the URL, for the `Host` header.
    pub(super) authority: String,
    /// The target of the upgrade request.
    pub(super) path_and_query: String,
    /// The URL for messages: without user, query and fragment.
    pub(super) display: String,
}

impl ServerUrl {
    pub(super) fn parse(url: &str) -> Result<Self, ConnectError> {
        let invalid = |reason| ConnectError::InvalidUrl { url: without_secrets(url), reason };
        match url.split_once("://") {
            Some(("unix", "")) => Err(invalid("it has no path")),
            Some(("unix", path)) => Ok(Self::Unix(path.into())),
            Some(("ws", _)) => parse_websocket(url, false).map(Self::WebSocket).map_err(invalid),
            Some(("wss", _)) => parse_websocket(url, true).map(Self::WebSocket).map_err(invalid),
            _ => Err(ConnectError::UnsupportedUrl(without_secrets(url))),
        }
    }
}

fn parse_websocket(url: &str, is_secure: bool) -> Result<WebSocketUrl, &'static str> {
    // `Uri` would ignore a fragment silently.
    if url.contains('#') {
        return Err("it has a fragment (`#…`), which is never sent; remove it");
    }
    let uri: Uri =
        url.parse().map_err(|_| "it is not a URL; expected `HOST:PORT/PATH`, IPv6 addresses in brackets")?;
    let authority = uri.authority().ok_or("it has no host")?.as_str();
    if authority.contains('@') {
        return Err("it has a user (`USER@`), which is not sent; authenticate with a token");
    }
    let host = uri.host().filter(|host| !host.is_empty()).ok_or("it has no host")?;
    let port = match authority.strip_prefix(host).unwrap_or_default() {
        "" => {
            if is_secure {
                443
            } else {
                80
            }
        }
        port => port
            .strip_prefix(':')
            .and_then(|port| port.parse().ok())
            .filter(|port| *port > 0)
            .ok_or("its port is not a number from 1 to 65535")?,
    };
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    Ok(WebSocketUrl {
        is_secure,
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port,
        authority: authority.to_owned(),
        path_and_query: format!("{}{query}", uri.path()),
        display: without_secrets(url),
    })
}

/// The URL for messages: without query and fragment, and with `…` for the user.
fn without_secrets(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let (scheme, rest) = url[..end].split_once("://").unwrap_or(("", &url[..end]));
    // A user that is not percent-encoded may contain any character, even a slash.
    let rest = rest.rsplit_once('@').map_or(rest.to_owned(), |(_, host)| format!("…@{host}"));
    if scheme.is_empty() { rest } else { format!("{scheme}://{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn websocket(url: &str) -> WebSocketUrl {
        match ServerUrl::parse(url) {
            Ok(ServerUrl::WebSocket(parsed)) => parsed,
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn a_url_is_split_into_parts_with_a_default_port_and_path() {
        for (url, host, port, path_and_query) in [
            ("ws://box", "box", 80, "/"),
            ("wss://box", "box", 443, "/"),
            ("ws://box:81/", "box", 81, "/"),
            ("wss://box.example/a/b?c=d&e", "box.example", 443, "/a/b?c=d&e"),
            ("ws://box?c=d", "box", 80, "/?c=d"),
            ("ws://[::1]:9", "::1", 9, "/"),
            ("wss://[2001:db8::1]/x", "2001:db8::1", 443, "/x"),
            ("ws://127.0.0.1:65535", "127.0.0.1", 65535, "/"),
        ] {
            let parsed = websocket(url);
            assert_eq!(
                (parsed.host.as_str(), parsed.port, parsed.path_and_query.as_str()),
                (host, port, path_and_query),
                "{url}"
            );
            assert_eq!(parsed.is_secure, url.starts_with("wss"));
        }
        assert_eq!(websocket("ws://[::1]:9/x").authority, "[::1]:9");
        assert_eq!(ServerUrl::parse("unix:///run/a?b#c").unwrap(), ServerUrl::Unix("/run/a?b#c".into()));
    }

    #[test]
    fn an_invalid_url_is_refused_with_a_reason_and_without_its_secrets() {
        for (url, shown, reason) in [
            ("ws://ann:pass@box/x?token=1", "ws://…@box/x", "it has a user"),
            ("wss://a/b@box?token=1#f", "wss://…@box", "it has a fragment"),
            ("ws://box/#top", "ws://box/", "it has a fragment"),
            ("ws://", "ws://", "it "),
            ("ws://:80", "ws://:80", "it "),
            ("ws://box:", "ws://box:", "its port is not"),
            ("ws://box:0?token=1", "ws://box:0", "its port is not"),
            ("ws://box:65536", "ws://box:65536", "it"),
            ("ws://::1:80", "ws://::1:80", "it is not a URL"),
            ("ws://a b", "ws://a b", "it is not a URL"),
            ("unix://", "unix://", "it has no path"),
        ] {
            let error = ServerUrl::parse(url).unwrap_err();
            let message = error.to_string();
            assert!(message.starts_with(&format!("cannot connect to `{shown}`: {reason}")), "{message}");
            assert!(!error.is_retryable());
        }
        let unsupported = ServerUrl::parse("http://a:b@box/?token=1").unwrap_err().to_string();
        assert!(unsupported.starts_with("cannot connect to `http://…@box/`; expected"), "{unsupported}");
        assert!(ServerUrl::parse("box:80").is_err());
    }
}
