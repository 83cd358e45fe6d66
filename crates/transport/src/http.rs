//! The HTTP side of a listener: health, metrics and the door to the WebSocket. What the answers depend on is asked from the
//! owner of the listener.

mod connection;
mod routes;

pub(crate) use connection::{END_OF_PATIENCE, HttpError, Upgraded, serve};

/// What the HTTP side of the listener needs from its owner.
pub trait HttpSurface: Send + Sync + 'static {
    /// Whether a request with these headers may open a connection or read metrics.
    fn authorize(&self, headers: &::http::HeaderMap) -> bool;
    /// The metrics in Prometheus text format.
    fn metrics(&self) -> String;
}

/// Whether the transport has already made sure who the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// The kernel vouches for the peer's user.
    Vouched,
    /// [`HttpSurface::authorize`] decides.
    Unknown,
}
