//! The commands `run`, `shell` and `attach` as a person or a script uses them: the tests start the real binary, with
//! pipes or on a terminal.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod connection;
mod directory_and_variables;
mod exit_codes;
mod full_disk;
mod input;
mod kept;
mod limits;
mod published;
mod signals;
mod silent_server;
mod streams;
mod support;
mod terminals;
