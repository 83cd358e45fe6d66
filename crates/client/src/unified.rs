//! Unified exec: running commands for a harness, a program that runs commands for an AI agent. A call starts a
//! command and returns when the command has ended, or after a time limit with the output so far. Later calls write to
//! the command and get further output. A subscription reports commands that end in the background. Start with
//! [`UnifiedExec`]. This module gets the output as events of a process, and knows nothing of connections.

mod approval;
mod collect;
mod error;
mod exec;
mod head_tail;
mod open;
mod options;
mod record;
mod request;
mod response;

pub use approval::{Approval, ApprovalDecider, ApprovalRequest, Deciding};
pub use collect::{CommandCompletion, Completions};
pub use error::UnifiedExecError;
pub use exec::UnifiedExec;
pub use head_tail::{Abridged, HeadTail};
pub use options::UnifiedExecOptions;
pub use request::{CommandSpec, ExecCommandRequest, ExecSessionId, WriteStdinRequest};
pub use response::{ExecCommandResponse, StdinOutcome};
