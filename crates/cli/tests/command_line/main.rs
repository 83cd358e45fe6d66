//! The program as a person meets it beside its commands: progress, colours, environments, the manual, the hints of
//! a shell and the version.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod colours;
mod env;
mod help;
mod man;
mod progress;
mod shell_hint;
mod support;
mod version;
