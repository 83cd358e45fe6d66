//! Tests of the public API over real sockets, child processes and byte streams in memory. They are one binary,
//! because linking takes long.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not their helper functions")]

mod children;
mod codec_comparison;
mod connecting;
mod deadlines;
mod http_surface;
mod interop;
mod outside_transport;
mod support;
mod tls;
mod unix_socket;
