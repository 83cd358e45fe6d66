//! Processes of the operating system: starting them on pipes or a PTY, reaping them by pidfd, and finding and ending
//! everything they have started in turn, even after the server itself was killed. It knows nothing of JSON-RPC, sessions or
//! policies; it runs on Linux with glibc.
//!
//! Start with [`Spawner`]. A process is started under a [`Tag`], which all of its descendants carry for ever, and it is by
//! that tag that [`Spawner::kill_tree`] finds them.

#![expect(
    unsafe_code,
    reason = "clone, prlimit on another process, close_range, TIOCSIG and mallopt have no safe wrapper, and a child makes raw system calls"
)]

mod allocator;
mod cancel_flag;
mod child;
mod children;
mod command;
mod descriptors;
mod ender;
mod error;
mod execute;
mod family;
mod guard;
mod hunt;
mod image;
mod launcher;
mod left_sessions;
mod lock;
mod lookup;
mod procfs;
mod pty;
mod rlimit;
mod roster;
mod signals;
mod spawner;
mod streams;
mod strike;
mod system_call;
mod tag;
mod vfork;
mod wiring;

pub use allocator::{limit_freed_memory, trim_freed_memory};
pub use cancel_flag::CancelFlag;
pub use child::{Child, ChildExitStatus};
pub use command::{SpawnCommand, StdinMode, Stdio, TerminalSize};
pub use descriptors::set_inherited_fds_close_on_exec;
pub use ender::KillFuture;
pub use error::{SpawnError, SurvivalReason, Survivors};
pub use guard::{GuardProgram, guard_main};
pub use pty::Pty;
pub use rustix::process::Signal;
pub use signals::{is_ignored, unblock_signals};
pub use spawner::{Spawned, Spawner};
pub use streams::{ChildInput, ChildOutput, ReadOutcome, WriteOutcome};
pub use tag::{SessionTags, Tag};
pub use wiring::{ChildIo, HeldEnds};
