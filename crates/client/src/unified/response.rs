//! What a harness is told.

use std::time::Duration;

use super::request::ExecSessionId;

/// What became of a command so far.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExecCommandResponse {
    /// What it wrote since the last call, stdout and stderr as they came: the beginning and the end, with a line between them that says
    /// how many bytes are left out, if it is more than was asked for. What is not UTF-8 is replaced.
    pub output: String,
    /// How many bytes it wrote since the last call.
    pub original_bytes: u64,
    /// How many of them are not in `output`.
    pub omitted_bytes: u64,
    /// Once it has exited; 128+N after signal N.
    pub exit_code: Option<i32>,
    /// By which to go on with it; none once there is nothing to go on with. With an exit code, something it has started still holds its
    /// streams.
    pub session: Option<ExecSessionId>,
    /// How long this call took, questions to the [decider](super::ApprovalDecider) included.
    pub wall_time: Duration,
    /// Whether the sandbox refused it something.
    pub sandbox_denied: bool,
    /// Whether this is the result of a second run, without the sandbox, after approval.
    pub ran_without_sandbox: bool,
    /// Whether the server ended it because its time was over.
    pub timed_out: bool,
    /// What became of what was written to it.
    pub stdin: StdinOutcome,
    /// Why it cannot be followed any further, if it has not ended by itself.
    pub failure: Option<String>,
}

/// What became of a write to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinOutcome {
    /// Nothing was written.
    Untouched,
    /// The command has it, or will get it when it reads.
    Taken,
    /// The yield time was over before all of it was taken: the command does not read. Whether it will get it is not known.
    Pending,
    /// The command takes nothing any more: it counts as exited, and what is left of it is ended.
    Closed,
}
