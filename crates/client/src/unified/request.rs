//! The requests of a harness, a program that runs commands for an AI agent, to unified exec.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use protocol::{EnvPolicy, PathUri, ProcessId, ProcessLimits, StartParams, WindowSize};
use serde_json::value::RawValue;

/// The id by which later calls find a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExecSessionId(pub u64);

impl fmt::Display for ExecSessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The program to run, or a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandSpec {
    /// A program and its arguments. Must not be empty.
    Argv(Vec<String>),
    /// A command line. [`UnifiedExecOptions::shell`](super::UnifiedExecOptions::shell) says which shell runs it.
    Shell(String),
}

/// A request to run a command.
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
    /// The program to run, or a command line for the shell.
    pub command: CommandSpec,
    /// The working directory of the command.
    pub cwd: PathUri,
    /// Environment variables in addition to those that `env_policy` selects. They replace variables of the same name.
    pub env: BTreeMap<String, String>,
    /// Which environment variables of the server the command gets. `None` means that it gets only `env`.
    pub env_policy: Option<EnvPolicy>,
    /// Whether the command runs on a terminal instead of pipes. A terminal always accepts input.
    pub tty: bool,
    /// The initial size of the terminal. Needs the extension `processResize`.
    pub size: Option<WindowSize>,
    /// Whether a command without a terminal gets a pipe as stdin. If false, its stdin is empty.
    pub stdin: bool,
    /// The sandbox around the command, as the JSON text of a [`SandboxContext`](protocol::SandboxContext). If it
    /// denies something within the yield time, the [decider](super::UnifiedExecOptions::approval) is asked.
    pub sandbox: Option<Box<RawValue>>,
    /// The server kills the command after this time. Needs the extension `processTimeout`.
    pub timeout: Option<Duration>,
    /// What the command and its descendants may use. Needs the extension `processLimits`: without it, the command is not started.
    pub limits: Option<ProcessLimits>,
    /// How long the call waits for the end of the command before it returns with the output so far.
    pub yield_time: Duration,
    /// Bytes of output that the call returns at most.
    pub max_output_bytes: usize,
}

impl ExecCommandRequest {
    /// A request to run a program with its arguments, on pipes, without stdin, with all environment variables of the
    /// server.
    pub fn argv(argv: impl IntoIterator<Item = impl Into<String>>, cwd: PathUri) -> Self {
        Self::new(CommandSpec::Argv(argv.into_iter().map(Into::into).collect()), cwd)
    }

    /// A request to run a command line in the shell, on pipes, without stdin, with all environment variables of the
    /// server.
    pub fn shell(line: impl Into<String>, cwd: PathUri) -> Self {
        Self::new(CommandSpec::Shell(line.into()), cwd)
    }

    fn new(command: CommandSpec, cwd: PathUri) -> Self {
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
            limits: None,
            yield_time: YIELD_TIME,
            max_output_bytes: MAX_OUTPUT_BYTES,
        }
    }

    /// Whether later calls can write to the command.
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
            limits: self.limits,
            timeout_ms: self.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            ..StartParams::new(process_id, argv, self.cwd.clone())
        }
    }
}

/// Whether a command runs in the sandbox of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confinement {
    /// In the sandbox that the request names, if it names one.
    AsAsked,
    /// Without a sandbox, because the decider has approved that.
    Lifted,
}

/// A request to write to a command that still runs, or only to get its new output.
///
/// ```
/// use std::time::Duration;
/// use client::{ExecSessionId, WriteStdinRequest};
///
/// let session = ExecSessionId(1);
/// let poll = WriteStdinRequest::poll(session);
/// let interrupt = WriteStdinRequest { yield_time: Duration::from_secs(1), ..WriteStdinRequest::new(session, "\u{3}") };
/// assert!(poll.chars.is_empty() && interrupt.settle.is_none());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteStdinRequest {
    /// The session of the command.
    pub session: ExecSessionId,
    /// The text to write. If it is empty, nothing is written.
    pub chars: String,
    /// How long the call waits for the end of the command before it returns with the output since the last call.
    pub yield_time: Duration,
    /// If set, the call returns before `yield_time` is over if the command writes something and is then silent for
    /// this long.
    ///
    /// `None` by default: a command may pause in the middle of its output. An early return makes an AI harness ask
    /// its model once more, which costs far more than the rest of the yield time. A program that waits for the
    /// prompts of an interactive command sets this.
    pub settle: Option<Duration>,
    /// Largest number of bytes of output that the call returns.
    pub max_output_bytes: usize,
}

impl WriteStdinRequest {
    /// A request to write a text, and to get the output of the next quarter of a second.
    pub fn new(session: ExecSessionId, chars: impl Into<String>) -> Self {
        let (yield_time, max_output_bytes) = (WRITE_YIELD_TIME, MAX_OUTPUT_BYTES);
        Self { session, chars: chars.into(), yield_time, settle: None, max_output_bytes }
    }

    /// A request that writes nothing, and waits up to ten seconds for the end of the command.
    pub fn poll(session: ExecSessionId) -> Self {
        Self { yield_time: YIELD_TIME, ..Self::new(session, "") }
    }
}

/// Default wait for the end of a command. Most commands end within this time.
const YIELD_TIME: Duration = Duration::from_secs(10);
/// Default wait for output after a write. Most interactive programs answer faster.
const WRITE_YIELD_TIME: Duration = Duration::from_millis(250);
/// Default limit for returned output, about ten thousand tokens of a model.
const MAX_OUTPUT_BYTES: usize = 40 * 1024;
