//! A sandbox that exists, as the server sees it: the socket to its launcher and its root directory. Dropping the value
//! ends the launcher, and with it all commands of the sandbox.
//!
//! The calls block, so they belong on threads that may block. The caller starts the launcher process, with one end of a
//! socket pair as its descriptor [`SOCKET_FD`](crate::SOCKET_FD).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{Pid, WaitId, WaitIdOptions};

use crate::channel::{self, ReceivedMessage};
use crate::landlock_plan::EnforcementPlan;
use crate::message::{BuildFailure, BuildReply, BuildStep, LISTENER_KIND, StartReply, StartRequest};

/// Making a sandbox takes a few milliseconds, and more if the policy names thousands of paths. A launcher that has not
/// answered after this time hangs, for example on a dead network mount.
const BUILD_TIMEOUT: Duration = Duration::from_secs(30);

/// A sandbox whose launcher waits for commands.
#[derive(Debug)]
pub struct ResidentSandbox {
    /// Locked while a request is sent, so that requests of several threads do not mix.
    launcher: Mutex<OwnedFd>,
    /// None in a sandbox without namespaces, whose commands see the files of the host.
    tree: Option<SandboxTree>,
    listener: Option<OwnedFd>,
    has_proc: bool,
}

/// The file tree of a sandbox that is made of namespaces.
#[derive(Debug)]
struct SandboxTree {
    root: OwnedFd,
    /// Keeps the mounts of the sandbox, also if the launcher is killed.
    _mounts: OwnedFd,
}

/// Why a sandbox could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The launcher could not do a step.
    #[error("{}", describe(.0))]
    Step(BuildFailure),
    /// The launcher ended or did not answer.
    #[error("the launcher of the sandbox did not answer: {0}")]
    Launcher(io::Error),
}

impl BuildError {
    /// Whether a file that the plan names was replaced or removed after the plan was made, so that another plan may succeed.
    pub fn is_about_changed_files(&self) -> bool {
        let Self::Step(BuildFailure { step: BuildStep::Mount | BuildStep::Landlock, errno, .. }) = self else {
            return false;
        };
        matches!(*errno, libc::ESTALE | libc::ENOENT | libc::ENOTDIR | libc::ELOOP)
    }

    /// Whether the machine does not let the launcher make namespaces and mounts, so that another plan may succeed without them.
    pub fn is_about_missing_namespaces(&self) -> bool {
        let Self::Step(BuildFailure { step, errno, .. }) = self else { return false };
        *step != BuildStep::Landlock
            && matches!(*errno, libc::EPERM | libc::EACCES | libc::ENOSPC | libc::EINVAL | libc::ENOSYS)
    }
}

impl ResidentSandbox {
    /// Sends the plan to the launcher and waits until the sandbox is ready.
    pub fn build(launcher: OwnedFd, plan: &EnforcementPlan) -> Result<Self, BuildError> {
        let exchange = || {
            set_socket_timeout(&launcher, Timeout::Recv, Some(BUILD_TIMEOUT))?;
            channel::send(launcher.as_fd(), &plan.encode(), &[])?;
            let answer = channel::receive(launcher.as_fd())?.ok_or(io::ErrorKind::UnexpectedEof)?;
            set_socket_timeout(&launcher, Timeout::Recv, None)?;
            Ok(answer)
        };
        let ReceivedMessage { message, descriptors, .. } = exchange().map_err(BuildError::Launcher)?;
        let malformed = || BuildError::Launcher(io::ErrorKind::InvalidData.into());
        match BuildReply::decode(&message).map_err(|_| malformed())? {
            BuildReply::Ready { has_proc } => {
                let mut descriptors = descriptors.into_iter();
                let tree = match plan {
                    EnforcementPlan::Landlock(_) => None,
                    EnforcementPlan::Namespaces(_) => {
                        let root = descriptors.next().ok_or_else(malformed)?;
                        Some(SandboxTree { root, _mounts: descriptors.next().ok_or_else(malformed)? })
                    }
                };
                Ok(Self { launcher: Mutex::new(launcher), tree, listener: descriptors.next(), has_proc })
            }
            BuildReply::Failed(failure) => Err(BuildError::Step(failure)),
        }
    }

    /// The root directory of the sandbox. Paths below it are those of the sandbox, with its mounts. None in a sandbox without namespaces.
    pub fn root(&self) -> Option<BorrowedFd<'_>> {
        self.tree.as_ref().map(|tree| tree.root.as_fd())
    }

    /// The socket that listens on the loopback interface of the sandbox, for
    /// [`SandboxNetwork::LoopbackOnly`](crate::SandboxNetwork::LoopbackOnly).
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        self.listener.as_ref().map(AsFd::as_fd)
    }

    /// Whether commands have a `/proc`. If not, theirs is empty, because this machine is a container that hides parts of `/proc`.
    pub fn has_proc(&self) -> bool {
        self.has_proc
    }

    /// Whether the launcher has ended, so that no command can be started any more.
    pub fn has_ended(&self) -> bool {
        is_hung_up(&*self.launcher.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts a command, and waits until it executes its program. `server_end` and `launcher_end` are the ends of a socket pair for this
    /// start. `descriptors` are stdin, stdout and stderr, and the extra descriptor if the request has one. A process that failed has been
    /// reaped when this returns. Also returns the descriptor of the command's filter, for [`refuse_next_call`](crate::refuse_next_call). None:
    /// the kernel lets refused calls fail without asking.
    pub fn start(
        &self,
        request: &StartRequest,
        server_end: BorrowedFd<'_>,
        launcher_end: BorrowedFd<'_>,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(StartReply, Option<OwnedFd>)> {
        let all: Vec<BorrowedFd<'_>> = [launcher_end].into_iter().chain(descriptors.iter().copied()).collect();
        {
            let launcher = self.launcher.lock().unwrap_or_else(PoisonError::into_inner);
            channel::send(launcher.as_fd(), &request.encode(), &all)?;
        }
        let mut filter = None;
        let message = loop {
            let ReceivedMessage { message, mut descriptors, .. } =
                channel::receive(server_end)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if message != [LISTENER_KIND] {
                break message;
            }
            filter = descriptors.pop();
        };
        let reply = StartReply::decode(&message).map_err(|_| io::ErrorKind::InvalidData)?;
        if let StartReply::Failed { pid: Some(pid), .. } = reply {
            reap(pid);
        }
        Ok((reply, filter))
    }
}

/// Whether the other end of a socket was closed.
pub fn is_hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    !matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(0))
}

/// The process has failed before it executed a program, and has ended or is about to.
fn reap(pid: i32) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    while matches!(rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
}

fn describe(failure: &BuildFailure) -> String {
    let error = io::Error::from_raw_os_error(failure.errno);
    let about = if failure.detail.is_empty() { String::new() } else { format!(" {}", failure.detail) };
    format!("step {:?}{about}: {error}", failure.step)
}
