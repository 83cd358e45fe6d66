//! The client against a real server.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod basics;
mod support;
mod unified;
