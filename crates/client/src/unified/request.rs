//! What a harness asks for.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use protocol::{EnvPolicy, PathUri, ProcessId, StartParams, WindowSize};
use serde_json::value::RawValue;

/// Names a command that still runs, to go on with it later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecSessionId(pub u64);

impl fmt::Display for ExecSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A program and its arguments.
    Argv(Vec<String>),
    /// A line for the shell that [`UnifiedExecOptions::shell`](super::UnifiedExecOptions::shell) names, or else the environment's.
    Shell(String),
}

/// A command to run.
///
/// ```
/// use std::time::Duration;
/// use client::ExecCommandRequest;
///
/// let mut request = ExecCommandRequest::shell("cargo test", "file:///repository".parse().unwrap());
/// request.yield_time = Duration::from_secs(30);
/// request.max_output_bytes = 16 * 1024;
/// ```
#[derive(Clone, Debug)]
pub struct ExecCommandRequest {
    /// What to run.
    pub command: Command,
    /// Where.
    pub cwd: PathUri,
    /// Variables of its environment, laid over what `env_policy` leaves.
    pub env: BTreeMap<String, String>,
    /// How its environment is derived from the server's; none means `env` alone.
    pub env_policy: Option<EnvPolicy>,
    /// A terminal instead of pipes. It always takes input.
    pub tty: bool,
    /// The first size of the terminal. Extension `processResize`.
    pub size: Option<WindowSize>,
    /// Without a terminal: a pipe for its stdin instead of nothing to read.
    pub stdin: bool,
    /// The sandbox to confine it with. Where that refuses something, the [decider](super::UnifiedExecOptions::approval) is asked.
    pub sandbox: Option<Box<RawValue>>,
    /// The server ends it after this time. Extension `processTimeout`.
    pub timeout: Option<Duration>,
    /// How long to wait for its end before returning with what it has written so far.
    pub yield_time: Duration,
    /// How much of what it has written is returned.
    pub max_output_bytes: usize,
}

impl ExecCommandRequest {
    /// A program with its arguments, on pipes without stdin, in the server's environment.
    pub fn argv(argv: impl IntoIterator<Item = impl Into<String>>, cwd: PathUri) -> Self {
        Self::new(Command::Argv(argv.into_iter().map(Into::into).collect()), cwd)
    }

    /// A line for the shell, on pipes without stdin, in the server's environment.
    pub fn shell(line: impl Into<String>, cwd: PathUri) -> Self {
        Self::new(Command::Shell(line.into()), cwd)
    }

    fn new(command: Command, cwd: PathUri) -> Self {
        Self {
            command,
            cwd,
            env: BTreeMap::new(),
            env_policy: Some(EnvPolicy::inherit_all()),
            tty: false,
            size: None,
            stdin: false,
            sandbox: None,
            timeout: None,
            yield_time: YIELD_TIME,
            max_output_bytes: MAX_OUTPUT_BYTES,
        }
    }

    /// Whether something can be written to it.
    pub(super) fn takes_input(&self) -> bool {
        self.tty || self.stdin
    }

    pub(super) fn start_params(
        &self,
        process_id: ProcessId,
        argv: Vec<String>,
        confinement: Confinement,
    ) -> StartParams {
        StartParams {
            env: self.env.clone(),
            env_policy: self.env_policy.clone(),
            tty: self.tty,
            size: self.size,
            pipe_stdin: self.stdin && !self.tty,
            sandbox: self.sandbox.clone().filter(|_| confinement == Confinement::AsAsked),
            timeout_ms: self.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            ..StartParams::new(process_id, argv, self.cwd.clone())
        }
    }
}

/// Whether a command runs in the sandbox it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confinement {
    AsAsked,
    Lifted,
}

/// Something for a command that still runs, or only a look at it.
///
/// ```
/// use std::time::Duration;
/// use client::{ExecSessionId, WriteStdinRequest};
///
/// let session = ExecSessionId(1);
/// let look = WriteStdinRequest::poll(session);
/// let interrupt = WriteStdinRequest { yield_time: Duration::from_secs(1), ..WriteStdinRequest::new(session, "\u{3}") };
/// assert!(look.chars.is_empty() && interrupt.settle.is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteStdinRequest {
    /// Which.
    pub session: ExecSessionId,
    /// What to write; empty only looks.
    pub chars: String,
    /// How long to wait for its end before returning with what it has written since the last call.
    pub yield_time: Duration,
    /// Return earlier, once it has written something and then nothing for so long.
    ///
    /// Not set unless asked for: a program that pauses in the middle of its answer would be cut there, and another turn of a model costs
    /// far more than the rest of the yield time. A program that drives a prompt sets it.
    pub settle: Option<Duration>,
    /// How much of what it has written is returned.
    pub max_output_bytes: usize,
}

impl WriteStdinRequest {
    /// Writes, and returns what comes of it within a quarter of a second.
    pub fn new(session: ExecSessionId, chars: impl Into<String>) -> Self {
        let (yield_time, max_output_bytes) = (WRITE_YIELD_TIME, MAX_OUTPUT_BYTES);
        Self { session, chars: chars.into(), yield_time, settle: None, max_output_bytes }
    }

    /// Writes nothing, and waits for the end of the command, or ten seconds.
    pub fn poll(session: ExecSessionId) -> Self {
        Self { yield_time: YIELD_TIME, ..Self::new(session, "") }
    }
}

/// Most commands are done by then, and nobody has lost patience.
const YIELD_TIME: Duration = Duration::from_secs(10);
/// A prompt answers faster than this.
const WRITE_YIELD_TIME: Duration = Duration::from_millis(250);
/// About ten thousand tokens.
const MAX_OUTPUT_BYTES: usize = 40 * 1024;
