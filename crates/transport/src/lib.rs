//! Message streams between two programs: WebSocket over TCP, TLS or a Unix socket; one message per line over a Unix
//! socket, stdio or the pipes of a child process; and a pair of streams in memory. A listener also answers HTTP
//! requests for its health and metrics.
//!
//! A message is a byte string. This crate splits the received bytes into messages, reports a message that is longer
//! than a limit instead of delivering it, and keeps the memory of an idle connection small. It does not know JSON-RPC
//! or the content of a message.
//!
//! Start with [`MessageStream`], which is both directions of a connection. A server gets one from [`Listener`] and [`accept_messages`],
//! a client from [`connect`] or [`spawn_child`]. Transports outside this crate make one with [`MessageStream::new`].

#![forbid(unsafe_code)]

mod accept;
mod child;
mod connect;
mod framing;
mod http;
pub mod length_prefix;
pub mod limits;
mod line_decoder;
mod listen_url;
mod listener;
mod message;
mod peer;
mod principal;
mod reader;
mod socket;
mod stdio;
mod stream;
mod tls;
mod websocket;
mod writer;

pub use accept::{AcceptError, Accepted, AcceptedStream, accept_messages};
pub use child::{ChildCommand, ChildExit, ChildGuard, ChildSpawnError, spawn_child};
pub use connect::{
    CertificateFault, ConnectError, ConnectOptions, TlsRoots, check_url, connect, retry_after, upgrade_client,
};
pub use framing::Framing;
pub use http::{DIRECT_PATH, HttpSurface};
pub use listen_url::{DEFAULT_LISTEN_URL, ListenUrl, ListenUrlError};
pub use listener::{AcceptWarning, BindError, Listener, OtherUser};
pub use message::{CloseReason, MessageLimits, ReadError, ReadEvent};
pub use peer::PeerLabel;
pub use principal::Principal;
pub use reader::{Reader, ReceiptSource};
pub use socket::Socket;
pub use stdio::stdio;
pub use stream::{MessageStream, ProofOfReceipt, in_memory, lines};
pub use tls::{TlsError, tls_acceptor};
pub use tokio_rustls::TlsAcceptor;
pub use websocket::Violation;
pub use writer::{WriteProgress, Writer};
