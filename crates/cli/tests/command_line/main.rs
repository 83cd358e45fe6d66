//! The command line for people: progress lines, colours, help, the version, the commands `env` and `man`, and how
//! `shell` shows in which environment, that is on which machine, it runs.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod colours;
mod env;
mod help;
mod man;
mod progress;
mod shell_hint;
mod support;
mod tokens;
mod version;
