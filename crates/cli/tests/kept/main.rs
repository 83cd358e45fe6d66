//! The commands for kept sessions (`run -d`, `ps`, `logs`, `attach`, `kill`), as a person types them. A kept session
//! is one that the server keeps while no client is connected.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod background;
mod concurrent_commands;
mod full_disk;
mod kill;
mod logs;
mod ps;
mod records;
mod support;
