//! Operations on files, for the two file systems of the client library: that of this machine, and that of an
//! environment, a machine that is reached over an exec-server. Each scenario in `on_local_and_remote!` becomes two
//! tests, one for each file system.
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
