//! The method `fs/search`: which matches a search finds, how it ends, which searches are refused, and how much memory
//! searches use.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod ending;
mod finding;
mod git_configuration;
mod memory;
mod refusals;
mod support;
