//! The transports of the server (WebSocket, TLS, Unix socket and stdio): addresses, authentication, and the end of
//! connections and of the server.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod addresses;
mod close_reasons;
mod command_line;
mod http;
mod principals;
mod shutdown;
mod stdio;
mod tls;
mod tokens;
mod unix;
