//! A server that has run out of a resource, or from which one client wants all of it. It still ends processes, answers requests and shuts
//! down.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod descriptors;
mod file_work;
mod inherited;
mod log;
mod lookups;
mod terminates;
mod threads;
