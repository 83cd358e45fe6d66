//! Why a process could not be started, and why one could not be ended. Each error says whose fault it is: the command's, or
//! the machine's.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;

/// Why a process was not started. Nothing is left of it: no descriptor, no zombie.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// `argv` is empty or its first element is, for a command on pipes.
    #[error("missing program for pipe spawn")]
    MissingPipeProgram,
    /// `argv` is empty or its first element is, for a command on a terminal.
    #[error("missing program for PTY spawn")]
    MissingPtyProgram,
    /// A string that the operating system ends at a NUL byte has one inside.
    #[error("{place} contains a NUL byte")]
    NulByte {
        /// Which part of the command it is.
        place: &'static str,
    },
    /// A name that no environment can hold.
    #[error("environment variable name {name:?} is empty or contains `=`")]
    EnvironmentName {
        /// The offending name.
        name: OsString,
    },
    /// The working directory is missing, not a directory or not accessible.
    #[error("cwd {}: {source}", path.display())]
    Cwd {
        /// The directory as it was given.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// The program was not found or could not be executed.
    #[error("{source}")]
    Program {
        /// The program as it was given.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Somebody gave the start up before the program was executed.
    #[error("the start was cancelled")]
    Cancelled,
    /// This machine has run out of something the start needs, which is no fault of the command.
    #[error("cannot {action}: {source}")]
    Resource {
        /// What was tried.
        action: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
}

impl SpawnError {
    /// For `map_err`: names what was tried when the machine refused.
    pub(crate) fn resource<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Resource { action, source: source.into() }
    }
}

/// Processes that were to be ended and are still there.
#[derive(Debug, thiserror::Error)]
#[error("{} processes are still there ({pids:?}): {reason}", pids.len())]
pub struct Survivors {
    /// Their process ids as last seen.
    pub pids: Vec<u32>,
    /// Why they are still there.
    pub reason: SurvivalReason,
}

/// How a process can outlive `SIGKILL`.
#[derive(Debug, thiserror::Error)]
pub enum SurvivalReason {
    /// They belong to another user, for example behind `sudo`.
    #[error("not permitted to signal them")]
    NotPermitted,
    /// They were killed and are not gone yet, for example waiting for a dead network mount, or new ones came faster than they
    /// could be ended.
    #[error("they did not end in time")]
    TimedOut,
    /// `/proc` could not be read, so it is not known what is left.
    #[error("cannot list processes: {0}")]
    ProcUnreadable(io::Error),
}
