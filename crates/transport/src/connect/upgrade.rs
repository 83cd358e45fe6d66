//! Sends the HTTP upgrade request of a client and checks the answer of the server. It implements only as much of HTTP/1.1 as this
//! exchange needs.

use std::io;

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::error::retry_after;
use super::{ConnectError, ConnectOptions};
use crate::websocket::{accept_key, new_key};

/// Limit for the headers of the answer. They are usually shorter than 1 KiB.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;
/// First bytes of a TLS record with an alert. A server with TLS answers a request without TLS like this.
const TLS_ALERT: &[u8] = &[0x15, 0x03];
const END_OF_HEADERS: &[u8] = b"\r\n\r\n";

/// The target of the upgrade request, for its headers and for error messages.
#[derive(Clone, Copy)]
pub(super) struct UpgradeTarget<'a> {
    pub(super) authority: &'a str,
    pub(super) path_and_query: &'a str,
    /// The URL for error messages, without user and query.
    pub(super) display_url: &'a str,
}

/// Upgrades `io` to a WebSocket. Returns the bytes that were read after the headers of the answer: the beginning of
/// the first WebSocket frames, or nothing.
pub(super) async fn request<T: AsyncRead + AsyncWrite + Unpin>(
    io: &mut T,
    target: UpgradeTarget<'_>,
    options: &ConnectOptions,
) -> Result<Bytes, ConnectError> {
    let failed = |source| ConnectError::Io { url: target.display_url.into(), source };
    check_headers(options)?;
    let key = new_key();
    let request = request_head(target, &key, options);
    io.write_all(request.as_bytes()).await.map_err(failed)?;
    io.flush().await.map_err(failed)?;

    let mut response = BytesMut::new();
    loop {
        if let Some(end) = memmem::find(&response, END_OF_HEADERS) {
            let head = response.split_to(end + END_OF_HEADERS.len());
            check_response(&head, &key)?;
            return Ok(response.freeze());
        }
        if response.starts_with(TLS_ALERT) {
            return Err(ConnectError::BadResponse("it is TLS; a server with TLS is reached with wss://"));
        }
        if response.len() > MAX_RESPONSE_BYTES {
            return Err(ConnectError::BadResponse("its headers do not end"));
        }
        if io.read_buf(&mut response).await.map_err(failed)? == 0 {
            let message = match response.is_empty() {
                true => "the server closed the connection without an answer",
                false => "the connection ended in the middle of the server's answer",
            };
            return Err(failed(io::Error::new(io::ErrorKind::UnexpectedEof, message)));
        }
    }
}

/// Checks that the headers can be sent. A line break in a value would inject another header.
pub(super) fn check_headers(options: &ConnectOptions) -> Result<(), ConnectError> {
    let is_invalid = |(name, value): &(String, String)| {
        HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err()
    };
    match authorization(options).iter().chain(&options.headers).find(|header| is_invalid(header)) {
        Some((name, _)) => Err(ConnectError::InvalidHeader(name.clone())),
        None => Ok(()),
    }
}

fn request_head(target: UpgradeTarget<'_>, key: &str, options: &ConnectOptions) -> String {
    let UpgradeTarget { authority, path_and_query, .. } = target;
    let mut head = format!(
        "GET {path_and_query} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    );
    for (name, value) in authorization(options).iter().chain(&options.headers) {
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    head
}

fn authorization(options: &ConnectOptions) -> Option<(String, String)> {
    options.bearer_token.as_ref().map(|token| ("Authorization".to_owned(), format!("Bearer {token}")))
}

fn check_response(head: &[u8], key: &str) -> Result<(), ConnectError> {
    let head = std::str::from_utf8(head).map_err(|_| ConnectError::BadResponse("its headers are not text"))?;
    let mut lines = head.split("\r\n");
    let first_line = lines.next().unwrap_or_default();
    let mut headers = lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()));
    match status(first_line) {
        None => return Err(ConnectError::BadResponse("it is not HTTP/1")),
        Some(101) => {}
        Some(status) => {
            let value = headers.find(|(name, _)| name.eq_ignore_ascii_case("retry-after"));
            return Err(ConnectError::Refused {
                status,
                retry_after: value.and_then(|(_, value)| retry_after(value)),
            });
        }
    }
    let mut accepts = headers.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-accept"));
    match accepts.next() {
        Some((_, accept)) if accept == accept_key(key.as_bytes()) => Ok(()),
        _ => Err(ConnectError::BadResponse("its Sec-WebSocket-Accept does not belong to our key")),
    }
}

fn status(line: &str) -> Option<u16> {
    // Some proxies answer in HTTP/1.0 when they cannot reach the server.
    line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "))?.get(..3)?.parse().ok()
}
