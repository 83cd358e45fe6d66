//! What keeps a command apart from the host: namespaces, or Landlock and a second filter of system calls. The launcher makes as much as
//! possible before it knows the command, because a start is then quicker. The process that becomes the command applies the
//! rest to itself (see `leader`).

use std::os::fd::{AsFd as _, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::thread::UnshareFlags;

use super::command::high;
use super::landlock_rules::LandlockRules;
use super::namespace_init::{InitSlots, NamespaceInit};
use super::{failure, number, trial};
use crate::landlock_plan::LandlockFiles;
use crate::message::{BuildFailure, BuildStep, StartRequest};
use crate::seccomp;

/// Stands for the lifeline where no command is started.
const NO_DESCRIPTOR: RawFd = -1;

/// How the commands of a sandbox are kept apart from the host.
pub(super) enum CommandIsolation {
    Namespaces(CommandNamespaces),
    Landlock { rules: LandlockRules, filter: Vec<libc::sock_filter> },
}

/// What the namespaces of all commands of a sandbox have in common.
pub(super) struct CommandNamespaces {
    /// The user namespace of the commands, below that of the launcher. It owns none of the other namespaces.
    users: OwnedFd,
    /// How `/proc` is mounted. None: it cannot be mounted.
    proc_flags: Option<libc::c_ulong>,
    /// The read end of a pipe. The first process of each PID namespace has a copy, and ends when the other end is closed.
    alive: OwnedFd,
    /// The other end of the pipe, which is closed only when the launcher ends.
    _kept_alive: OwnedFd,
    inits: InitSlots,
}

/// Namespaces that wait for their command: a PID namespace with its first process, and a mount namespace with its `/proc`. Every
/// later child of the thread that has made them is in them.
pub(super) struct PreparedNamespaces {
    init: NamespaceInit,
    /// A socket to the first process, which the server gets. If the server closes it, the namespaces end when no orphan is left.
    lifeline: OwnedFd,
}

/// What the process that becomes the command does to itself.
#[derive(Clone, Copy)]
pub(super) enum LeaderIsolation<'a> {
    Namespaces { users: RawFd, lifeline: RawFd },
    Landlock { ruleset: RawFd, filter: &'a [libc::sock_filter] },
}

/// What one start needs. It is kept until the command has executed its program.
pub(super) struct StartIsolation<'a> {
    pub(super) leader: LeaderIsolation<'a>,
    /// The lifeline or the ruleset, to which `leader` refers by its number.
    _descriptor: OwnedFd,
}

impl PreparedNamespaces {
    /// Whether nobody has killed their first process.
    pub(super) fn exist(&self) -> bool {
        self.init.is_ready()
    }
}

impl CommandIsolation {
    /// `host_user` is the user of the server on the host.
    pub(super) fn namespaces(users: &OwnedFd, has_proc: bool, host_user: u32) -> Result<Self, Errno> {
        let (alive, kept_open) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        // User 0 of the host may write many files of `/proc` that concern the whole machine, even without capabilities.
        let flags = if host_user == 0 { quiet | libc::MS_RDONLY } else { quiet };
        Ok(Self::Namespaces(CommandNamespaces {
            users: high(users)?,
            proc_flags: has_proc.then_some(flags),
            alive,
            _kept_alive: kept_open,
            inits: InitSlots::default(),
        }))
    }

    pub(super) fn landlock(rules: LandlockRules, files: &LandlockFiles) -> Self {
        Self::Landlock { rules, filter: seccomp::filter_without_namespaces(files) }
    }

    /// Checks whether a command can be confined. `filter` is the plain filter of system calls. To be called while this process has only one
    /// thread.
    pub(super) fn try_out(&self, filter: &[libc::sock_filter]) -> Result<(), BuildFailure> {
        match self {
            Self::Namespaces(namespaces) => {
                let users = number(&namespaces.users);
                trial::try_confinement(LeaderIsolation::Namespaces { users, lifeline: NO_DESCRIPTOR }, filter)
            }
            Self::Landlock { rules, filter: second } => {
                let ruleset = rules.ruleset(None).map_err(|error| failure(BuildStep::Landlock, error.into(), ""))?;
                let leader = LeaderIsolation::Landlock { ruleset: number(&ruleset), filter: second };
                trial::try_confinement(leader, filter)
            }
        }
    }

    /// Makes what does not depend on the command. A thread can do this only once, because it can make only one PID namespace. None: nothing
    /// can be made ahead.
    pub(super) fn make_ahead(&self) -> Result<Option<PreparedNamespaces>, Errno> {
        match self {
            Self::Namespaces(namespaces) => namespaces.make().map(Some),
            Self::Landlock { .. } => Ok(None),
        }
    }

    /// Makes what depends on the command. `stdin` is that of the command.
    pub(super) fn complete(
        &self,
        ahead: Option<PreparedNamespaces>,
        request: &StartRequest,
        stdin: &OwnedFd,
    ) -> Result<StartIsolation<'_>, Errno> {
        match (self, ahead) {
            (Self::Namespaces(namespaces), Some(PreparedNamespaces { init, lifeline })) => {
                request.tag.map_or(Ok(()), |tag| init.set_tag(tag))?;
                let (users, lifeline_number) = (number(&namespaces.users), number(&lifeline));
                let leader = LeaderIsolation::Namespaces { users, lifeline: lifeline_number };
                Ok(StartIsolation { leader, _descriptor: lifeline })
            }
            // Cannot happen: only with Landlock nothing is made ahead.
            (Self::Namespaces(_), None) => Err(Errno::INVAL),
            (Self::Landlock { rules, filter }, _) => {
                let ruleset = high(&rules.ruleset(request.terminal.then_some(stdin))?)?;
                let leader = LeaderIsolation::Landlock { ruleset: number(&ruleset), filter };
                Ok(StartIsolation { leader, _descriptor: ruleset })
            }
        }
    }
}

impl CommandNamespaces {
    fn make(&self) -> Result<PreparedNamespaces, Errno> {
        // SAFETY: without UnshareFlags::FILES no descriptor table changes. Only this thread is concerned.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID | UnshareFlags::NEWNS) }?;
        let (server_end, init_end) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        let lifeline = high(&server_end)?;
        drop(server_end);
        Ok(PreparedNamespaces { init: self.inits.start(init_end, self.alive.as_fd(), self.proc_flags)?, lifeline })
    }
}
