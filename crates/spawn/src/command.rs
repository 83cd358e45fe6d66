//! The description of a process to start: program, arguments, environment, working directory and standard streams. These are plain values
//! and make no system calls. Read [`SpawnCommand`] first.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::limits::SpawnLimits;

/// A process to start with [`Spawner::spawn`](crate::Spawner::spawn).
#[derive(Clone, Debug)]
pub struct SpawnCommand {
    /// The program and its arguments. The first element is the program. If it contains no slash, it is searched along the `PATH` in `env`.
    pub argv: Vec<OsString>,
    /// Replaces the first element of `argv` in the arguments that the child gets. None: the child gets the program as its `argv[0]`.
    pub arg0: Option<OsString>,
    /// The whole environment of the child; nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// The working directory of the child. Relative programs and relative elements of `PATH` are resolved against it.
    pub cwd: PathBuf,
    /// What stdin, stdout and stderr of the child are connected to.
    pub stdio: Stdio,
    /// The file mode creation mask of the child. None: that of the server.
    pub umask: Option<u32>,
    /// What the child and its descendants may use. Some, even without any limit in it:
    /// [`Child::account`](crate::Child::account) says what they have used.
    pub limits: Option<SpawnLimits>,
}

/// What stdin, stdout and stderr of a child are connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdio {
    /// Stdout and stderr are a pipe each.
    Pipes {
        /// What the child reads as its stdin.
        stdin: StdinMode,
    },
    /// All three are one new terminal of this size, which becomes the controlling terminal of the child.
    Pty(TerminalSize),
    /// All three are `/dev/null`, and the child writes a report to a pipe at another descriptor. So the server cannot mistake other output
    /// of the child for the report, and the child can redirect its standard streams and still report.
    Report {
        /// The descriptor number of the pipe in the child. At least 3.
        descriptor: i32,
    },
    /// All three are `/dev/null`, and the child has one end of a pair of Unix stream sockets at another descriptor.
    Socket {
        /// The descriptor number of the socket in the child. At least 3.
        descriptor: i32,
    },
}

impl Stdio {
    /// The number of the descriptor that the child has beside its standard streams.
    pub(crate) fn extra_descriptor(self) -> Option<i32> {
        match self {
            Self::Report { descriptor } | Self::Socket { descriptor } => Some(descriptor),
            Self::Pipes { .. } | Self::Pty(_) => None,
        }
    }
}

/// What a child on pipes reads as its stdin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinMode {
    /// The child reads `/dev/null`, so its input is at its end from the beginning.
    Null,
    /// The child reads from a pipe that [`ChildInput`](crate::ChildInput) writes to.
    Piped,
}

/// Size of a terminal in characters. The default is 24 rows of 80 columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalSize {
    /// Number of lines.
    pub rows: u16,
    /// Number of characters in a line.
    pub cols: u16,
}

impl Default for TerminalSize {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}
