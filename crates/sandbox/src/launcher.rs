//! The launcher: a small process that makes a sandbox and then starts commands in it. It is the server's own program,
//! started with an empty environment, with a socket to the server as descriptor [`SOCKET_FD`]. It ends when the
//! server closes the socket, and then all of its commands end too.
//!
//! The launcher keeps one capability, and only in its own user namespace, where it gives it the right to make mounts
//! and namespaces. A command gets no capability, cannot see the launcher (it has a PID namespace of its own) and has no
//! descriptor of it. Start with [`launcher_main`].

mod command;
mod confinement;
mod device_files;
mod file_tree;
mod isolation;
mod kernel_files;
mod landlock_rules;
mod leader;
mod loopback;
mod mount_calls;
mod namespace_init;
mod namespaces;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::sync::Arc;

use rustix::fs::{CWD, Mode, OFlags, openat};

use self::command::CommandStarter;
use self::isolation::CommandIsolation;
use self::landlock_rules::LandlockRules;
use crate::channel::{self, ReceivedMessage};
use crate::landlock_plan::{EnforcementPlan, LandlockPlan};
use crate::message::{BuildFailure, BuildReply, BuildStep, StartRequest};
use crate::plan::{SandboxNetwork, SandboxPlan};

/// The descriptor of the socket to the server.
pub const SOCKET_FD: RawFd = 3;

/// Descriptors that come with every request: the socket for the answer and the three standard streams.
const REQUEST_DESCRIPTORS: usize = 4;

/// Runs the launcher until the server closes the socket. The exit code is 1 if there is no socket, if the sandbox could
/// not be made (the server was told why), or if the server sends something that is no request.
pub fn launcher_main() -> ExitCode {
    // SAFETY: the server has put the socket at this number, and nothing else in this process uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(SOCKET_FD) };
    // The name in process listings.
    let _not_essential = rustix::thread::set_name(c"exec-launcher");
    let Ok(Some(ReceivedMessage { message, .. })) = channel::receive(socket.as_fd()) else {
        return ExitCode::FAILURE;
    };
    let Ok(plan) = EnforcementPlan::decode(&message) else { return ExitCode::FAILURE };
    let built = match plan {
        EnforcementPlan::Namespaces(plan) => build(&plan),
        EnforcementPlan::Landlock(plan) => build_without_namespaces(&plan),
    };
    let done = match built {
        Ok(sandbox) => serve(&socket, sandbox),
        Err(failure) => {
            let _server_may_be_gone = channel::send(socket.as_fd(), &BuildReply::Failed(failure).encode(), &[]);
            None
        }
    };
    if done.is_none() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// A finished sandbox, from the inside.
struct BuiltSandbox {
    isolation: CommandIsolation,
    network: SandboxNetwork,
    /// Whether commands have a `/proc`.
    has_proc: bool,
    /// For the server: the root directory, the mount namespace, and the listening socket if there is one.
    descriptors: Vec<OwnedFd>,
}

fn build(plan: &SandboxPlan) -> Result<BuiltSandbox, BuildFailure> {
    let ids = namespaces::enter(plan.network)?;
    let command_users = namespaces::user_namespace_for_commands(ids)?;
    let mounts = namespaces::mount_namespace()?;
    let listener = match plan.network {
        SandboxNetwork::LoopbackOnly => Some(loopback::listen()?),
        SandboxNetwork::Host | SandboxNetwork::None => None,
    };
    let has_proc = file_tree::build(plan)?;
    confinement::keep_only_the_launchers_capability()
        .map_err(|error| failure(BuildStep::Capabilities, error.into(), ""))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        openat(CWD, "/", flags, Mode::empty()).map_err(|error| failure(BuildStep::ChangeRoot, error.into(), ""))?;
    let isolation = CommandIsolation::namespaces(&command_users, has_proc, ids.user)
        .map_err(|error| failure(BuildStep::Namespaces, error.into(), ""))?;
    let descriptors = [Some(root), Some(mounts), listener].into_iter().flatten().collect();
    Ok(BuiltSandbox { isolation, network: plan.network, has_proc, descriptors })
}

/// Such a launcher needs no privilege, and its commands see the files and processes of the host.
fn build_without_namespaces(plan: &LandlockPlan) -> Result<BuiltSandbox, BuildFailure> {
    let rules = LandlockRules::new(&plan.files)?;
    confinement::give_up_privileges().map_err(|error| failure(BuildStep::Capabilities, error.into(), ""))?;
    let isolation = CommandIsolation::landlock(rules, &plan.files);
    Ok(BuiltSandbox { isolation, network: plan.network, has_proc: true, descriptors: Vec::new() })
}

/// Tells the server that the sandbox is ready, and starts commands until the server closes the socket. None if the server sends something
/// that is no request.
fn serve(socket: &OwnedFd, sandbox: BuiltSandbox) -> Option<()> {
    let descriptors: Vec<BorrowedFd<'_>> = sandbox.descriptors.iter().map(AsFd::as_fd).collect();
    channel::send(socket.as_fd(), &BuildReply::Ready { has_proc: sandbox.has_proc }.encode(), &descriptors).ok()?;
    drop(sandbox.descriptors);
    let starter = Arc::new(CommandStarter::new(sandbox.isolation, sandbox.network));
    namespace_init::let_the_kernel_reap();
    while let Some(ReceivedMessage { message, descriptors, lost_descriptors }) =
        channel::receive(socket.as_fd()).ok()?
    {
        // This process has too many open. Without its descriptors, the socket of the request is closed, which tells the server that nothing was
        // started. The other commands go on.
        if lost_descriptors {
            continue;
        }
        let Ok(request) = StartRequest::decode(&message) else { return None };
        let expected = REQUEST_DESCRIPTORS
            + usize::from(request.extra_descriptor.is_some())
            + usize::from(request.enters_cgroup);
        let has_bad_number =
            request.extra_descriptor.is_some_and(|number| !command::EXTRA_DESCRIPTORS.contains(&number));
        let lacks_program = request.argv.is_empty() || request.candidates.is_empty();
        if descriptors.len() != expected || lacks_program || has_bad_number {
            return None;
        }
        let starter = Arc::clone(&starter);
        // A thread for each start: a start can hang, for example while the kernel opens a program on a dead network mount. And the
        // thread's own PID namespace for new children makes that of the command, which the kernel does not let a thread change twice.
        let work = move || starter.start(&request, &descriptors);
        // Without a thread the answer's socket is closed, which tells the server that nothing was started.
        let _nothing_started_without_a_thread =
            std::thread::Builder::new().stack_size(command::STACK_BYTES).spawn(work);
    }
    Some(())
}

fn failure(step: BuildStep, error: std::io::Error, detail: impl Into<String>) -> BuildFailure {
    BuildFailure { step, errno: error.raw_os_error().unwrap_or_default(), detail: detail.into() }
}

/// The number of a descriptor, as the raw system calls of a new process take it.
fn number(descriptor: &impl AsFd) -> RawFd {
    descriptor.as_fd().as_raw_fd()
}
