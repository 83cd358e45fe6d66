//! The limits of a proxy. No setting changes them. The exec-server lists them in `docs/limits.md`.

use std::time::Duration;

/// Limit for the concurrent connections of one proxy. Further connections wait in the queue of the socket, so a
/// process that opens too many only delays itself.
pub const MAX_CONNECTIONS: usize = 128;

/// Limit for the bytes of the headers of a request. A request with more is answered with 431.
pub const MAX_REQUEST_HEAD_BYTES: usize = 64 << 10;

/// Limit for the bytes of the headers of a response. A response with more becomes the status 502.
pub const MAX_RESPONSE_HEAD_BYTES: usize = 256 << 10;

/// Time within which a program must send the headers of a request, or its part of the SOCKS5 handshake. An HTTP
/// connection that is kept open is closed after this time without a further request.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for connecting to the target, all its addresses together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection that carries no byte in either direction for this time is closed. Waiting for a decision does not
/// count.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Size of each of the two buffers of a tunnel.
pub const TUNNEL_BUFFER_BYTES: usize = 16 << 10;

/// Limit for the addresses of a host that are tried.
pub const MAX_ADDRESSES: usize = 8;

/// Limit for the bytes of the method of an HTTP request. The longest registered method has 17.
pub const MAX_METHOD_BYTES: usize = 32;

/// Limit for the bytes of a host name, from the rules of DNS.
pub const MAX_HOST_BYTES: usize = 253;

/// The limits of one proxy that depend on time or count. Tests use shorter times.
#[derive(Clone, Copy, Debug)]
pub struct ProxyLimits {
    /// Concurrent connections. The default is [`MAX_CONNECTIONS`].
    pub connections: usize,
    /// Time for the headers of a request. The default is [`HANDSHAKE_TIMEOUT`].
    pub handshake_timeout: Duration,
    /// Time for reaching the target. The default is [`CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// Time without a byte. The default is [`IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            connections: MAX_CONNECTIONS,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
        }
    }
}
