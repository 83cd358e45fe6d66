//! Sandboxes: what a policy allows, and how the kernel is made to enforce it. This crate knows nothing of JSON-RPC and sessions.

mod policy;

pub use policy::{
    Access, AccessDecision, EntrySource, EntryTarget, FilePolicy, GlobPattern, MINIMAL_ROOTS, MachineFacts,
    NetworkRule, PROTECTED_NAMES, PolicyEntry, PolicyError, PolicyKey, PolicyRequest, RequestedEntry, RequestedFiles,
    RequestedTarget, policy_limits, resolve_policy,
};
