//! Tests of the public interface, with targets on loopback that the tests start themselves. All modules are one
//! binary, so that it is linked only once.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not the functions that they share")]

mod curl;
mod decisions;
mod ending;
mod hostile;
mod local_targets;
mod own_addresses;
mod plain_http;
mod socks5;
mod support;
mod tunnels;
