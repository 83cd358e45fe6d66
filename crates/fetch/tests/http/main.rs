//! Tests of the public interface, against servers and proxies on loopback that the tests start themselves. All
//! modules are one binary, so that it is linked only once.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not the functions that they share")]

mod bodies;
mod bounds;
mod connections;
mod failures;
mod hostile_http2;
mod http2;
mod http2_peer;
mod http2_retries;
mod http2_streams;
mod logging;
mod proxies;
mod redirects;
mod requests;
mod socks;
mod support;
mod tls;
