//! A child process as the peer: messages are lines of its stdin and stdout, and its process group ends with the guard.
//!
//! The child is the leader of a group of its own, and the group is only signalled while the leader has not been reaped:
//! until then its number cannot belong to anybody else.

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
use leader::Leader;
use stderr::LastWords;
use stdin::ChildStdin;

/// Several messages of output; with less, the two ends would wake each other up within each of them.
const PIPE_BYTES: usize = 1 << 20;

/// What to start. It inherits our environment without `env_remove`, and with `env`.
#[derive(Debug, Default)]
pub struct ChildCommand {
    /// A path, or a name that is looked up in our `PATH`.
    pub program: OsString,
    /// What follows the program's name.
    pub args: Vec<OsString>,
    /// Variables that the child gets; they win over everything else.
    pub env: Vec<(OsString, OsString)>,
    /// Variables of ours that the child must not inherit.
    pub env_remove: Vec<OsString>,
    /// Where it runs, if not where we do.
    pub cwd: Option<PathBuf>,
}

/// Why there is no child.
#[derive(Debug, thiserror::Error)]
pub enum ChildSpawnError {
    /// The working directory is not one.
    #[error("cannot start `{program}` in {}: it is not a directory", cwd.display())]
    NoDirectory {
        /// The program.
        program: String,
        /// Where it was to run.
        cwd: PathBuf,
    },
    /// The system refused.
    #[error("cannot start `{program}`: {source}")]
    Io {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
}

/// Starts a child and speaks lines with it. Must be called inside a tokio runtime.
///
/// The child and its process group end with the guard, whatever becomes of the stream; the end of the stream does not end
/// the child. Dropping the writer, or shutting it down, closes its stdin.
///
/// `on_stderr_line` is called in a task for every line of the child's stderr that is not blank, without its line end. It must
/// not block. A line of more than 4 KiB is cut to its first KiB. The last lines are kept for [`ChildExit`].
pub fn spawn_child(
    command: &ChildCommand,
    limits: MessageLimits,
    on_stderr_line: impl FnMut(&str) + Send + 'static,
) -> Result<(MessageStream, ChildGuard), ChildSpawnError> {
    let program = command.program.to_string_lossy().into_owned();
    // The system reports a missing directory in the same words as a missing program.
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
    let mut spawned = prepare(command).spawn()?;
    let pipes = (spawned.stdin.take(), spawned.stdout.take(), spawned.stderr.take());
    // From here on every way out of this function ends the child.
    let leader = Leader::new(spawned);
    let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
        return Err(io::Error::other("its pipes are missing"));
    };
    for pipe in [stdin.as_fd(), stdout.as_fd()] {
        let _best_effort = rustix::pipe::fcntl_setpipe_size(pipe, PIPE_BYTES);
    }
    let stdin = ChildStdin::new(pipe::Sender::from_owned_fd(OwnedFd::from(stdin))?);
    let stdout = pipe::Receiver::from_owned_fd(OwnedFd::from(stdout))?;
    let last_words = LastWords::default();
    let stderr = pipe::Receiver::from_owned_fd(OwnedFd::from(stderr))?;
    let listener = stderr::listen(stderr, on_stderr_line, last_words.clone());
    let (peer, closer) = (PeerLabel::Child(leader.pid()), stdin.closer());
    let guard = ChildGuard::new(program.to_owned(), leader, closer, listener, last_words)?;
    Ok((lines(stdout, stdin, peer, limits), guard))
}

fn prepare(command: &ChildCommand) -> Command {
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
