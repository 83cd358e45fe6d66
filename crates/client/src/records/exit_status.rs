//! The exit status of a process, and its whole output.

use protocol::{ExitResources, ReadResult, SandboxDenial};
use recovery::Exit;

/// The way in which a process exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    /// The exit code, or 128+N if signal N ended the process.
    pub code: i32,
    /// Whether the sandbox denied something to the process. False from a server that does not say.
    pub sandbox_denied: bool,
    /// What the sandbox refused, as far as the server knows.
    pub sandbox_denials: Vec<SandboxDenial>,
    /// Whether the server killed the process because the timeout of the process was over.
    pub timed_out: bool,
    /// What the process has used and which limit it has reached, if it was started with
    /// [`limits`](protocol::StartParams::limits).
    pub resources: ExitResources,
}

impl ExitStatus {
    /// The exit that the answer to a read reports. `None` if the process has not exited.
    pub fn of_answer(answer: &ReadResult) -> Option<Self> {
        Exit::of_answer(answer).map(Self::from)
    }

    /// Whether the exit code is 0.
    pub fn success(&self) -> bool {
        self.code == 0
    }
}

impl From<Exit> for ExitStatus {
    fn from(exit: Exit) -> Self {
        Self {
            code: exit.code,
            sandbox_denied: exit.sandbox_denied.unwrap_or(false),
            sandbox_denials: exit.sandbox_denials,
            timed_out: exit.timed_out,
            resources: exit.resources,
        }
    }
}

/// The whole output of a process, and how it exited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOutput {
    /// How the process exited.
    pub status: ExitStatus,
    /// The output on stdout, or on the terminal.
    pub stdout: Vec<u8>,
    /// The output on stderr. Empty for a process on a terminal.
    pub stderr: Vec<u8>,
}
