//! The errors of reading configuration files. Most texts are part of the published protocol.

use std::path::Path;

use files::FileError;

/// Why configuration cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    #[error("cwd has more than {limit} bytes, so no file can be reached there")]
    CwdTooLong { limit: usize },
    #[error("failed to find Codex home: {problem}")]
    Home { problem: String, cause: Option<FileError> },
    #[error("failed to load executor-local config: {problem}")]
    Load { problem: String, cause: Option<FileError> },
}

impl ConfigError {
    pub(super) fn no_home() -> Self {
        let problem = "the home directory of the user is unknown; start the server with HOME or CODEX_HOME set";
        Self::Home { problem: problem.to_owned(), cause: None }
    }

    /// `CODEX_HOME` is not an existing directory; `why` continues the sentence.
    pub(super) fn home_is_no_directory(path: &Path, why: &str) -> Self {
        Self::Home { problem: format!("CODEX_HOME points to {path:?}, {why}"), cause: None }
    }

    /// An operation on the directory `CODEX_HOME` has failed.
    pub(super) fn home_access_failed(path: &Path, cause: FileError) -> Self {
        let problem = format!("CODEX_HOME points to {path:?}, which cannot be used: {cause}");
        Self::Home { problem, cause: Some(cause) }
    }

    /// The contents of a file cannot be used; `problem` says why.
    pub(super) fn load(problem: impl Into<String>) -> Self {
        Self::Load { problem: problem.into(), cause: None }
    }

    /// The error of the file operation that has failed, if there is one.
    pub(crate) fn cause(&self) -> Option<&FileError> {
        match self {
            Self::CwdTooLong { .. } => None,
            Self::Home { cause, .. } | Self::Load { cause, .. } => cause.as_ref(),
        }
    }
}
