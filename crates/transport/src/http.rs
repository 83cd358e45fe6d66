//! The HTTP endpoints of a listener: `/healthz`, `/readyz`, `/metrics`, and the upgrade to a WebSocket at `/`, or at
//! [`DIRECT_PATH`] for a peer with a ticket. The server that owns the listener decides about access and provides the
//! metrics, through [`HttpSurface`]. `connection` drives hyper, `routes` has the endpoints, `host` checks the `Host`
//! header.

mod connection;
mod host;
mod routes;

use crate::message::MessageLimits;
use crate::principal::Principal;

pub(crate) use connection::{HttpError, Upgraded, serve};
pub use connection::{MAX_HEADER_BYTES, REQUEST_TIMEOUT};

/// The path at which the peer of an encrypted stream opens a second socket for the stream, which does not go through
/// the relay.
pub const DIRECT_PATH: &str = "/direct";

/// The peer that has upgraded a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpgradedBy {
    /// A client with this identity.
    Client(Principal),
    /// A peer whose ticket for [`DIRECT_PATH`] was accepted. The socket has these limits.
    TicketHolder(MessageLimits),
}

/// The decisions and data that the HTTP endpoints need from the server that owns the listener.
pub trait HttpSurface: Send + Sync + 'static {
    /// The client that has sent a request with these headers. `None` if the client may neither upgrade to a WebSocket
    /// nor read the metrics. Not called on a Unix socket, where the kernel reports the user of the peer.
    fn authorize(&self, headers: &::http::HeaderMap) -> Option<Principal>;
    /// Uses up the ticket in the headers of a request for [`DIRECT_PATH`], and returns the limits of the socket. `None`
    /// without a valid ticket: the request is then answered as one for an unknown path. Not called on a Unix socket.
    fn take_ticket(&self, headers: &::http::HeaderMap) -> Option<MessageLimits> {
        let _no_tickets = headers;
        None
    }
    /// The body of `/metrics`, in OpenMetrics text format.
    fn metrics(&self) -> String;
    /// Whether a listener on loopback answers requests whose `Host` is `host`: a name or an IP address, without port and brackets. Not
    /// called for `localhost` and loopback addresses: requests for them are always answered.
    fn serves_host(&self, host: &str) -> bool;
}

/// How much a listener knows about a peer before it reads a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Unix socket: the kernel has reported the uid of the peer, and the listener has accepted this user.
    VerifiedUser(u32),
    /// TCP on a loopback address: the peer is a program on this machine, or a web page in a browser on this machine whose host name
    /// resolves to this address (DNS rebinding). Only the `Host` header distinguishes the two.
    Loopback,
    /// TCP on any other address: nothing is known about the peer.
    Network,
}
