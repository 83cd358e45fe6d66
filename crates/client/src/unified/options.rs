//! The options of unified exec, which runs commands for an AI agent. They apply to all commands.

use std::fmt;
use std::sync::Arc;

use super::approval::ApprovalDecider;

/// Options that say how commands are run, and how much of their output is kept.
///
/// ```
/// use client::UnifiedExecOptions;
///
/// let options = UnifiedExecOptions { shell: Some(vec!["/bin/bash".into(), "-lc".into()]), ..Default::default() };
/// assert_eq!(options.max_sessions, 64);
/// ```
#[derive(Clone)]
pub struct UnifiedExecOptions {
    /// The most open commands. A command is open while it runs, and after its end until a call has returned the end.
    /// At the limit, a new command replaces the ended command that was not used for the longest time. If all open
    /// commands run, the new command is refused, because killing a running command would be a surprise.
    pub max_sessions: usize,
    /// The most bytes of output of one command that are kept between two calls: half from the beginning, half from
    /// the end.
    pub retain_bytes: usize,
    /// The most bytes from the end of the output that a [`CommandCompletion`](super::CommandCompletion) contains.
    pub completion_tail_bytes: usize,
    /// Program and arguments that a [shell command](super::CommandSpec::Shell) is appended to. `None` means the shell
    /// that the server names, with `-c`.
    pub shell: Option<Vec<String>>,
    /// Decides whether a command may run again without its sandbox. `None` means that no command may.
    pub approval: Option<Arc<dyn ApprovalDecider>>,
}

impl Default for UnifiedExecOptions {
    fn default() -> Self {
        Self { max_sessions: 64, retain_bytes: 1024 * 1024, completion_tail_bytes: 4096, shell: None, approval: None }
    }
}

impl fmt::Debug for UnifiedExecOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnifiedExecOptions")
            .field("max_sessions", &self.max_sessions)
            .field("retain_bytes", &self.retain_bytes)
            .field("completion_tail_bytes", &self.completion_tail_bytes)
            .field("shell", &self.shell)
            .field("approval", &self.approval.is_some())
            .finish()
    }
}
