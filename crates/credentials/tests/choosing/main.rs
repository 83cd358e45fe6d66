//! Credentials as programs use them: which one is chosen, the headers that it makes, where it may be sent, and how
//! tokens are renewed. The services that issue tokens are scripted, on loopback.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not their helper functions")]

mod agent_identity;
mod destinations;
mod order;
mod sign_in;
mod support;
mod workload_identity;
