//! Sandboxes: what a policy allows, and how the kernel is made to enforce it. A *launcher*, a small process of the
//! server's own program, makes the namespaces and mounts of a sandbox and starts commands in it. This crate knows
//! nothing of JSON-RPC and sessions. It runs on Linux with glibc.

#![expect(
    unsafe_code,
    reason = "clone, mount_setattr, capset and seccomp have no safe wrapper, and a new process makes raw system calls"
)]

mod advice;
mod channel;
mod codec;
mod denial;
mod file_id;
mod landlock;
mod landlock_plan;
mod launcher;
mod message;
mod plan;
mod planner;
mod policy;
mod probe;
mod refused_call;
mod resident;
mod seccomp;

pub use advice::explain_build_error;
pub use codec::MalformedMessage;
pub use denial::suggests_denial;
pub use file_id::FileId;
pub use landlock::{MissingLandlock, NEEDED_LANDLOCK_VERSION, landlock_version};
pub use landlock_plan::{EnforcementPlan, LandlockFiles, LandlockPlan, ReadablePath};
pub use launcher::{SOCKET_FD, launcher_main};
pub use message::{BuildFailure, BuildReply, BuildStep, StartReply, StartRequest, StartStage};
pub use plan::{BaseTree, MountKind, PlannedMount, SandboxNetwork, SandboxPlan};
pub use planner::{
    LandlockUnfit, Placeholder, PlaceholderNotes, PlanError, PlannedSandbox, plan_landlock, plan_sandbox,
    plan_with_notes, remove_unused_placeholder,
};
pub use policy::{
    Access, AccessDecision, EntrySource, EntryTarget, FilePolicy, GlobPattern, MINIMAL_ROOTS, MachineFacts,
    NetworkRule, PROTECTED_NAMES, PolicyEntry, PolicyError, PolicyKey, PolicyRequest, RequestedEntry, RequestedFiles,
    RequestedTarget, policy_limits, resolve_policy,
};
pub use probe::check_system_call_filter;
pub use refused_call::{RefusedCall, has_reported_call, refuse_next_call};
pub use resident::{BuildError, ResidentSandbox, is_hung_up};
