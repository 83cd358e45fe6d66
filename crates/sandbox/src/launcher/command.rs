//! Starts commands in a sandbox, each on a thread of its own. The thread makes a PID namespace with its first process
//! (see `namespace_init`), and then the process that becomes the command (see `leader`). That process is a child of
//! the server and not of the launcher, so the server waits for it as for any other process.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::ptr;

use rustix::thread::UnshareFlags;

use super::leader::{self, LeaderPlan};
use super::namespace_init::{self, InitPlan};
use super::{BuiltSandbox, number};
use crate::channel;
use crate::message::{StartReply, StartRequest, StartStage};
use crate::seccomp::{self, Refusal};

/// The stack of the thread of a start. Its functions are few and small.
pub(super) const STACK_BYTES: usize = 256 << 10;

/// The stack of the process that becomes the command, until it executes the program.
const LEADER_STACK_BYTES: usize = 64 << 10;

/// Descriptors that a start needs until the end get at least this number, so that the descriptors of the command never
/// replace them.
const FIRST_HIGH_DESCRIPTOR: RawFd = 512;

/// Numbers that the extra descriptor of a command may have: above the standard streams, and below those that a start needs.
pub(super) const EXTRA_DESCRIPTORS: Range<u32> = 3..FIRST_HIGH_DESCRIPTOR as u32;

/// Everything that the starts of a sandbox have in common.
pub(super) struct CommandStarter {
    users: OwnedFd,
    proc_flags: Option<libc::c_ulong>,
    /// Reports refused calls to the server.
    reporting_filter: Vec<libc::sock_filter>,
    /// Used if the kernel does not allow the other one.
    plain_filter: Vec<libc::sock_filter>,
    /// The first process of each PID namespace has the other end, and ends when the launcher ends.
    alive: OwnedFd,
    /// Closed only when the launcher ends.
    kept_alive: OwnedFd,
}

impl CommandStarter {
    /// None if the launcher has no descriptors left.
    pub(super) fn new(sandbox: &BuiltSandbox) -> Option<Self> {
        let (alive, kept) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).ok()?;
        let quiet = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        // User 0 of the host may write many files of `/proc` that concern the whole machine, even without capabilities.
        let is_root = sandbox.host_user == 0;
        let proc_flags = sandbox.has_proc.then_some(if is_root { quiet | libc::MS_RDONLY } else { quiet });
        Some(Self {
            users: high(&sandbox.command_users)?,
            proc_flags,
            reporting_filter: seccomp::filter(sandbox.network, Refusal::IsReported),
            plain_filter: seccomp::filter(sandbox.network, Refusal::Fails),
            alive: high(&alive)?,
            kept_alive: kept,
        })
    }

    /// Starts a command, and sends the answer over the first of the descriptors.
    pub(super) fn start(&self, request: &StartRequest, descriptors: &[OwnedFd]) {
        let [server, stdin, stdout, stderr, others @ ..] = descriptors else { return };
        let reply = match high(server) {
            Some(server) => self.launch(request, &server, [stdin, stdout, stderr].map(number), others),
            None => failed(StartStage::Isolate, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE)),
        };
        let _server_may_be_gone = channel::send(server.as_fd(), &reply.encode(), &[]);
    }

    fn launch(
        &self,
        request: &StartRequest,
        server: &OwnedFd,
        standard_streams: [RawFd; 3],
        others: &[OwnedFd],
    ) -> StartReply {
        // SAFETY: without UnshareFlags::FILES no descriptor table changes. Only this thread is concerned.
        if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) } {
            return failed(StartStage::Isolate, error.raw_os_error());
        }
        let init = InitPlan { server: number(server), launcher: number(&self.alive), limits: &request.limits };
        // SAFETY: like `fork`. The child makes only system calls, as a copy of a process with several threads must.
        match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
            0 => namespace_init::run(&init),
            error if error < 0 => {
                return failed(
                    StartStage::Isolate,
                    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN),
                );
            }
            _ => {}
        }
        let mut others = others.iter();
        let extra = request.extra_descriptor.and_then(|wanted| {
            let wanted = RawFd::try_from(wanted).ok()?;
            Some((number(others.next()?), wanted))
        });
        let cgroup_procs = others.next().map(number);
        let argv = pointers(&request.argv);
        let mut script_argv = vec![c"/bin/sh".as_ptr(), ptr::null()];
        script_argv.extend(&argv[1..]);
        let mut plan = LeaderPlan {
            candidates: &request.candidates.iter().map(|path| path.as_ptr()).collect::<Vec<_>>(),
            searched: request.searched,
            argv: &argv,
            script_argv: &mut script_argv,
            env: &pointers(&request.env),
            cwd: &request.cwd,
            umask: request.umask,
            limits: &request.limits,
            terminal: request.terminal,
            standard_streams,
            extra,
            cgroup_procs,
            server: number(server),
            kept_alive: number(&self.kept_alive),
            users: number(&self.users),
            proc_flags: self.proc_flags,
            reporting_filter: &self.reporting_filter,
            plain_filter: &self.plain_filter,
            failure: None,
        };
        let mut stack: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(LEADER_STACK_BYTES);
        let top: *mut c_void = stack.as_mut_ptr_range().end.cast();
        let flags: c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::SIGCHLD;
        // SAFETY: the new process uses a stack that nothing else uses. This thread waits until it has executed the program or ended, so
        // that the plan and everything it refers to live long enough.
        let pid = unsafe { libc::clone(leader::main, top, flags, ptr::from_mut(&mut plan).cast()) };
        match (pid, plan.failure) {
            (..0, _) => {
                failed(StartStage::Isolate, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN))
            }
            (pid, None) => StartReply::Started { pid },
            (pid, Some((stage, errno))) => StartReply::Failed { stage, errno, pid: Some(pid) },
        }
    }
}

fn failed(stage: StartStage, errno: i32) -> StartReply {
    StartReply::Failed { stage, errno, pid: None }
}

/// A copy of a descriptor with a number that no descriptor of a command has.
fn high(descriptor: &OwnedFd) -> Option<OwnedFd> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, FIRST_HIGH_DESCRIPTOR.min(highest())).ok()
}

/// Half of the limit of open files, in case the limit is very low.
fn highest() -> RawFd {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    RawFd::try_from(limit / 2).unwrap_or(RawFd::MAX)
}

/// Pointers to the strings, with a null pointer at the end.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}
