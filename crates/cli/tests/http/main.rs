//! `http/request` over the wire, with real HTTP servers on loopback.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod buffered;
mod cancelling;
mod environment;
mod failures;
mod flow;
mod http2;
mod logging;
mod redirects;
mod streaming;
mod support;
