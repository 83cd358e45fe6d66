//! Sends HTTP requests byte for byte, so that a test can send requests that no HTTP library would send. Reads only
//! the kind of response that the server of this project sends: HTTP/1.1 with `content-length`, or without a body.

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::wait::WAIT_TIMEOUT;

/// The response of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// Status code from the status line.
    pub status: u16,
    /// Status line and headers, in lower case.
    pub head: String,
    /// Body of the length that `content-length` gives. Empty without that header.
    pub body: String,
}

/// Sends a GET request to `IP:PORT` over a new connection.
pub async fn http_get(address: &str, path: &str, headers: &[(&str, &str)]) -> HttpAnswer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    http_exchange(&mut stream, &http_request(path, headers)).await
}

/// The text of a GET request. `Host` is `localhost` unless `headers` contain it.
pub fn http_request(path: &str, headers: &[(&str, &str)]) -> String {
    let host = if headers.iter().any(|(name, _)| *name == "Host") { "" } else { "Host: localhost\r\n" };
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("GET {path} HTTP/1.1\r\n{host}{headers}\r\n")
}

/// Headers of a WebSocket upgrade, for [`http_request`].
pub const UPGRADE_HEADERS: &[(&str, &str)] = &[
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// Sends a request over an open connection and reads the response, but no byte after it.
pub async fn http_exchange<T: AsyncRead + AsyncWrite + Unpin>(io: &mut T, request: &str) -> HttpAnswer {
    io.write_all(request.as_bytes()).await.unwrap();
    tokio::time::timeout(WAIT_TIMEOUT, read_answer(io)).await.expect("no answer came for too long")
}

async fn read_answer<T: AsyncRead + Unpin>(io: &mut T) -> HttpAnswer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.expect("the connection ended in the headers"));
    }
    let head = String::from_utf8(head).unwrap().to_lowercase();
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    io.read_exact(&mut body).await.unwrap();
    HttpAnswer { status: head[9..12].parse().unwrap(), head, body: String::from_utf8(body).unwrap() }
}
