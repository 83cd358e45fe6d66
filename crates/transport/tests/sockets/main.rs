//! The crate from outside, over real sockets and real children. One binary, so that it links once.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they share")]

mod children;
mod connecting;
mod deadlines;
mod http_surface;
mod interop;
mod support;
mod tls;
mod unix_socket;
