//! Makes the namespaces of a sandbox: users, mounts, IPC and usually the network. There are two user namespaces. The
//! outer one owns the other namespaces, and there the user of the server is user 0, because only then the kernel lets
//! it make a set of terminals (`devpts`). The inner one is for commands: there the user has the usual number, and it
//! owns nothing, so a command that gained capabilities in it could do nothing with them.

use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::thread::UnshareFlags;

use super::failure;
use crate::message::{BuildFailure, BuildStep};
use crate::plan::SandboxNetwork;

/// User and group of the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserIds {
    pub(super) user: u32,
    group: u32,
}

/// Moves this process into new namespaces.
pub(super) fn enter(network: SandboxNetwork) -> Result<UserIds, BuildFailure> {
    let ids = UserIds { user: rustix::process::geteuid().as_raw(), group: rustix::process::getegid().as_raw() };
    let mut flags = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWIPC;
    if network != SandboxNetwork::Host {
        flags |= UnshareFlags::NEWNET;
    }
    // SAFETY: without UnshareFlags::FILES no descriptor table changes, and this process has only one thread.
    unsafe { rustix::thread::unshare_unsafe(flags) }
        .map_err(|error| failure(BuildStep::Namespaces, error.into(), ""))?;
    let root = UserIds { user: 0, group: 0 };
    map_ids(Path::new("/proc/self"), root, ids).map_err(|error| failure(BuildStep::UserMapping, error, ""))?;
    Ok(ids)
}

/// Makes the user namespace of the commands, in which the user has the number that it has on the host.
pub(super) fn user_namespace_for_commands(ids: UserIds) -> Result<OwnedFd, BuildFailure> {
    make_user_namespace(ids).map_err(|error| failure(BuildStep::UserMapping, error, "for commands"))
}

fn make_user_namespace(ids: UserIds) -> io::Result<OwnedFd> {
    let (ready, told_ready) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this process has only one thread, so the child may do everything that this process may.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    let Some(child) = Pid::from_raw(child) else {
        // In the child, which only exists to make the namespace. The parent kills it; if the parent is killed, the kernel does.
        let _supported_everywhere = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        // SAFETY: as in `enter`.
        let made = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) };
        let errno = made.err().map_or(0, Errno::raw_os_error);
        let _parent_waits = rustix::io::write(&told_ready, &errno.to_ne_bytes());
        drop(told_ready);
        // SAFETY: suspends and ends this process only.
        unsafe {
            libc::pause();
            libc::_exit(0)
        }
    };
    drop(told_ready);
    let mut errno = [0; size_of::<i32>()];
    let told = rustix::io::read(&ready, &mut errno);
    let folder = format!("/proc/{child}");
    let namespace = match (told, i32::from_ne_bytes(errno)) {
        (Ok(4), 0) => map_ids(Path::new(&folder), ids, UserIds { user: 0, group: 0 }).and_then(|()| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            Ok(openat(CWD, format!("{folder}/ns/user"), flags, Mode::empty())?)
        }),
        (Ok(4), errno) => Err(io::Error::from_raw_os_error(errno)),
        _ => Err(Errno::SRCH.into()),
    };
    let _may_have_ended = rustix::process::kill_process(child, Signal::KILL);
    let _reaped = rustix::process::waitpid(Some(child), WaitOptions::empty());
    namespace
}

/// Lets `inside` in the user namespace of a process stand for `outside` in the namespace around it.
fn map_ids(process: &Path, inside: UserIds, outside: UserIds) -> io::Result<()> {
    // The kernel demands this of unprivileged users before they map a group.
    write(&process.join("setgroups"), "deny")?;
    write(&process.join("uid_map"), &format!("{} {} 1", inside.user, outside.user))?;
    write(&process.join("gid_map"), &format!("{} {} 1", inside.group, outside.group))
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
