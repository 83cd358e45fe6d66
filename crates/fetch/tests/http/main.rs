//! The crate from outside, against servers and proxies on loopback that the tests make themselves. One binary, so that it
//! links once.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not what they share")]

mod bodies;
mod bounds;
mod connections;
mod failures;
mod logging;
mod proxies;
mod redirects;
mod requests;
mod socks;
mod support;
mod tls;
