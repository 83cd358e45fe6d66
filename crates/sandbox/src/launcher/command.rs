//! Starts commands in a sandbox, each on a thread of its own. The thread prepares what keeps the command apart from the host
//! (see `isolation`), and then makes the process that becomes the command (see `leader`). That process is a child of
//! the server and not of the launcher, so the server waits for it as for any other process.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;

use super::isolation::CommandIsolation;
use super::leader::{self, LeaderPlan};
use super::number;
use crate::channel;
use crate::message::{StartReply, StartRequest, StartStage};
use crate::plan::SandboxNetwork;
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
    isolation: CommandIsolation,
    /// Reports refused calls to the server.
    reporting_filter: Vec<libc::sock_filter>,
    /// Used if the kernel does not allow the other one.
    plain_filter: Vec<libc::sock_filter>,
}

impl CommandStarter {
    pub(super) fn new(isolation: CommandIsolation, network: SandboxNetwork) -> Self {
        Self {
            isolation,
            reporting_filter: seccomp::filter(network, Refusal::IsReported),
            plain_filter: seccomp::filter(network, Refusal::Fails),
        }
    }

    /// Starts a command, and sends the answer over the first of the descriptors.
    pub(super) fn start(&self, request: &StartRequest, descriptors: &[OwnedFd]) {
        let [server, stdin, stdout, stderr, others @ ..] = descriptors else { return };
        let reply = match high(server) {
            Ok(server) => self.launch(request, &server, [stdin, stdout, stderr], others),
            Err(error) => failed(StartStage::Isolate, error.raw_os_error()),
        };
        let _server_may_be_gone = channel::send(server.as_fd(), &reply.encode(), &[]);
    }

    fn launch(
        &self,
        request: &StartRequest,
        server: &OwnedFd,
        standard: [&OwnedFd; 3],
        others: &[OwnedFd],
    ) -> StartReply {
        let isolation = match self.isolation.prepare(request, server, standard[0]) {
            Ok(isolation) => isolation,
            Err(error) => return failed(StartStage::Isolate, error.raw_os_error()),
        };
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
            standard_streams: standard.map(number),
            extra,
            cgroup_procs,
            server: number(server),
            isolation: isolation.leader,
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
pub(super) fn high(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, FIRST_HIGH_DESCRIPTOR.min(highest()))
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
