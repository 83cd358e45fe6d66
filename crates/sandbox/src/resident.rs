//! A sandbox that exists, as the server sees it: the socket to its launcher and its root directory. Dropping the value
//! ends the launcher, and in a sandbox of namespaces all of its commands.
//!
//! The calls block, so they belong on threads that may block. The caller starts the launcher process, with one end of a
//! socket pair as its descriptor [`SOCKET_FD`](crate::SOCKET_FD).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{Pid, WaitId, WaitIdOptions};

use crate::channel::{self, ReceivedMessage};
use crate::landlock_plan::EnforcementPlan;
use crate::message::{BuildFailure, BuildReply, BuildStep, KEPT_DESCRIPTORS_KIND, StartReply, StartRequest};
use crate::mount_table;
use crate::mounted;
use crate::null_device;

/// Making a sandbox takes a few milliseconds, and more if the policy names thousands of paths. A launcher that has not
/// answered after this time is taken to hang, for example on a dead network mount. Sending a request has the same limit, in case somebody has
/// stopped the launcher.
const BUILD_TIMEOUT: Duration = Duration::from_secs(30);

/// A sandbox whose launcher waits for commands.
#[derive(Debug)]
pub struct ResidentSandbox {
    launcher: OwnedFd,
    /// Locked while a request is sent, so that requests of several threads do not mix.
    sending: Mutex<()>,
    /// None in a sandbox without namespaces, whose commands see the files of the host.
    tree: Option<SandboxTree>,
    /// Listens on the loopback interface of the sandbox. None unless the plan asks for it.
    listener: Option<OwnedFd>,
    has_proc: bool,
}

/// The file tree of a sandbox that is made of namespaces.
#[derive(Debug)]
struct SandboxTree {
    root: OwnedFd,
    /// The list of its mounts. It keeps the mount namespace, and so the mounts, alive even if the launcher is killed. Without the mounts, `root`
    /// would show the files that they hide.
    mount_table: OwnedFd,
    /// Whether the list has changed, so that the tree may show files that it should hide. Locked while the kernel is asked.
    has_lost_mounts: Mutex<bool>,
}

/// Why a sandbox could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The launcher could not do a step.
    #[error("{}", crate::advice::explain_failed_step(.0))]
    Step(BuildFailure),
    /// The launcher ended without an answer.
    #[error(
        "the launcher of the sandbox has ended before the sandbox was ready; the log of the kernel may say why, for example that memory was short"
    )]
    LauncherEnded,
    /// The launcher has not answered in time.
    #[error(
        "the launcher of the sandbox did not answer within {} s; perhaps a file system that the policy names does not answer",
        BUILD_TIMEOUT.as_secs()
    )]
    LauncherSilent,
    /// The launcher has answered, and this process had no descriptors left to receive those of the sandbox.
    #[error("the server has no descriptor left for the sandbox; raise its limit of open files (`ulimit -n`)")]
    NoDescriptorLeft,
    /// Speaking with the launcher failed in another way.
    #[error("the server cannot speak with the launcher of the sandbox: {0}")]
    Socket(io::Error),
}

impl BuildError {
    fn of_socket(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Self::LauncherSilent,
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                Self::LauncherEnded
            }
            _ => Self::Socket(error),
        }
    }

    /// Whether a file that the plan names was replaced or removed after the plan was made, so that another plan may succeed.
    pub fn is_about_changed_files(&self) -> bool {
        let Self::Step(BuildFailure { step: BuildStep::Mount | BuildStep::Landlock, errno, .. }) = self else {
            return false;
        };
        matches!(*errno, libc::ESTALE | libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EINVAL | libc::EAGAIN)
    }

    /// Whether the machine does not let the launcher make namespaces and mounts, so that a plan for Landlock may succeed. A mount
    /// of the plan that fails says nothing about that: it depends on the files of the host, which a command may have changed.
    pub fn is_about_missing_namespaces(&self) -> bool {
        let Self::Step(BuildFailure { step, errno, .. }) = self else { return false };
        let is_refused = matches!(*errno, libc::EPERM | libc::EACCES | libc::ENOSYS);
        match step {
            BuildStep::Namespaces | BuildStep::UserMapping => {
                is_refused || matches!(*errno, libc::ENOSPC | libc::EINVAL)
            }
            // This step makes a PID namespace.
            BuildStep::DeviceFiles => is_refused || *errno == libc::ENOSPC,
            BuildStep::BaseTree | BuildStep::ChangeRoot | BuildStep::Loopback | BuildStep::Confinement => is_refused,
            BuildStep::Mount | BuildStep::Capabilities | BuildStep::Landlock => false,
        }
    }
}

/// The answer to a start, with the descriptors that the server keeps while the command runs.
#[derive(Debug)]
pub struct StartAnswer {
    /// Whether the command runs.
    pub reply: StartReply,
    /// A socket to the first process of the command's PID namespace. None in a sandbox without namespaces. The server shuts the socket down
    /// when it has reaped the command: the first process then ends with the last descendant of the command, which closes the other end. If
    /// the server closes the socket before, the first process ends as soon as it has no orphans, which kills the command.
    pub lifeline: Option<OwnedFd>,
    /// The descriptor of the command's filter, for [`refuse_next_call`](crate::refuse_next_call). None: the kernel lets refused calls
    /// fail without asking the server.
    pub filter: Option<OwnedFd>,
}

impl ResidentSandbox {
    /// Sends the plan to the launcher and waits until the sandbox is ready.
    pub fn build(launcher: OwnedFd, plan: &EnforcementPlan) -> Result<Self, BuildError> {
        let exchange = || {
            for direction in [Timeout::Send, Timeout::Recv] {
                set_socket_timeout(&launcher, direction, Some(BUILD_TIMEOUT))?;
            }
            channel::send(launcher.as_fd(), &plan.encode(), &[])?;
            let answer = channel::receive(launcher.as_fd())?.ok_or(io::ErrorKind::UnexpectedEof)?;
            set_socket_timeout(&launcher, Timeout::Recv, None)?;
            Ok(answer)
        };
        let ReceivedMessage { message, descriptors, lost_descriptors } = exchange().map_err(BuildError::of_socket)?;
        if lost_descriptors {
            return Err(BuildError::NoDescriptorLeft);
        }
        let malformed = || BuildError::Socket(io::ErrorKind::InvalidData.into());
        match BuildReply::decode(&message).map_err(|_| malformed())? {
            BuildReply::Ready { has_proc } => {
                let mut descriptors = descriptors.into_iter();
                let tree = match plan {
                    EnforcementPlan::Landlock(_) => None,
                    EnforcementPlan::Namespaces(_) => {
                        let root = descriptors.next().ok_or_else(malformed)?;
                        let mount_table = descriptors.next().ok_or_else(malformed)?;
                        Some(SandboxTree { root, mount_table, has_lost_mounts: Mutex::default() })
                    }
                };
                Ok(Self { launcher, sending: Mutex::default(), tree, listener: descriptors.next(), has_proc })
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
        is_hung_up(&self.launcher)
    }

    /// Whether its mounts have changed, which usually means that one has gone. The kernel detaches a mount if the file under it is removed or replaced on the host. What is
    /// at the path then, possibly the same file again, is not covered any more.
    pub fn has_lost_mounts(&self) -> bool {
        self.tree.as_ref().is_some_and(|tree| {
            let mut has_lost = tree.has_lost_mounts.lock().unwrap_or_else(PoisonError::into_inner);
            // The kernel tells each change only once.
            *has_lost = *has_lost || mount_table::has_changed(&tree.mount_table);
            *has_lost
        })
    }

    /// Whether every mount of the plan from which the sandbox was made is still in its place. If not, [`Self::has_lost_mounts`] is true from
    /// now on. Blocks, because it looks at each path.
    pub fn has_its_mounts(&self, plan: &EnforcementPlan) -> bool {
        let (Some(tree), EnforcementPlan::Namespaces(plan)) = (&self.tree, plan) else { return true };
        if !self.has_lost_mounts() && mounted::first_missing(&tree.root, plan).is_none() {
            return true;
        }
        *tree.has_lost_mounts.lock().unwrap_or_else(PoisonError::into_inner) = true;
        false
    }

    /// Starts a command, and waits until it executes its program. `server_end` and `launcher_end` are the ends of a socket pair for this
    /// start. `descriptors` are stdin, stdout and stderr, then the extra descriptor and the file `cgroup.procs` if the request has them. A process that failed has been
    /// reaped when this returns.
    pub fn start(
        &self,
        request: &StartRequest,
        server_end: BorrowedFd<'_>,
        launcher_end: OwnedFd,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<StartAnswer> {
        let mut replaced = [None, None, None];
        if let Some(root) = self.root() {
            for (number, (stream, replaced)) in descriptors.iter().zip(&mut replaced).enumerate() {
                *replaced = null_device::replaced(*stream, root, number == 0)?;
            }
        }
        let streams = descriptors.iter().zip(&replaced).map(|(given, own)| own.as_ref().map_or(*given, AsFd::as_fd));
        let others = descriptors.iter().skip(replaced.len()).copied();
        let all: Vec<BorrowedFd<'_>> = [launcher_end.as_fd()].into_iter().chain(streams).chain(others).collect();
        {
            let _one_at_a_time = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
            channel::send(self.launcher.as_fd(), &request.encode(), &all).inspect_err(|error| {
                // A part of the message may have been sent, so the launcher would take the next message for the rest of this one. Of a
                // message that is too large, nothing was sent.
                if error.kind() != io::ErrorKind::InvalidInput {
                    let _may_have_ended = rustix::net::shutdown(&self.launcher, Shutdown::Both);
                }
            })?;
        }
        // A launcher that cannot take the request closes its copy, which the server notices only if there is no other copy.
        drop(launcher_end);
        let (mut lifeline, mut filter) = (None, None);
        let mut has_lost_descriptors = false;
        let message = loop {
            let ReceivedMessage { message, descriptors, lost_descriptors } =
                channel::receive(server_end)?.ok_or_else(no_answer)?;
            if message != [KEPT_DESCRIPTORS_KIND] {
                break message;
            }
            has_lost_descriptors |= lost_descriptors;
            let mut descriptors = descriptors.into_iter();
            lifeline = self.tree.as_ref().and_then(|_| descriptors.next());
            filter = descriptors.next();
        };
        let reply = StartReply::decode(&message).map_err(|_| io::ErrorKind::InvalidData)?;
        match reply {
            StartReply::Failed { pid: Some(pid), .. } => reap(pid),
            // The server has no room for descriptors, and without them the command cannot be controlled.
            StartReply::Started { pid } if has_lost_descriptors => {
                kill(pid);
                reap(pid);
                return Err(Errno::MFILE.into());
            }
            StartReply::Started { .. } | StartReply::Failed { pid: None, .. } => {}
        }
        Ok(StartAnswer { reply, lifeline, filter })
    }
}

/// The launcher has ended, and the next request gets another one, or it has no descriptor left for the request.
fn no_answer() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the sandbox did not answer; try again")
}

/// Whether the other end of a socket was closed.
pub fn is_hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    // An error says nothing about the socket.
    matches!(rustix::event::poll(&mut polled, Some(&now)), Ok(1..))
}

fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _has_ended = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Waits for a child of this process that has ended or is about to.
fn reap(pid: i32) {
    let Some(pid) = Pid::from_raw(pid) else { return };
    while matches!(rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED), Err(Errno::INTR)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_machine_that_refuses_namespaces_is_said_to_lack_them() {
        let is_missing = |step, errno| {
            BuildError::Step(BuildFailure { step, errno, detail: String::new() }).is_about_missing_namespaces()
        };
        // User namespaces switched off, at their limit, forbidden by a filter, and forbidden by AppArmor, which lets them be made.
        assert!(is_missing(BuildStep::Namespaces, libc::ENOSPC) && is_missing(BuildStep::Namespaces, libc::EPERM));
        assert!(is_missing(BuildStep::Namespaces, libc::ENOSYS) && is_missing(BuildStep::BaseTree, libc::EACCES));
        // PID namespaces switched off or at their limit, but no device that could not be made.
        assert!(is_missing(BuildStep::DeviceFiles, libc::ENOSPC) && !is_missing(BuildStep::DeviceFiles, libc::EIO));
        // A filter around the server that forbids what a start needs.
        assert!(is_missing(BuildStep::Confinement, libc::EPERM) && !is_missing(BuildStep::Confinement, libc::EAGAIN));
        // A directory of another user, and a directory that a command has replaced by a link.
        for errno in [libc::EACCES, libc::EPERM, libc::EINVAL, libc::ENOSPC, libc::ELOOP] {
            assert!(!is_missing(BuildStep::Mount, errno), "{errno}");
        }
    }
}
