//! The client with a scripted server, whose answers the tests choose. So the tests reach behaviour that a real server
//! shows rarely, or only in old versions.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod accepted;
mod calls;
mod discovery;
mod environments;
mod events;
mod http;
mod network_policy;
mod old_server;
mod ports;
mod recovery;
mod starts;
mod support;
mod tasks;
mod unified;
mod unified_sandbox;
mod unified_sessions;
mod watching;
mod writes;
