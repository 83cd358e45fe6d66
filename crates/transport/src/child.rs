//! A child process as the peer: one message per line over its stdin and stdout. Start reading at [`spawn_child`].
//!
//! The child leads a process group of its own, and the group is terminated when the caller drops the [`ChildGuard`].
//! The group is signalled only while the child has not been reaped: until then the kernel cannot give the id of the
//! group to another group.
//!
//! The parts: `guard` terminates and reaps the child, `leader` holds the process, `stdin` is a pipe that two owners
//! can close, and `stderr` reads the lines that the child writes to its stderr.

mod guard;
mod leader;
mod stderr;
mod stdin;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tokio::net::unix::pipe;

use crate::message::MessageLimits;
use crate::peer::PeerLabel;
use crate::stream::{MessageStream, lines};
pub use guard::{ChildExit, ChildGuard};
use leader::GroupLeader;
use stderr::StderrTail;
use stdin::ChildStdin;

/// Requested capacity of the stdin and stdout pipes. It holds several output messages; with less, the two processes would wake each
/// other several times for each message.
const PIPE_BYTES: usize = 1 << 20;

/// The program to start. It inherits our environment, without the variables in `env_remove` and with those in `env`.
#[derive(Debug, Default)]
pub struct ChildCommand {
    /// A path, or a name that is looked up in our `PATH`.
    pub program: OsString,
    /// The arguments, without the name of the program.
    pub args: Vec<OsString>,
    /// Variables to set. They win over inherited variables and over `env_remove`.
    pub env: Vec<(OsString, OsString)>,
    /// Names of variables that the child does not inherit.
    pub env_remove: Vec<OsString>,
    /// Working directory of the child; ours if `None`.
    pub cwd: Option<PathBuf>,
}

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ChildSpawnError {
    /// The working directory does not exist or is not a directory.
    #[error("cannot start `{program}`: its working directory {} is not a directory", cwd.display())]
    NoDirectory {
        /// The program as the caller named it.
        program: String,
        /// The working directory as the caller named it.
        cwd: PathBuf,
    },
    /// The operating system refused to start the program.
    #[error("cannot start `{program}`: {source}")]
    Io {
        /// The program as the caller named it.
        program: String,
        /// The error of the system call.
        source: io::Error,
    },
}

/// Starts a child and returns a message stream over its stdin and stdout. Must be called inside a tokio runtime.
///
/// The child and its process group are terminated when the guard is dropped. Dropping or closing the stream does not terminate
/// them, but dropping the writer, or shutting it down, closes the stdin of the child.
///
/// `on_stderr_line` is called in a task for every line of the child's stderr that is not blank, without the line end. It must
/// not block. A line of more than 4 KiB is cut to its first KiB. The last lines are kept for [`ChildExit`].
pub fn spawn_child(
    command: &ChildCommand,
    limits: MessageLimits,
    on_stderr_line: impl FnMut(&str) + Send + 'static,
) -> Result<(MessageStream, ChildGuard), ChildSpawnError> {
    let program = command.program.to_string_lossy().into_owned();
    // The system reports a missing working directory with the same error as a missing program.
    if let Some(cwd) = command.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
        return Err(ChildSpawnError::NoDirectory { program, cwd: cwd.clone() });
    }
    start(command, &program, limits, on_stderr_line).map_err(|source| ChildSpawnError::Io { program, source })
}

fn start(
    command: &ChildCommand,
    program: &str,
    limits: MessageLimits,
    on_stderr_line: impl FnMut(&str) + Send + 'static,
) -> io::Result<(MessageStream, ChildGuard)> {
    let mut spawned = to_std_command(command).spawn()?;
    let pipes = (spawned.stdin.take(), spawned.stdout.take(), spawned.stderr.take());
    // From here on the child is killed if this function returns an error: dropping the leader kills it.
    let leader = GroupLeader::new(spawned);
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("the pipes to it are missing"));
    };
    for pipe in [stdin.as_fd(), stdout.as_fd()] {
        // If the system refuses the size, the pipe keeps its own, which is only slower.
        let _ = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
    }
    let stdin = ChildStdin::new(pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?);
    let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?;
    let stderr_tail = StderrTail::default();
    let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?;
    let stderr_task = stderr::read_lines(stderr, on_stderr_line, stderr_tail.clone());
    let (peer, closer) = (PeerLabel::new(format_args!("child {}", leader.pid())), stdin.closer());
    let guard = ChildGuard::new(program.to_owned(), leader, closer, stderr_task, stderr_tail)?;
    Ok((lines(stdout, stdin, peer, limits), guard))
}

fn to_std_command(command: &ChildCommand) -> Command {
    let mut prepared = Command::new(&command.program);
    prepared.args(&command.args).process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for name in &command.env_remove {
        prepared.env_remove(name);
    }
    prepared.envs(command.env.iter().map(|(name, value)| (name, value)));
    if let Some(cwd) = &command.cwd {
        prepared.current_dir(cwd);
    }
    prepared
}
