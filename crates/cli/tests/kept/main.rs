//! The commands for kept sessions, as a person types them. The client library makes the sessions.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod background;
mod beside;
mod full_disk;
mod kill;
mod logs;
mod ps;
mod remembering;
mod support;
