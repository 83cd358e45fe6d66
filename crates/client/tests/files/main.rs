//! Files of this machine and of an environment. The scenarios of `on_local_and_remote!` run for both; other tests are about an environment
//! only.
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
