//! A server that has run out of something, or that one client wants all of: it still ends processes, answers and shuts down.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod descriptors;
mod file_work;
mod inherited;
mod log;
mod lookups;
mod terminates;
mod threads;
