//! Executor and harness through the scripted service of `testkit`, over real sockets.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not their helper functions")]

mod direct;
mod smoke;
mod support;
