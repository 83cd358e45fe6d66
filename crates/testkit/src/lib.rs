//! Tools for tests: a real server process, a raw client of the protocol, and a proxy that breaks connections.
//!
//! Nothing is mocked: the binary under test is the one users run. Only for a client there is a [scripted](ScriptedServer) peer too, which
//! behaves as no real server does on purpose.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test tool that fails should fail loudly and at once")]

mod client;
mod conversation;
mod http;
mod memory;
mod proxy;
mod published;
mod resuming;
pub mod scripted;
mod server;
mod signals;
mod slow_reader;
mod wait;

pub use client::{Client, FinishedProcess};
pub use conversation::{base64, unbase64};
pub use http::{HttpAnswer, UPGRADE, http_exchange, http_get, http_request};
pub use memory::{
    cpu_time, descendants, is_alive, open_fds, peak_resident_bytes, process_state, resident_bytes, threads,
};
pub use proxy::CuttingProxy;
pub use published::PublishedServer;
pub use resuming::{ReceivedEvents, ReconnectCounts, ResumingClient};
pub use scripted::ScriptedServer;
pub use server::{TestServer, binary, run_to_end, send_signal};
pub use slow_reader::SlowReader;
pub use wait::{eventually, eventually_async};

pub use rustix::process::Signal;
pub use serde_json::{Value, json};
