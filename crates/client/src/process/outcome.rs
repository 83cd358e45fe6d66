//! How a process ended.

use recovery::Exit;

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    /// 128+N after signal N.
    pub code: i32,
    /// Whether the sandbox refused something.
    pub sandbox_denied: bool,
    /// Whether the server ended it because its time was over.
    pub timed_out: bool,
}

impl ExitStatus {
    /// Whether it says that all went well.
    pub fn success(&self) -> bool {
        self.code == 0
    }
}

impl From<Exit> for ExitStatus {
    fn from(exit: Exit) -> Self {
        Self { code: exit.code, sandbox_denied: exit.sandbox_denied.unwrap_or(false), timed_out: exit.timed_out }
    }
}

/// Everything a process wrote, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// What it wrote to its stdout, or to its terminal.
    pub stdout: Vec<u8>,
    /// What it wrote to its stderr.
    pub stderr: Vec<u8>,
}
