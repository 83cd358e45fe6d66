//! Who the program is to a service: storing keys, choosing a credential, sending it to that service only, and checking
//! who an executor is. The service is scripted; the programs are the real binary.
#![allow(clippy::unwrap_used, reason = "clippy exempts test functions, but not their helper functions")]

mod agent_identity;
mod executor;
mod inherited_variables;
mod pinned_keys;
mod sign_in;
mod stored_keys;
mod support;
mod whoami;
