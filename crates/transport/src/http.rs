//! The HTTP side of a listener: health, metrics and the door to the WebSocket. What the answers depend on is asked from the
//! owner of the listener.

mod connection;
mod host;
mod routes;

pub(crate) use connection::{END_OF_PATIENCE, HttpError, Upgraded, serve};

/// What the HTTP side of the listener needs from its owner.
pub trait HttpSurface: Send + Sync + 'static {
    /// Whether a request with these headers may open a connection or read metrics.
    fn authorize(&self, headers: &::http::HeaderMap) -> bool;
    /// The metrics in Prometheus text format.
    fn metrics(&self) -> String;
    /// Whether a listener on loopback also answers requests for this host, a name or an IP address without a port. It always
    /// answers those for `localhost` and for loopback addresses.
    fn serves_host(&self, host: &str) -> bool;
}

/// What the listener knows of whoever connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The kernel vouches for the peer's user.
    Vouched,
    /// A program of this machine, or a web page in a browser of this machine whose own host name was made to point here. Only the
    /// `Host` header tells them apart.
    OnLoopback,
    /// [`HttpSurface::authorize`] decides.
    Unknown,
}
