//! A server that has no more descriptors, threads or other resources, and a server of which one client uses as many
//! resources as it can get. In both cases the server still ends processes, answers requests and shuts down.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod descriptors;
mod file_work;
mod inherited;
mod log;
mod lookups;
mod terminates;
mod threads;
