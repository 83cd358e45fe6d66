//! Starts commands in a sandbox. Most of what keeps a command apart from the host exists before the request comes (see
//! `isolation`). Here the launcher makes the process that becomes the command (see `leader`). That process is a child of
//! the server and not of the launcher, so the server waits for it as for any other process.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::ptr;

use rustix::io::Errno;

use super::isolation::{CommandIsolation, PreparedNamespaces};
use super::leader::{self, LeaderFailure, LeaderPlan};
use super::number;
use crate::channel;
use crate::message::{BuildFailure, StartReply, StartRequest, StartStage};
use crate::open_files::open_files_limit;
use crate::plan::SandboxNetwork;
use crate::seccomp::{self, Refusal};

/// The stack of the process that becomes the command, until it executes the program.
pub(super) const LEADER_STACK_BYTES: usize = 64 << 10;

/// Descriptors that a start needs until the end get at least this number, so that the descriptors of the command never
/// replace them. The server asks for extra descriptors up to number 93. The number is not much higher, because the kernel copies
/// the descriptor table up to the highest number in use for each new process.
const FIRST_HIGH_DESCRIPTOR: RawFd = 100;

/// Everything that the starts of a sandbox have in common.
pub(super) struct CommandStarter {
    isolation: CommandIsolation,
    /// Reports refused calls to the server.
    reporting_filter: Vec<libc::sock_filter>,
    /// Used if the kernel does not allow the reporting filter.
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

    /// Checks whether a command can be confined. To be called while this process has only one thread.
    pub(super) fn try_out(&self) -> Result<(), BuildFailure> {
        self.isolation.try_out(&self.plain_filter)
    }

    /// Makes what does not depend on the command. A thread can do this only once.
    pub(super) fn make_ahead(&self) -> Result<Option<PreparedNamespaces>, Errno> {
        self.isolation.make_ahead()
    }

    /// Starts a command with what this thread has made ahead, and sends the answer over the first of the descriptors.
    pub(super) fn start(
        &self,
        ahead: Result<Option<PreparedNamespaces>, Errno>,
        request: &StartRequest,
        descriptors: &[OwnedFd],
    ) {
        let [server, stdin, stdout, stderr, others @ ..] = descriptors else { return };
        let reply = match ahead.and_then(|ahead| Ok((ahead, high(server)?))) {
            Ok((ahead, server)) => self.launch(ahead, request, &server, [stdin, stdout, stderr], others),
            Err(error) => failed(StartStage::Isolate, error.raw_os_error()),
        };
        let _server_may_be_gone = channel::send(server.as_fd(), &reply.encode(), &[]);
    }

    fn launch(
        &self,
        ahead: Option<PreparedNamespaces>,
        request: &StartRequest,
        server: &OwnedFd,
        standard: [&OwnedFd; 3],
        others: &[OwnedFd],
    ) -> StartReply {
        let isolation = match self.isolation.complete(ahead, request, standard[0]) {
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
        let mut own_failure = None;
        let mut shared_failure = match request.enters_cgroup.then(SharedFailure::new).transpose() {
            Ok(shared) => shared,
            Err(error) => return failed(StartStage::Isolate, error.raw_os_error()),
        };
        let memory = if shared_failure.is_some() { 0 } else { libc::CLONE_VM };
        let mut plan = LeaderPlan {
            candidates: &request.candidates.iter().map(|path| path.as_ptr()).collect::<Vec<_>>(),
            searched: request.searched,
            argv: &argv,
            script_argv: &mut script_argv,
            env: &pointers(&request.env),
            cwd: &request.cwd,
            umask: request.umask,
            tag: request.tag,
            limits: &request.limits,
            terminal: request.terminal,
            standard_streams: standard.map(number),
            extra,
            cgroup_procs,
            server: number(server),
            isolation: isolation.leader,
            reporting_filter: &self.reporting_filter,
            plain_filter: &self.plain_filter,
            failure: shared_failure.as_mut().map_or(&mut own_failure, SharedFailure::slot),
        };
        let mut stack: Box<[MaybeUninit<u8>]> = Box::new_uninit_slice(LEADER_STACK_BYTES);
        let top: *mut c_void = stack.as_mut_ptr_range().end.cast();
        let flags: c_int = memory | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::SIGCHLD;
        // SAFETY: the new process uses a stack that nothing else uses. This thread waits until the process has executed the program or
        // ended, so that the plan and everything it refers to live long enough.
        let pid = unsafe { libc::clone(leader::main, top, flags, ptr::from_mut(&mut plan).cast()) };
        match (pid, *plan.failure) {
            (..0, _) => {
                failed(StartStage::Isolate, io::Error::last_os_error().raw_os_error().unwrap_or(libc::EAGAIN))
            }
            (pid, None) => StartReply::Started { pid },
            (pid, Some((stage, errno))) => StartReply::Failed { stage, errno, pid: Some(pid) },
        }
    }
}

/// Where a leader with a copy of the launcher's memory reports its failure: the only memory that it shares with the launcher.
///
/// A leader that enters a cgroup needs a copy: if the memory limit of the cgroup is too low to execute the program, the kernel kills the
/// leader and every process with the same memory, which would be the launcher and the init processes of all other commands.
struct SharedFailure {
    slot: ptr::NonNull<LeaderFailure>,
}

impl SharedFailure {
    fn new() -> Result<Self, Errno> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let address = unsafe { libc::mmap(ptr::null_mut(), size_of::<LeaderFailure>(), access, kind, -1, 0) };
        let slot = if address == libc::MAP_FAILED { None } else { ptr::NonNull::new(address.cast()) };
        let slot: ptr::NonNull<LeaderFailure> = slot.ok_or(Errno::NOMEM)?;
        // SAFETY: the mapping is larger than the value, begins at a page, and nothing else uses it.
        unsafe { slot.write(None) };
        Ok(Self { slot })
    }

    fn slot(&mut self) -> &mut LeaderFailure {
        // SAFETY: the value was written by `new`, and the leader, which may write it too, has ended or executed its program before it is
        // read.
        unsafe { self.slot.as_mut() }
    }
}

impl Drop for SharedFailure {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new`, and no reference to it is left.
        unsafe { libc::munmap(self.slot.as_ptr().cast(), size_of::<LeaderFailure>()) };
    }
}

fn failed(stage: StartStage, errno: i32) -> StartReply {
    StartReply::Failed { stage, errno, pid: None }
}

/// Whether the extra descriptor of a command may have this number: above the standard streams, and below the descriptors that a start
/// needs.
pub(super) fn may_be_extra(wanted: u32) -> bool {
    RawFd::try_from(wanted).is_ok_and(|wanted| (3..first_high()).contains(&wanted))
}

/// A copy of a descriptor with a number that no descriptor of a command has.
pub(super) fn high(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    rustix::io::fcntl_dupfd_cloexec(descriptor, first_high())
}

/// [`FIRST_HIGH_DESCRIPTOR`], but at most half of the limit of open files, in case the limit is very low.
fn first_high() -> RawFd {
    let half = open_files_limit().and_then(|limit| RawFd::try_from(limit / 2).ok());
    half.map_or(FIRST_HIGH_DESCRIPTOR, |half| FIRST_HIGH_DESCRIPTOR.min(half))
}

/// Pointers to the strings, with a null pointer at the end.
fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}
