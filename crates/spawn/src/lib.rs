//! Starts processes on pipes or on a terminal, reaps them, and kills them together with all of their descendants. If
//! the server ends, even by `SIGKILL`, the *guard* kills them: a small process that outlives the server. This crate
//! knows nothing of JSON-RPC, connections or policies. It runs on Linux with glibc.
//!
//! Start with [`Spawner`]. [`HostProcess`] says what a spawner changes in the program that uses it. Each process is started with a [`Tag`],
//! a number that all of its descendants inherit. [`Spawner::kill_tree`] finds the processes to kill by that tag. The process that was
//! started is the *leader*; the leader and its descendants are a *tree*. [`SessionTags`] issues the tags for one
//! session of a client. [`HeldEnds`] are the child's ends of its output streams, which the server keeps open until
//! the child has exited.

#![expect(
    unsafe_code,
    reason = "clone, prlimit on another process, waitid with usage, close_range, TIOCSIG and mallopt have no safe wrapper, and a child makes raw system calls"
)]

mod allocator;
mod cancel_flag;
mod cgroup;
mod child;
mod children;
mod command;
mod descriptors;
mod error;
mod exec_args;
mod execute;
mod guard;
mod guard_notes;
mod host;
// Finds and kills all processes of trees.
mod hunt;
mod kill_thread;
// Limits on what a process may use.
mod limits;
mod lock;
mod lookup;
mod maker;
// Computes which processes belong to a tree.
mod membership;
// The kernel sessions (`setsid`) in which the guard kills all processes.
mod orphaned_sessions;
mod procfs;
mod pty;
mod rlimit;
// The list of leaders that the server shares with the guard.
mod roster;
mod signal_process;
mod signals;
mod spawn_thread;
mod spawner;
mod streams;
mod system_call;
mod tag;
mod usage;
mod vfork;
mod wiring;

pub use allocator::{limit_kept_freed_memory, trim_freed_memory};
pub use cancel_flag::CancelFlag;
pub use cgroup::check_cgroups;
pub use child::{Child, ChildExitStatus};
pub use command::{SpawnCommand, StdinMode, Stdio, TerminalSize};
pub use descriptors::{set_inherited_fds_close_on_exec, watch_readable};
pub use error::{SpawnError, SurvivalReason, Survivors};
pub use guard::{GuardProgram, guard_main};
pub use guard_notes::{GuardNotes, guard_notes};
pub use host::HostProcess;
pub use kill_thread::KillFuture;
pub use limits::{
    ExitAccount, LimitKind, LimitRefusal, MemoryLimitScope, ReachedLimit, SpawnLimits, UnenforceableLimit,
};
pub use maker::{ChildMaker, ChildRequest, MadeChild, MakeError, StartConnection};
pub use pty::Pty;
pub use rustix::process::Signal;
pub use signals::{is_ignored, unblock_signals};
pub use spawner::{Spawned, Spawner};
pub use streams::{ChildInput, ChildOutput, ReadOutcome, WriteOutcome};
pub use tag::{SessionTags, Tag};
pub use usage::ResourceUsage;
pub use wiring::{ChildIo, HeldEnds};
