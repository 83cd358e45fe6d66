//! The client's upgrade request and what the server says to it. Just enough HTTP/1.1 for this one exchange.

use bytes::{Bytes, BytesMut};
use http::{HeaderName, HeaderValue};
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{ConnectError, ConnectOptions};
use crate::websocket::{accept_key, new_key};

/// Far more than any server sends with a 101.
const MAX_RESPONSE_BYTES: usize = 16 * 1024;
const END_OF_HEADERS: &[u8] = b"\r\n\r\n";

/// Upgrades `io` and returns what the server sent right behind its answer.
pub(super) async fn request<T: AsyncRead + AsyncWrite + Unpin>(
    io: &mut T,
    host: &str,
    options: &ConnectOptions,
) -> Result<Bytes, ConnectError> {
    let failed = |source| ConnectError::Io { url: host.into(), source };
    let key = new_key();
    let request = request_head(host, &key, options)?;
    io.write_all(request.as_bytes()).await.map_err(failed)?;
    io.flush().await.map_err(failed)?;

    let mut response = BytesMut::new();
    loop {
        if let Some(end) = memmem::find(&response, END_OF_HEADERS) {
            let head = response.split_to(end + END_OF_HEADERS.len());
            check_response(&head, &key)?;
            return Ok(response.freeze());
        }
        if response.len() > MAX_RESPONSE_BYTES {
            return Err(ConnectError::BadResponse("its headers do not end"));
        }
        if io.read_buf(&mut response).await.map_err(failed)? == 0 {
            return Err(ConnectError::BadResponse("it ends in its headers"));
        }
    }
}

fn request_head(host: &str, key: &str, options: &ConnectOptions) -> Result<String, ConnectError> {
    let mut head = format!(
        "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
    );
    let bearer = options.bearer_token.as_ref().map(|token| ("Authorization".to_owned(), format!("Bearer {token}")));
    for (name, value) in bearer.iter().chain(&options.headers) {
        // A line break in a header would be a header of somebody else's choice.
        if HeaderName::try_from(name).is_err() || HeaderValue::try_from(value).is_err() {
            return Err(ConnectError::InvalidHeader(name.clone()));
        }
        head.extend([name, ": ", value, "\r\n"]);
    }
    head.push_str("\r\n");
    Ok(head)
}

fn check_response(head: &[u8], key: &str) -> Result<(), ConnectError> {
    let head = std::str::from_utf8(head).map_err(|_| ConnectError::BadResponse("its headers are not text"))?;
    let mut lines = head.split("\r\n");
    match status(lines.next().unwrap_or_default()) {
        None => return Err(ConnectError::BadResponse("it is not HTTP/1.1")),
        Some(101) => {}
        Some(status) => return Err(ConnectError::Refused { status }),
    }
    let headers = lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim()));
    let mut accepts = headers.filter(|(name, _)| name.eq_ignore_ascii_case("sec-websocket-accept"));
    match accepts.next() {
        Some((_, accept)) if accept == accept_key(key.as_bytes()) => Ok(()),
        _ => Err(ConnectError::BadResponse("its Sec-WebSocket-Accept does not belong to our key")),
    }
}

fn status(line: &str) -> Option<u16> {
    line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}
