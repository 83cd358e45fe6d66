//! What the shell tool of an AI harness is made of: run a command, return after a while with the output so far, go on talking to it, and
//! be told when it has ended. It follows processes by what is pushed and never polls; connections and recovery are below it.

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
pub use request::{Command, ExecCommandRequest, ExecSessionId, WriteStdinRequest};
pub use response::{ExecCommandResponse, StdinOutcome};
