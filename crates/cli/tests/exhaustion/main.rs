//! A server that lacks descriptors, threads or a reader of its log, that starts with limits of its parent process, or
//! whose clients use as many resources as they can get. In all these cases the server still ends processes, answers
//! requests and shuts down.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod descriptors;
mod file_work;
mod inherited;
mod log;
mod lookups;
mod terminates;
mod threads;
