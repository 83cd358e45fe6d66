//! Running commands for the shell tool of an AI harness. A call starts a command and returns, after a while, with the output so far. Later
//! calls write to the command and get further output. A subscription reports commands that end in the background. Start with
//! [`UnifiedExec`]. This module follows pushed events and knows nothing of connections.

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
