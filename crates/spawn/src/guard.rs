//! The guard: a small process that outlives the server. When the server has ended, for whatever reason, the guard
//! kills all processes that the server has started, and their descendants. It finds them by their tags (see `tag`)
//! and by the roster (see `roster`). The guard notices the end by a pipe whose write end the server keeps open, and
//! by a pidfd of the server, so this works after `kill -9` too.
//!
//! [`Guard`] is the server's handle of its guard, and [`guard_main`] is what runs in the guard itself.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::cgroup::{give_back, remove_after_server_end};
use crate::children::{StartingGuard, children};
use crate::descriptors;
use crate::exec_args::CStringArray;
use crate::guard_notes::{GuardNotes, NOTES_FD, keep_notes_of_ended_server};
use crate::hunt;
use crate::orphaned_sessions::OrphanedSessions;
use crate::procfs;
use crate::rlimit::ChildLimits;
use crate::roster;
use crate::signal_process::has_ended;
use crate::signals;
use crate::tag::{Scope, ServerInstance};
use crate::vfork::{self, FileActions};

/// How long the guard tries to kill. The time is long because no client waits for the guard, and some processes end slowly.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the guard waits for the server's process to end, after it has killed everything. A program that has dropped its server lives on.
const SERVER_EXIT_TIMEOUT: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };

/// The name of the guard in process listings. It differs from that of the server, so that `killall -9` with the name of the server does not
/// kill the guard too.
pub(crate) const GUARD_NAME: &CStr = c"exec-guard";

/// The descriptor number at which the guard has the roster: the list of started processes, which the server writes.
const ROSTER_FD: RawFd = 3;

/// How to run the guard: a program that passes its last argument to [`guard_main`].
#[derive(Clone, Debug)]
pub struct GuardProgram {
    /// The path of the program, usually the server's own executable.
    pub program: PathBuf,
    /// The arguments without `argv[0]`. One more argument is added at the end, which tells the guard to which server it belongs.
    pub args: Vec<OsString>,
}

/// The server's handle of its guard. Dropping it makes the guard kill everything that the server has started.
#[derive(Debug)]
pub(crate) struct Guard {
    program: GuardProgram,
    instance: ServerInstance,
    notes: Option<Arc<GuardNotes>>,
    pid: Pid,
    pidfd: OwnedFd,
    /// The write end of the guard's stdin. When it is closed, the guard starts to kill. The server never writes to it.
    _guard_stdin: OwnedFd,
}

impl Guard {
    pub(crate) fn start(
        program: GuardProgram,
        instance: ServerInstance,
        notes: Option<Arc<GuardNotes>>,
    ) -> io::Result<Self> {
        let (read_end, write_end) = descriptors::pipe()?;
        let mut actions = FileActions::default();
        actions.duplicate(read_end.as_raw_fd(), 0);
        // The guard must not hold the server's stdout and stderr open: a program that reads them must see their end
        // when the server ends.
        actions.open(1, c"/dev/null", libc::O_WRONLY);
        actions.open(2, c"/dev/null", libc::O_WRONLY);

        let path = CString::new(program.program.as_os_str().as_bytes())?;
        let argv = CStringArray::new(arguments(&program, instance)?);
        let env = CStringArray::new(environment()?);
        // The descriptor is valid without the lock: the roster is never closed.
        match children().roster() {
            Ok(roster) => actions.duplicate(roster.as_fd().as_raw_fd(), ROSTER_FD),
            // The roster could not be created. The guard then finds trees by their tags only.
            Err(_) => actions.open(ROSTER_FD, c"/dev/null", libc::O_RDONLY),
        }
        match &notes {
            Some(notes) => actions.duplicate(notes.as_fd().as_raw_fd(), NOTES_FD),
            None => actions.open(NOTES_FD, c"/dev/null", libc::O_RDONLY),
        }
        // While a guard is starting, its process id is not known, and children that may be the guard are neither killed nor reaped. The
        // lock on `children` is not held during the start, because executing a program can hang.
        let starting = StartingGuard::new();
        // The guard gets no tag of its own, because it does not belong to a tree.
        let guard = vfork::spawn(&path, &argv, &env, &actions, &ChildLimits::new(None, &[]))?;
        let pid = guard.pid;
        let pidfd = guard.into_pidfd().inspect_err(|_| {
            // Returning the error closes the write end of the guard's stdin, and the guard would then kill everything.
            let _may_have_ended = rustix::process::kill_process(pid, Signal::KILL);
        })?;
        starting.started(pid);
        Ok(Self { pidfd, program, instance, notes, pid, _guard_stdin: write_end })
    }

    pub(crate) fn has_ended(&self) -> bool {
        has_ended(&self.pidfd)
    }

    /// Continues the guard if a signal has stopped it. A guard that runs ignores `SIGCONT`.
    pub(crate) fn resume(&self) {
        let _may_have_ended = rustix::process::pidfd_send_signal(&self.pidfd, Signal::CONT);
    }

    /// A copy of the pidfd, which is readable once the guard has ended.
    pub(crate) fn clone_pidfd(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Starts a new guard if this one has ended.
    pub(crate) fn restart_if_ended(&mut self) -> io::Result<()> {
        if self.has_ended() {
            children().reap_unclaimed(self.pid);
            *self = Self::start(self.program.clone(), self.instance, self.notes.clone())?;
        }
        Ok(())
    }
}

fn arguments(program: &GuardProgram, instance: ServerInstance) -> io::Result<Vec<CString>> {
    let mut argv = vec![GUARD_NAME.to_owned()];
    for argument in &program.args {
        argv.push(CString::new(argument.as_bytes())?);
    }
    argv.push(CString::new(GuardArgument::of_this_server(instance).to_os_string().into_vec())?);
    Ok(argv)
}

fn environment() -> io::Result<Vec<CString>> {
    std::env::vars_os()
        .map(|(name, value)| Ok(CString::new([name.as_bytes(), b"=", value.as_bytes()].concat())?))
        .collect()
}

/// Runs the guard: waits until the server that started this process has ended, kills all processes of that server, and returns. `argument`
/// is the last argument of the program. The exit code is 0 if all processes have ended, 1 if some are left, and 2 if `argument` is not
/// valid.
pub fn guard_main(argument: &OsStr) -> ExitCode {
    let Some(guarded) = GuardArgument::parse(argument) else {
        return ExitCode::from(2);
    };
    signals::ignore_termination_signals();
    let _not_essential = rustix::thread::set_name(GUARD_NAME);
    // So that the guard does not keep the file system of its working directory busy.
    let _not_essential = std::env::set_current_dir("/");
    let server = guarded.wait_for_server_end();
    let orphaned_sessions = guarded.orphaned_sessions();
    let mut exit_code = ExitCode::SUCCESS;
    remove_after_server_end(guarded.instance, || {
        if hunt::kill(Scope::Everything(guarded.instance), orphaned_sessions, KILL_TIMEOUT).is_err() {
            exit_code = ExitCode::FAILURE;
        }
    });
    if let Some(server) = server {
        // The kernel closes the descriptors of a process one after the other. Until all are closed, the server still has locks on the files
        // that its notes are about.
        let _or_it_lives_on =
            rustix::event::poll(&mut [PollFd::new(&server, PollFlags::IN)], Some(&SERVER_EXIT_TIMEOUT));
    }
    // SAFETY: the server has put its notes or `/dev/null` at this number, and nothing ever closes it.
    keep_notes_of_ended_server(unsafe { BorrowedFd::borrow_raw(NOTES_FD) });
    // At the very end, because the guard then is in the cgroup that the next server needs for itself.
    give_back();
    exit_code
}

/// The argument that tells a guard to which server it belongs.
#[derive(Debug, PartialEq)]
struct GuardArgument {
    instance: ServerInstance,
    server: Pid,
}

impl GuardArgument {
    fn of_this_server(instance: ServerInstance) -> Self {
        Self { instance, server: rustix::process::getpid() }
    }

    fn to_os_string(&self) -> OsString {
        let mut text = self.instance.to_argument();
        text.push(format!("-{}", self.server));
        text
    }

    fn parse(argument: &OsStr) -> Option<Self> {
        let (instance, server) = argument.to_str()?.split_once('-')?;
        Some(Self {
            instance: ServerInstance::from_argument(instance)?,
            server: Pid::from_raw(server.parse().ok()?)?,
        })
    }

    /// The sessions (in the sense of `setsid`) of the processes that the server had started and not reaped. Must be called right after the
    /// server has ended.
    fn orphaned_sessions(&self) -> OrphanedSessions {
        let server_ended = procfs::ticks_since_boot();
        // SAFETY: the server has put the roster or `/dev/null` at this number, and nothing ever closes it.
        let memory = unsafe { BorrowedFd::borrow_raw(ROSTER_FD) };
        OrphanedSessions::new(roster::leaders(memory, self.instance), server_ended)
    }

    /// Waits for the end of the pipe or of the server process, whichever comes first. The pipe alone is not enough: a child of the server
    /// that hangs in `exec` may still have a copy of the write end. Returns a pidfd of the server, or None if the server had ended before.
    fn wait_for_server_end(&self) -> Option<OwnedFd> {
        let server = rustix::process::pidfd_open(self.server, PidfdFlags::empty()).ok()?;
        // Another parent means that the server has ended, and the pidfd may be that of a later process.
        if rustix::process::getppid() != Some(self.server) {
            return None;
        }
        loop {
            let stdin = rustix::stdio::stdin();
            let mut polled = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&server, PollFlags::IN)];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) => return Some(server),
                Err(Errno::INTR) => {}
                // `poll` has no memory left. This read needs no memory, and returns when the server has closed the pipe.
                Err(_) => {
                    let _end_of_pipe = rustix::io::read(stdin, &mut [0]);
                    return Some(server);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_valid_argument_can_be_parsed_again_and_others_are_refused() {
        let argument = GuardArgument {
            instance: ServerInstance::from_argument("beef").unwrap(),
            server: Pid::from_raw(42).unwrap(),
        };
        assert_eq!(GuardArgument::parse(&argument.to_os_string()), Some(argument));
        for invalid in ["", "beef", "beef-", "beef-0", "-42", "beef-x"] {
            assert_eq!(GuardArgument::parse(OsStr::new(invalid)), None, "{invalid}");
        }
    }
}
