//! What a harness may choose once for all its commands.

use std::fmt;
use std::sync::Arc;

use super::approval::ApprovalDecider;

/// How commands are run.
///
/// ```
/// use client::UnifiedExecOptions;
///
/// let options = UnifiedExecOptions { shell: Some(vec!["/bin/bash".into(), "-lc".into()]), ..Default::default() };
/// assert_eq!(options.max_sessions, 64);
/// ```
#[derive(Clone)]
pub struct UnifiedExecOptions {
    /// Commands at once, those included that have ended and whose output nobody has asked for. When all places are taken, the one of
    /// those that was longest not asked about is forgotten; where all still run, a new command is refused: ending somebody's work to
    /// make room would be a surprise.
    pub max_sessions: usize,
    /// Output of one command that is kept between two calls, its beginning and its end.
    pub retain_bytes: usize,
    /// The end of a command's output that is told with its completion.
    pub completion_tail_bytes: usize,
    /// What a [shell command](super::Command::Shell) is an argument to. None: the environment's shell with `-c`.
    pub shell: Option<Vec<String>>,
    /// Who decides whether a command that the sandbox has stopped may run without it. None: nothing does.
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
