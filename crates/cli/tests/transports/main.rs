//! All transports of the server: addresses, authentication, and how connections and the server end.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod addresses;
mod command_line;
mod goodbyes;
mod http;
mod principals;
mod shutdown;
mod stdio;
mod tls;
mod tokens;
mod unix;
