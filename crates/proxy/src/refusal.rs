//! Why a request did not reach its target.

use std::io;

/// Why a request did not reach its target. HTTP and SOCKS5 have their own codes for each of these.
#[derive(Debug)]
pub(crate) enum ProxyRefusal {
    /// The policy refuses the request.
    Policy { host: String, reason: String },
    /// The name cannot be resolved.
    Unresolved,
    /// No address of the target accepts a connection.
    Unreachable(io::ErrorKind),
    /// Connecting took too long.
    TimedOut,
}
