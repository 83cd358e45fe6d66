//! The errors of this crate: [`SpawnError`] says why a process was not started, and [`Survivors`] says which processes could not be killed.
//! A `SpawnError` distinguishes a mistake in the command from a machine that has run out of something.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

use crate::limits::UnenforceableLimit;

/// Why a process was not started. A failed start leaves no descriptor open and no zombie.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// `argv` has no program, or an empty one, and the command asks for pipes or a report.
    #[error("missing program for pipe spawn")]
    MissingPipeProgram,
    /// `argv` has no program, or an empty one, and the command asks for a terminal.
    #[error("missing program for PTY spawn")]
    MissingPtyProgram,
    /// A string contains a NUL byte, which would end the string for the operating system.
    #[error("{place} contains a NUL byte")]
    NulByte {
        /// The part of the command that has the string: `argv`, `env` or `cwd`.
        place: &'static str,
    },
    /// The name of an environment variable is empty or contains `=`.
    #[error("environment variable name {name:?} is empty or contains `=`")]
    EnvironmentName {
        /// The name as it was given.
        name: OsString,
    },
    /// The working directory does not exist, is not a directory, or may not be entered.
    #[error("cwd {}: {source}", path.display())]
    Cwd {
        /// The directory as it was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The working directory cannot be entered in the sandbox of the process.
    #[error(
        "cwd {} in the sandbox of the process: {source}; if it exists, the policy must allow reading it",
        path.display()
    )]
    SandboxedCwd {
        /// The directory as it was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program was not found or could not be executed.
    #[error("{source}")]
    Program {
        /// The program as it was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program was not found, or could not be executed, in the sandbox of the process.
    #[error("{} in the sandbox of the process: {source}; if it exists, the policy must allow reading it", path.display())]
    SandboxedProgram {
        /// The program as it was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program was not executed because its limit of memory is too low for it.
    #[error("the program does not fit into its memory limit: {source}")]
    MemoryLimit {
        /// The program as it was given.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A limit that was asked for cannot be enforced, so nothing was started.
    #[error(transparent)]
    Limit(#[from] UnenforceableLimit),
    /// The [`CancelFlag`](crate::CancelFlag) was set before the program was executed.
    #[error("the start was cancelled")]
    Cancelled,
    /// The machine or this process has run out of something that the start needs, for example descriptors. The command is not at fault.
    #[error("cannot {action}: {source}")]
    Resource {
        /// What the spawner tried to do, as the end of a sentence that begins with "cannot".
        action: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl SpawnError {
    /// Makes a function for `map_err` that wraps an error in [`Self::Resource`].
    pub(crate) fn resource<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Resource { action, source: source.into() }
    }
}

/// Some processes could not be killed.
#[derive(Debug, thiserror::Error)]
#[error("not all processes were ended (still running: {pids:?}): {reason}")]
pub struct Survivors {
    /// The process ids that the last listing of processes has found. Empty if processes could not be listed.
    pub pids: Vec<u32>,
    /// Why the processes still run.
    pub reason: SurvivalReason,
}

/// Why some processes may still run after a kill.
#[derive(Debug, thiserror::Error)]
pub enum SurvivalReason {
    /// All processes that are left belong to another user, for example because they were started with `sudo`.
    #[error("they belong to another user and this user may not signal them; end them as root")]
    NotPermitted,
    /// The timeout has passed. The processes have been sent `SIGKILL` but have not ended, for example because they wait for a dead network
    /// mount, or they fork faster than they can be killed.
    #[error("they did not end before the timeout")]
    TimedOut,
    /// `/proc` could not be read, or the thread that reads it has panicked. So it is not known which processes are
    /// left.
    #[error("cannot list processes: {0}")]
    ProcUnreadable(io::Error),
}
