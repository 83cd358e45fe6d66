//! The responses of unified exec to its caller, for example a harness: a program that runs commands for an AI agent.

use std::time::Duration;

use protocol::{ExitResources, SandboxDenial};

use super::request::ExecSessionId;

/// The output of a command since the last call, and its state.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecCommandResponse {
    /// The output since the last call, of stdout and stderr in the order in which it came. If the output is longer
    /// than the request or [`retain_bytes`](super::UnifiedExecOptions::retain_bytes) allows, this is its beginning
    /// and its end, with a line between them that says how many bytes are left out. Bytes that are not UTF-8 are
    /// replaced.
    pub output: String,
    /// Bytes of output since the last call, before anything was left out.
    pub original_bytes: u64,
    /// Bytes of output since the last call that are not in `output`.
    pub omitted_bytes: u64,
    /// The exit code, or 128+N if signal N ended the command. `None` while the command runs, and if its exit was not
    /// reported.
    pub exit_code: Option<i32>,
    /// The session by which later calls find the command. `None` when no output follows. If there is a session and an
    /// exit code, the output streams are still open, usually in a descendant of the command.
    pub session: Option<ExecSessionId>,
    /// Duration of this call, including a second run and the time that the [decider](super::ApprovalDecider) took.
    pub wall_time: Duration,
    /// Whether the sandbox denied something to the command.
    pub sandbox_denied: bool,
    /// What the sandbox refused, as far as the server knows.
    pub sandbox_denials: Vec<SandboxDenial>,
    /// Whether this is the result of a second run, without the sandbox, after approval.
    pub ran_without_sandbox: bool,
    /// Whether the server killed the command because its timeout was over.
    pub timed_out: bool,
    /// What the command has used and which limit it has reached, if its request had `limits` and it has exited.
    pub resources: ExitResources,
    /// What happened to the text of the request.
    pub stdin: StdinOutcome,
    /// The reason why the client can no longer follow the command. `None` if there was no failure.
    pub failure: Option<String>,
}

/// What happened to a write to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinOutcome {
    /// The request had no text to write.
    Untouched,
    /// The server has accepted the text. The command gets it when it reads.
    Taken,
    /// The [yield time](super::WriteStdinRequest::yield_time) was over before the server had accepted the whole text.
    /// This happens if the command does not read. The rest of the text may be lost.
    Pending,
    /// The stdin of the command is closed. The command counts as ended, and is killed if it still runs.
    Closed,
}
