//! The client library against a real server.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod basics;
mod children;
mod dropped;
mod every_byte;
mod many_cuts;
mod pushed;
mod short_connections;
mod silence;
mod support;
mod unified;
