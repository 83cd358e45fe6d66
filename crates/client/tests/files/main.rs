//! Files of this machine and of an environment: one suite for both, and tests of what only an environment can do.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod contents;
mod cuts;
mod directories;
mod errors;
mod links;
mod metadata_sharing;
mod no_follow;
mod old_server;
mod sandboxed;
mod streams;
mod support;
mod trees;
mod writing;
