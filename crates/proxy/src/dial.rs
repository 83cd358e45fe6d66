//! Connects to the addresses of a target, one after the other.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::connect_failure::ConnectFailure;

/// Connects to the first address that accepts. Each address gets an equal part of the time that is left, so that one
/// that does not answer leaves time for the others. Returns the address that has accepted too.
pub(crate) async fn dial(addresses: &[SocketAddr], time: Duration) -> Result<(TcpStream, IpAddr), ConnectFailure> {
    let deadline = Instant::now() + time;
    let mut failure = ConnectFailure::Unreachable(io::ErrorKind::AddrNotAvailable);
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        match timeout_at(Instant::now() + share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A proxy passes on each piece as it comes. Without the option the kernel would delay small pieces.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set TCP_NODELAY");
                }
                return Ok((stream, address.ip()));
            }
            Ok(Err(error)) => failure = ConnectFailure::Unreachable(error.kind()),
            Err(_) => failure = ConnectFailure::TimedOut,
        }
    }
    Err(failure)
}
