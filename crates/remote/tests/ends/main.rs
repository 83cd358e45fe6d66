//! Executor and harness through the scripted service of `testkit`, over real sockets.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not their helper functions")]

mod cuts;
mod direct;
mod floods;
mod frames;
mod handshakes;
mod raw_harness;
mod registry_calls;
mod replacements;
mod service_faults;
mod slow_ends;
mod smoke;
mod support;
mod weather;
