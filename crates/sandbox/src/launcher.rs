//! The launcher: a small process that makes a sandbox and then starts commands in it. It is the server's own program,
//! started with an empty environment, with a socket to the server as descriptor [`SOCKET_FD`]. It ends when the
//! server closes the socket, and in a sandbox of namespaces all of its commands end with it.
//!
//! In a sandbox of namespaces the launcher keeps one capability, in its own user namespace, because it makes mounts and
//! namespaces for each command. A command gets no capability, cannot see the launcher (the command has its own PID namespace)
//! and has no descriptor of it. Start with [`launcher_main`].

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
mod raw_call;
mod signals;
mod start_threads;
mod trial;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::DumpableBehavior;

use self::command::CommandStarter;
pub use self::device_files::{MAX_SHARED_MEMORY_BYTES, MAX_SHARED_MEMORY_FILES, MAX_TERMINALS};
use self::file_tree::EnteredTree;
use self::isolation::CommandIsolation;
use self::landlock_rules::LandlockRules;
use crate::channel::{self, ReceivedMessage};
use crate::landlock_plan::{EnforcementPlan, LandlockPlan};
use crate::message::{BuildFailure, BuildReply, BuildStep};
use crate::open_files::raise_open_files_limit;
use crate::plan::{SandboxNetwork, SandboxPlan};

/// The descriptor of the socket to the server.
pub const SOCKET_FD: RawFd = 3;

/// Runs the launcher until the server closes the socket. The exit code is 1 if the sandbox could not be made
/// (the server was told why if possible), or if the server sends something that is no plan or no request.
pub fn launcher_main() -> ExitCode {
    // SAFETY: the server has put the socket at this number, and nothing else in this process uses it.
    let socket = unsafe { OwnedFd::from_raw_fd(SOCKET_FD) };
    // Each start needs descriptors. The limit also says how many of them may be on their way between processes of this user.
    raise_open_files_limit();
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
    match built {
        Ok(sandbox) => serve(socket, sandbox),
        Err(failure) => {
            let _server_may_be_gone = channel::send(socket.as_fd(), &BuildReply::Failed(failure).encode(), &[]);
            ExitCode::FAILURE
        }
    }
}

/// A finished sandbox, from the inside.
struct BuiltSandbox {
    starter: CommandStarter,
    /// Whether commands have a `/proc`.
    has_proc: bool,
    /// For the server: the root directory, the list of mounts, and the listening socket if there is one.
    descriptors: Vec<OwnedFd>,
}

fn build(plan: &SandboxPlan) -> Result<BuiltSandbox, BuildFailure> {
    let ids = namespaces::enter(plan.network)?;
    let command_users = namespaces::user_namespace_for_commands(ids)?;
    let listener = match plan.network {
        SandboxNetwork::LoopbackOnly => Some(loopback::listen()?),
        SandboxNetwork::Host | SandboxNetwork::None => None,
    };
    let EnteredTree { has_proc, mount_table } = file_tree::build(plan)?;
    confinement::keep_only_the_launchers_capability()
        .map_err(|error| failure(BuildStep::Capabilities, error.into(), ""))?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        openat(CWD, "/", flags, Mode::empty()).map_err(|error| failure(BuildStep::ChangeRoot, error.into(), ""))?;
    let isolation = CommandIsolation::namespaces(&command_users, has_proc, ids.user)
        .map_err(|error| failure(BuildStep::Namespaces, error.into(), ""))?;
    let starter = CommandStarter::new(isolation, plan.network);
    starter.try_out()?;
    let descriptors = [Some(root), Some(mount_table), listener].into_iter().flatten().collect();
    Ok(BuiltSandbox { starter, has_proc, descriptors })
}

/// Makes a sandbox of Landlock rules. The launcher gives up all privileges, and its commands see the files and processes of the host.
fn build_without_namespaces(plan: &LandlockPlan) -> Result<BuiltSandbox, BuildFailure> {
    let rules = LandlockRules::new(&plan.files)?;
    confinement::give_up_privileges().map_err(|error| failure(BuildStep::Capabilities, error.into(), ""))?;
    let starter = CommandStarter::new(CommandIsolation::landlock(rules, &plan.files), plan.network);
    starter.try_out()?;
    Ok(BuiltSandbox { starter, has_proc: true, descriptors: Vec::new() })
}

/// Tells the server that the sandbox is ready, and starts commands until the server closes the socket. Returns only if the server cannot be
/// told, or if the memory of this process cannot be hidden from commands.
fn serve(socket: OwnedFd, sandbox: BuiltSandbox) -> ExitCode {
    // Processes that wait for their command share the memory of this process, and the command must not look into it.
    let hidden = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let descriptors: Vec<BorrowedFd<'_>> = sandbox.descriptors.iter().map(AsFd::as_fd).collect();
    let reply = BuildReply::Ready { has_proc: sandbox.has_proc }.encode();
    if hidden.is_err() || channel::send(socket.as_fd(), &reply, &descriptors).is_err() {
        return ExitCode::FAILURE;
    }
    drop(sandbox.descriptors);
    signals::reset();
    start_threads::serve(socket, sandbox.starter)
}

fn failure(step: BuildStep, error: std::io::Error, detail: impl Into<String>) -> BuildFailure {
    BuildFailure { step, errno: error.raw_os_error().unwrap_or_default(), detail: detail.into() }
}

/// The number of a descriptor, as the raw system calls of a new process take it.
fn number(descriptor: &impl AsFd) -> RawFd {
    descriptor.as_fd().as_raw_fd()
}
