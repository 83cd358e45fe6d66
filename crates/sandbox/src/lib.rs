//! Sandboxes: what a policy allows, and how the kernel is made to enforce it. A *launcher*, a small process of the
//! server's own program, makes a sandbox and starts commands in it. It uses namespaces and mounts or, on machines that
//! forbid namespaces, Landlock and seccomp filters. This crate knows nothing of JSON-RPC and sessions. It runs on Linux
//! with glibc.
//!
//! Start with [`resolve_policy`], which makes the rules of a client concrete, [`plan_for_owner`], which turns them into the
//! steps of the launcher, and [`ResidentSandbox`], which carries the steps out and starts commands.

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
mod mount_table;
mod mounted;
mod null_device;
mod open_files;
mod plan;
mod planner;
mod policy;
mod probe;
mod refused_call;
mod resident;
mod seccomp;

pub use advice::explain_missing_namespaces;
pub use codec::MalformedMessage;
pub use denial::suggests_denial;
pub use file_id::FileId;
pub use landlock::{MissingLandlock, NEEDED_LANDLOCK_VERSION, landlock_version};
pub use landlock_plan::{EnforcementPlan, LandlockFiles, LandlockPlan, ReadablePath};
pub use launcher::{MAX_SHARED_MEMORY_BYTES, MAX_SHARED_MEMORY_FILES, MAX_TERMINALS, SOCKET_FD, launcher_main};
pub use message::{BuildFailure, BuildReply, BuildStep, StartReply, StartRequest, StartStage};
pub use open_files::open_files_limit;
pub use plan::{BaseTree, MountKind, PlannedMount, SandboxNetwork, SandboxPlan};
pub use planner::{
    LandlockUnfit, MAX_GLOB_MATCHES, MAX_GLOB_SCANNED, MAX_GLOB_STEPS, MAX_PLACEHOLDERS_OF_OWNER, PlaceholderNotes,
    PlaceholderOwner, PlaceholderPaths, Placeholders, PlanError, PlannedSandbox, plan_for_owner, plan_landlock,
    plan_sandbox, remove_unused_placeholder,
};
pub use policy::{
    Access, AccessDecision, EntrySource, EntryTarget, FilePolicy, GitDirectories, GlobPattern, MINIMAL_ROOTS,
    MachineFacts, PROTECTED_NAMES, PolicyEntry, PolicyError, PolicyRequest, RequestedEntry, RequestedFiles,
    RequestedTarget, policy_limits, resolve_policy,
};
pub use probe::check_system_call_filter;
pub use refused_call::{RefusedCall, has_reported_call, refuse_next_call};
pub use resident::{BuildError, ResidentSandbox, StartAnswer, is_hung_up};
