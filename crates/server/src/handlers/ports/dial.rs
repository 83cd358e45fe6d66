//! Connects to a TCP port, with one time limit for looking up the name and for all addresses of the host.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use protocol::{ErrorData, WireError, error_kind};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};

use crate::server_state::ServerState;
use crate::session::Session;

/// Tries the addresses of the host in their order, and returns the first connection.
pub(super) async fn dial(
    shared: &ServerState,
    session: &Session,
    host: &str,
    port: u16,
) -> Result<TcpStream, WireError> {
    let limit = shared.config.port_connect_timeout;
    let deadline = Instant::now() + limit;
    let to = address_text(host, port);
    let resolving = shared.lookups.resolve(host, &session.http_owner);
    let addresses = match timeout_at(deadline, resolving).await {
        Ok(Ok(addresses)) if !addresses.is_empty() => addresses,
        Ok(Ok(_)) => return Err(failed(error_kind::UNKNOWN_HOST, &to, "the host has no address")),
        Ok(Err(error)) => {
            return Err(failed(error_kind::UNKNOWN_HOST, &to, &format!("the host is not known: {error}")));
        }
        Err(_) => return Err(timed_out(&to, limit)),
    };
    let mut last = None;
    for (tried, address) in addresses.iter().enumerate() {
        // Each address gets an equal share of the time that is left, so that a silent one leaves time for the others.
        let share = (deadline - Instant::now()) / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        match timeout(share, connect(*address, port)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = Some(error),
            Err(_) => last = last.or(Some(io::ErrorKind::TimedOut.into())),
        }
    }
    Err(last.map_or_else(|| timed_out(&to, limit), |error| io_failure(&to, &error, limit)))
}

async fn connect(address: IpAddr, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(SocketAddr::new(address, port)).await?;
    stream.set_nodelay(true)?;
    // If the stream is aborted, the socket is closed with a reset, so that the port does not mistake it for a normal
    // end.
    stream.set_zero_linger()?;
    Ok(stream)
}

fn io_failure(to: &str, error: &io::Error, limit: Duration) -> WireError {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => failed(error_kind::CONNECTION_REFUSED, to, "nobody listens there"),
        io::ErrorKind::TimedOut => timed_out(to, limit),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            failed(error_kind::HOST_UNREACHABLE, to, "there is no route to the host")
        }
        _ => {
            WireError::internal(format!("cannot connect to {to}: {error}")).with_data(ErrorData::from_io(error, None))
        }
    }
}

fn timed_out(to: &str, limit: Duration) -> WireError {
    failed(error_kind::TIMED_OUT, to, &format!("no answer within {limit:?} (--port-connect-timeout)"))
}

fn failed(kind: &str, to: &str, why: &str) -> WireError {
    WireError::internal(format!("cannot connect to {to}: {why}")).with_data(ErrorData::of_kind(kind))
}

/// `HOST:PORT`, for error messages.
pub(super) fn address_text(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{}:{port}", protocol::shortened(host)) }
}
