//! `exec-server forward`: the real forwarder between a scripted service and real or scripted servers, used by the real
//! command line and by ends of the published protocol.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod commands;
mod destinations;
mod flags;
mod support;
