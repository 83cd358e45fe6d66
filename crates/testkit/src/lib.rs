//! Tools for tests: a real server process, a raw client of the protocol, and a proxy that breaks connections.
//!
//! Nothing is mocked: the binary under test is the one users run.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test tool that fails should fail loudly and at once")]

mod client;
mod memory;
mod proxy;
mod server;
mod wait;

pub use client::{Client, Outcome};
pub use memory::{descendants, open_fds, process_state, resident_bytes, threads};
pub use proxy::CuttingProxy;
pub use server::{TestServer, binary};
pub use wait::{eventually, eventually_async};

pub use serde_json::{Value, json};
