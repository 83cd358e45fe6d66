//! A server that the client starts on another machine over ssh. In these tests ssh and sshd are real, but the other
//! machine is this one.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod command_line;
mod connector;
mod sshd;
