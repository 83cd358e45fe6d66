//! The failures of a request before it reached its target: refused by the policy, or no connection.

use std::io;

/// Why a request did not reach its target. HTTP and SOCKS5 have their own codes for each of these.
#[derive(Debug)]
pub(crate) enum ConnectFailure {
    /// The policy refuses the request.
    Policy { host: String, reason: String },
    /// The name cannot be resolved.
    Unresolved,
    /// No address of the target accepts a connection.
    Unreachable(io::ErrorKind),
    /// Resolving the name or connecting took too long.
    TimedOut,
}
