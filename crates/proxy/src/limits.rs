//! The limits of a proxy. No user setting changes them; tests pass shorter times in [`ProxyLimits`]. The exec-server lists
//! them in `docs/limits.md`.

use std::time::Duration;

/// Limit for the concurrent connections of one proxy. Further connections wait in the queue of the socket, so a
/// process that opens too many only delays itself.
pub const MAX_CONNECTIONS: usize = 128;

/// Limit for the bytes of the headers of a request. A request with more is answered with 431.
pub const MAX_REQUEST_HEAD_BYTES: usize = 64 << 10;

/// Limit for the bytes of the headers of a response, together with the informational responses (status 1xx) before
/// it. A response with more becomes the status 502.
pub const MAX_RESPONSE_HEAD_BYTES: usize = 256 << 10;

/// Limit for the number of headers of a request (a request with more is answered with 431) and of a response (a
/// response with more becomes the status 502).
pub const MAX_HEADERS: usize = 1000;

/// Time within which a program must send the headers of a request, or its part of the SOCKS5 handshake. An HTTP
/// connection that is kept open is closed after this time without a further request.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for looking up the name of the target, including the wait for other look-ups to end. After this time the
/// request fails with the status 504 or the SOCKS5 code 6.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for all connection attempts to the target. The name look-up before them is not included.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection that carries no byte in either direction for this time is closed. Waiting for a decision does not
/// count.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(15 * 60);

/// Limit for the bytes of one read from a program or a target over HTTP. The buffers of hyper grow with the size of the
/// reads. With this limit, the body of a response that the program does not read takes about 220 KiB, and the body of a
/// request that the target does not read about 450 KiB. Headers are not bounded by it but by [`MAX_RESPONSE_HEAD_BYTES`]:
/// the largest ones take about 460 KiB if the program does not read them, and about 860 KiB if it has sent further
/// requests.
pub const HTTP_READ_BYTES: usize = 16 << 10;

/// Size of each of the two buffers of a tunnel.
pub const TUNNEL_BUFFER_BYTES: usize = 16 << 10;

/// Limit for the addresses of a host that are tried.
pub const MAX_ADDRESSES: usize = 8;

/// Limit for the bytes of the method of an HTTP request. The longest registered method has 17.
pub const MAX_METHOD_BYTES: usize = 32;

/// Limit for the bytes of a host name, from the rules of DNS.
pub const MAX_HOST_BYTES: usize = 253;

/// Limit for the number of domain patterns of one proxy.
pub const MAX_PATTERNS: usize = 4096;

/// Limit for the bytes of all domain patterns of one proxy. They are kept as long as the proxy, once or twice.
pub const MAX_PATTERN_BYTES: usize = 256 << 10;

/// The timeouts of one proxy, and its limit of concurrent connections. Tests use shorter times.
#[derive(Clone, Copy, Debug)]
pub struct ProxyLimits {
    /// Concurrent connections. The default is [`MAX_CONNECTIONS`].
    pub connections: usize,
    /// Time for the headers of a request. The default is [`HANDSHAKE_TIMEOUT`].
    pub handshake_timeout: Duration,
    /// Time for looking up a name. The default is [`LOOKUP_TIMEOUT`].
    pub lookup_timeout: Duration,
    /// Time for all connection attempts. The default is [`CONNECT_TIMEOUT`].
    pub connect_timeout: Duration,
    /// Time without a byte. The default is [`IDLE_TIMEOUT`].
    pub idle_timeout: Duration,
}

impl Default for ProxyLimits {
    fn default() -> Self {
        Self {
            connections: MAX_CONNECTIONS,
            handshake_timeout: HANDSHAKE_TIMEOUT,
            lookup_timeout: LOOKUP_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
        }
    }
}
