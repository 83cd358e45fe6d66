//! A server on another machine, started there by a real ssh. The other machine is this one, reached through a real sshd.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod command_line;
mod connector;
mod sshd;
