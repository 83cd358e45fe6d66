//! What keeps a command apart from the host: namespaces, or Landlock and a second filter. Here the launcher makes both for
//! a start; the process that becomes the command applies them to itself (see `leader`).

use std::io;
use std::os::fd::{OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::thread::UnshareFlags;

use super::command::high;
use super::landlock_rules::LandlockRules;
use super::namespace_init::{self, InitPlan};
use super::number;
use crate::landlock_plan::LandlockFiles;
use crate::message::StartRequest;
use crate::seccomp;

/// How the commands of a sandbox are kept apart from the host.
pub(super) enum CommandIsolation {
    Namespaces {
        /// The user namespace of the commands, below that of the launcher. It owns none of the other namespaces.
        users: OwnedFd,
        /// How `/proc` is mounted. None: it cannot be mounted.
        proc_flags: Option<libc::c_ulong>,
        /// The first process of each PID namespace has the other end, and ends when the launcher ends.
        alive: OwnedFd,
        /// Closed only when the launcher ends.
        kept_alive: OwnedFd,
    },
    Landlock {
        rules: LandlockRules,
        filter: Vec<libc::sock_filter>,
    },
}

/// What the process that becomes the command does to itself.
#[derive(Clone, Copy)]
pub(super) enum LeaderIsolation<'a> {
    Namespaces {
        users: RawFd,
        proc_flags: Option<libc::c_ulong>,
        /// The descriptor whose closing tells the first processes of all namespaces that the launcher has ended.
        kept_alive: RawFd,
    },
    Landlock {
        ruleset: RawFd,
        filter: &'a [libc::sock_filter],
    },
}

/// The part of an isolation that was made for one start. It is needed until the command runs.
pub(super) struct StartIsolation<'a> {
    pub(super) leader: LeaderIsolation<'a>,
    _ruleset: Option<OwnedFd>,
}

impl CommandIsolation {
    /// `host_user` is the user of the server on the host.
    pub(super) fn namespaces(users: &OwnedFd, has_proc: bool, host_user: u32) -> Result<Self, Errno> {
        let (alive, kept_open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        // User 0 of the host may write many files of `/proc` that concern the whole machine, even without capabilities.
        let flags = if host_user == 0 { quiet | libc::MS_RDONLY } else { quiet };
        Ok(Self::Namespaces {
            users: high(users)?,
            proc_flags: has_proc.then_some(flags),
            alive: high(&alive)?,
            kept_alive: kept_open,
        })
    }

    pub(super) fn landlock(rules: LandlockRules, files: &LandlockFiles) -> Self {
        Self::Landlock { rules, filter: seccomp::filter_without_namespaces(files) }
    }

    /// Prepares a start. With namespaces, the next child of this thread is in a PID namespace of its own, whose first
    /// process exists already. `stdin` is that of the command.
    pub(super) fn prepare(
        &self,
        request: &StartRequest,
        server: &OwnedFd,
        stdin: &OwnedFd,
    ) -> Result<StartIsolation<'_>, Errno> {
        match self {
            Self::Namespaces { users, proc_flags, alive, kept_alive } => {
                make_pid_namespace(&InitPlan {
                    server: number(server),
                    launcher: number(alive),
                    limits: &request.limits,
                })?;
                let (users, kept_alive) = (number(users), number(kept_alive));
                let leader = LeaderIsolation::Namespaces { users, proc_flags: *proc_flags, kept_alive };
                Ok(StartIsolation { leader, _ruleset: None })
            }
            Self::Landlock { rules, filter } => {
                let ruleset = high(&rules.ruleset(request.terminal.then_some(stdin))?)?;
                let leader = LeaderIsolation::Landlock { ruleset: number(&ruleset), filter };
                Ok(StartIsolation { leader, _ruleset: Some(ruleset) })
            }
        }
    }
}

fn make_pid_namespace(init: &InitPlan<'_>) -> Result<(), Errno> {
    // SAFETY: without UnshareFlags::FILES no descriptor table changes. Only this thread is concerned.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }?;
    // SAFETY: like `fork`. The child makes only system calls, as a copy of a process with several threads must.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        0 => namespace_init::run(init),
        error if error < 0 => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::AGAIN)),
        _ => Ok(()),
    }
}
