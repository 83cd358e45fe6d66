//! `fs/search`: which matches are found, in which order they are sent, and how a search ends.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod ending;
mod finding;
mod git_configuration;
mod memory;
mod refusals;
mod support;
