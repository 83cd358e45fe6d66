//! CONNECT: asks a proxy for a connection to somebody else.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::endpoint::Endpoint;
use crate::error::{FailureKind, RequestFailure};
use crate::proxy::Proxy;

/// Far more than any proxy says before it steps back.
const MAX_ANSWER_BYTES: usize = 16 * 1024;
const END_OF_HEADERS: &[u8] = b"\r\n\r\n";

/// After this the stream is one to `target`.
pub(crate) async fn open<T>(stream: &mut T, proxy: &Proxy, target: &Endpoint) -> Result<(), RequestFailure>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let lost =
        |error| RequestFailure::new(FailureKind::Connect, format!("the proxy {} was lost: {error}", proxy.endpoint));
    let refused =
        |words: String| RequestFailure::new(FailureKind::Connect, format!("the proxy {} {words}", proxy.endpoint));
    stream.write_all(&request(proxy, target)).await.map_err(lost)?;
    stream.flush().await.map_err(lost)?;
    let mut answer = Vec::new();
    while !answer.ends_with(END_OF_HEADERS) {
        if answer.len() >= MAX_ANSWER_BYTES {
            return Err(refused("does not end the headers of its answer".to_owned()));
        }
        // Byte by byte: what follows the headers is not ours to read, and this happens once a connection.
        answer.push(stream.read_u8().await.map_err(lost)?);
    }
    match status(&answer) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(refused("wants other credentials (HTTP status 407)".to_owned())),
        Some(status) => Err(refused(format!("refused a connection to {target} with HTTP status {status}"))),
        None => Err(refused("does not speak HTTP".to_owned())),
    }
}

fn request(proxy: &Proxy, target: &Endpoint) -> Vec<u8> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(authorization) = &proxy.authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    request
}

fn status(answer: &[u8]) -> Option<u16> {
    let rest = answer.strip_prefix(b"HTTP/1.1 ").or_else(|| answer.strip_prefix(b"HTTP/1.0 "))?;
    std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok()
}
