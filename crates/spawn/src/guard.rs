//! The guard: a small process that outlives the server and, when that is gone for whatever reason, ends everything it had started. It
//! learns of the end by a pipe that only the server holds, so not even `kill -9` gets around it.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::children::{GuardAnnouncement, children};
use crate::descriptors;
use crate::hunt;
use crate::image::CStringArray;
use crate::left_sessions::LeftSessions;
use crate::procfs;
use crate::rlimit::ChildLimits;
use crate::roster;
use crate::signals;
use crate::strike::has_ended;
use crate::tag::{Instance, Scope};
use crate::vfork::{self, FileActions};

/// Nobody waits for the guard, so it can afford to wait for what is slow to die.
const PATIENCE: Duration = Duration::from_secs(60);

/// What it is called in lists of processes. Not like the server: whoever ends all processes of that name, by SIGKILL, must
/// not end the one that then cleans up.
const NAME: &CStr = c"exec-guard";

/// Where the guard has the roster.
const ROSTER_NUMBER: RawFd = 3;

/// How to run the guard: a program that calls [`guard_main`] with its last argument.
#[derive(Clone, Debug)]
pub struct GuardProgram {
    /// The path of the program; usually our own executable.
    pub program: PathBuf,
    /// Its arguments, to which one is added.
    pub args: Vec<OsString>,
}

/// The server's side of a guard.
#[derive(Debug)]
pub(crate) struct Guard {
    program: GuardProgram,
    instance: Instance,
    pid: Pid,
    pidfd: OwnedFd,
    /// The write end of the pipe whose closing wakes the guard. Nothing is ever written.
    _lifeline: OwnedFd,
}

impl Guard {
    pub(crate) fn start(program: GuardProgram, instance: Instance) -> io::Result<Self> {
        let (theirs, lifeline) = descriptors::pipe()?;
        let mut actions = FileActions::default();
        actions.duplicate(theirs.as_raw_fd(), 0);
        // Whoever reads our output must not have to wait for the guard.
        actions.open(1, c"/dev/null", libc::O_WRONLY);
        actions.open(2, c"/dev/null", libc::O_WRONLY);

        let path = CString::new(program.program.as_os_str().as_bytes())?;
        let argv = CStringArray::new(arguments(&program, instance)?);
        let env = CStringArray::new(environment()?);
        // Once made, the roster is never closed.
        match children().roster() {
            Ok(roster) => actions.duplicate(roster.as_fd().as_raw_fd(), ROSTER_NUMBER),
            // A kernel without such files. The guard then knows trees by their tags only.
            Err(_) => actions.open(ROSTER_NUMBER, c"/dev/null", libc::O_RDONLY),
        }
        // Until its number is known, nobody takes it for a process to be ended or reaped. The lock on all children is not held
        // meanwhile, because executing a program can hang.
        let announcement = GuardAnnouncement::new();
        let guard = vfork::spawn(&path, &argv, &env, &actions, &ChildLimits::new(None))?;
        let pid = guard.pid;
        let pidfd = guard.into_pidfd().inspect_err(|_| {
            // Without us to hold its pipe open, the guard would take the server for gone and end everything.
            let _is_ours = rustix::process::kill_process(pid, Signal::KILL);
        })?;
        announcement.settle(pid);
        Ok(Self { pidfd, program, instance, pid, _lifeline: lifeline })
    }

    pub(crate) fn has_ended(&self) -> bool {
        has_ended(&self.pidfd)
    }

    /// Lets the guard go on if somebody has stopped it.
    pub(crate) fn continue_if_stopped(&self) {
        // One that runs ignores the signal.
        let _may_have_ended = rustix::process::pidfd_send_signal(&self.pidfd, Signal::CONT);
    }

    /// A descriptor that can be read from once the guard has ended.
    pub(crate) fn end(&self) -> io::Result<OwnedFd> {
        self.pidfd.try_clone()
    }

    /// Starts another if this one has been killed.
    pub(crate) fn revive(&mut self) -> io::Result<()> {
        if self.has_ended() {
            children().reap_stranger(self.pid);
            *self = Self::start(self.program.clone(), self.instance)?;
        }
        Ok(())
    }
}

fn arguments(program: &GuardProgram, instance: Instance) -> io::Result<Vec<CString>> {
    let mut argv = vec![NAME.to_owned()];
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

/// Runs the guard: waits for the end of the server that started this process, ends everything of it, and returns. `argument` is
/// the last argument of the program.
pub fn guard_main(argument: &OsStr) -> ExitCode {
    let Some(guarded) = GuardArgument::parse(argument) else {
        return ExitCode::from(2);
    };
    signals::ignore_requests_to_end();
    let _is_only_a_name = rustix::thread::set_name(NAME);
    let _keeps_no_mount_busy = std::env::set_current_dir("/");
    guarded.wait_for_end();
    match hunt::kill(Scope::Everything(guarded.instance), guarded.left_sessions(), PATIENCE) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Which server a guard is for.
#[derive(Debug, PartialEq)]
struct GuardArgument {
    instance: Instance,
    server: Pid,
}

impl GuardArgument {
    fn of_this_server(instance: Instance) -> Self {
        Self { instance, server: rustix::process::getpid() }
    }

    fn to_os_string(&self) -> OsString {
        let mut text = self.instance.to_argument();
        text.push(format!("-{}", self.server));
        text
    }

    fn parse(argument: &OsStr) -> Option<Self> {
        let (instance, server) = argument.to_str()?.split_once('-')?;
        Some(Self { instance: Instance::from_argument(instance)?, server: Pid::from_raw(server.parse().ok()?)? })
    }

    /// The sessions of leaders that had not been reaped when the server ended, which is now.
    fn left_sessions(&self) -> LeftSessions {
        let end = procfs::ticks_since_boot();
        // SAFETY: the server has put the roster, or something that is empty, at this number, and nothing ever closes it.
        let memory = unsafe { BorrowedFd::borrow_raw(ROSTER_NUMBER) };
        LeftSessions::at_the_end(roster::leaders(memory, self.instance), end)
    }

    /// Watches the process as well as the pipe: a child that hangs in `exec` still has a copy of the pipe.
    fn wait_for_end(&self) {
        let Ok(server) = rustix::process::pidfd_open(self.server, PidfdFlags::empty()) else {
            return;
        };
        if rustix::process::getppid() != Some(self.server) {
            return;
        }
        loop {
            let stdin = rustix::stdio::stdin();
            let mut polled = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(&server, PollFlags::IN)];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) => return,
                Err(Errno::INTR) => {}
                // Without memory for a poll there is none for a hunt either; the read below needs none.
                Err(_) => {
                    let _end = rustix::io::read(stdin, &mut [0]);
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_survives_the_command_line() {
        let argument =
            GuardArgument { instance: Instance::from_argument("beef").unwrap(), server: Pid::from_raw(42).unwrap() };
        assert_eq!(GuardArgument::parse(&argument.to_os_string()), Some(argument));
        for nonsense in ["", "beef", "beef-", "beef-0", "-42", "beef-x"] {
            assert_eq!(GuardArgument::parse(OsStr::new(nonsense)), None, "{nonsense}");
        }
    }
}
