//! Tools for tests: the real server in a process of its own ([`TestServer`]), a client that sends any message
//! ([`Client`]), a proxy that breaks connections ([`CuttingProxy`]), and an HTTP server for requests that the code
//! under test makes ([`HttpPeer`]).
//!
//! Tests of the server run the binary that users run. Tests of a client have two more servers: a [scripted
//! server](ScriptedServer), for behaviour that a test cannot provoke in the real server, and the [real server without
//! its extensions of the protocol](PublishedProtocolServer). Tests of remote mode have a [scripted service](TestService),
//! which is a registry and a relay. Other crates use this crate only in their tests; the
//! benchmarks use it too.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test that uses the tool")]

mod client;
mod configuration;
mod conversation;
mod http;
mod http_peer;
mod ordinary_user;
mod process_info;
mod proxy;
mod published;
mod resuming;
pub mod scripted;
mod server;
pub mod service;
mod signals;
mod slow_reader;
mod terminal;
mod tls_acceptor;
mod token_issuer;
mod wait;

pub use client::{Client, FinishedProcess};
pub use configuration::hide_configuration;
pub use conversation::{base64, unbase64};
pub use http::{HttpAnswer, UPGRADE_HEADERS, http_exchange, http_get, http_request};
pub use http_peer::{HttpPeer, PeerReply, RecordedRequests, http_ok, read_http_request, serve_http};
pub use ordinary_user::repeat_tests_as_ordinary_user;
pub use process_info::{
    cpu_time, descendants, is_alive, open_fds, peak_resident_bytes, process_state, resident_bytes, threads,
};
pub use proxy::CuttingProxy;
pub use published::PublishedProtocolServer;
pub use resuming::{ReceivedEvents, ReconnectCounts, ResumingClient};
pub use scripted::ScriptedServer;
pub use server::{TestServer, binary, binary_for_all_users, run_to_end, send_signal};
pub use service::TestService;
pub use slow_reader::SlowReader;
pub use terminal::Terminal;
pub use tls_acceptor::tls_acceptor;
pub use token_issuer::{TestAgent, TokenIssuer, agent_assertion, unsigned_token};
pub use wait::{eventually, eventually_async};

pub use rustix::process::Signal;
pub use serde_json::{Value, json};
