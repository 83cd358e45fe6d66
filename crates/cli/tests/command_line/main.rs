//! The program as a person meets it beside its commands: progress, colours and the version.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod colours;
mod progress;
mod support;
mod version;
