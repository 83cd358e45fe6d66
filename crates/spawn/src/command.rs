//! What is to be started: program, arguments, environment, directory and standard streams. Plain values; nothing here touches
//! the operating system.

use std::ffi::OsString;
use std::path::PathBuf;

/// One process to start.
#[derive(Clone, Debug)]
pub struct SpawnCommand {
    /// The program and its arguments; the first element is what is looked up and executed.
    pub argv: Vec<OsString>,
    /// What the child sees as its `argv[0]`, if that is not the program.
    pub arg0: Option<OsString>,
    /// The whole environment of the child; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// The directory the child starts in.
    pub cwd: PathBuf,
    /// What its standard streams are connected to.
    pub stdio: Stdio,
    /// The permissions that files of the child do not get; those of the server if not given.
    pub umask: Option<u32>,
}

/// What the standard streams of a child are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdio {
    /// A pipe each for stdout and stderr.
    Pipes {
        /// What the child reads from.
        stdin: StdinMode,
    },
    /// All three are one new terminal of this size, which is the controlling terminal of the child.
    Pty(TerminalSize),
    /// All three are `/dev/null`, and the child reports to us through a pipe at another descriptor. What it prints cannot be mistaken for its
    /// report, and a child that redirects its standard streams can still report.
    Report {
        /// The number of the write end in the child; 3 or more.
        descriptor: i32,
    },
}

/// What a child on pipes reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinMode {
    /// `/dev/null`.
    Null,
    /// A pipe that we write to.
    Piped,
}

/// Size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}
