//! Sandboxes: what a policy allows, and how the kernel is made to enforce it. This crate knows nothing of JSON-RPC and sessions.
