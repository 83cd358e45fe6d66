//! Machines on which sandboxes cannot be made of namespaces: what is enforced there, what is refused, and what
//! `exec-server doctor` says about it.
#![expect(clippy::unwrap_used, reason = "a test that fails should fail loudly and at once")]

mod doctor;
mod machines;
mod matrix;
mod ordinary_user;
#[path = "../shared/policies.rs"]
mod policies;
