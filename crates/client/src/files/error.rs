//! The error of operations on files. The same failure gives the same error on this machine and from a server.

use std::io::{self, ErrorKind};

use files::FileError;
use protocol::{ErrorCode, ErrorData, PathUri};

use crate::error::ExecServerError;

/// The reason why an operation on files failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileSystemError {
    /// The kind of failure. [`BrokenPipe`](ErrorKind::BrokenPipe) means that the connection to the server is lost, or
    /// that the server no longer has the file open.
    pub kind: ErrorKind,
    /// The error number of the operating system. `None` if the operating system did not cause the failure, or if the
    /// server does not say.
    pub errno: Option<i32>,
    /// The path that the operation failed for. Boxed, because otherwise a `Result` with this error would be large.
    path: Option<Box<PathUri>>,
    /// The error text for people, in one sentence.
    pub message: String,
}

impl FileSystemError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, errno: None, path: None, message: message.into() }
    }

    /// The same error, with the path that the operation failed for.
    pub(crate) fn about(self, path: &PathUri) -> Self {
        Self { path: Some(Box::new(path.clone())), ..self }
    }

    /// The path that the operation failed for, mapped to this machine. `None` if the path is not known.
    pub fn path(&self) -> Option<&PathUri> {
        self.path.as_deref()
    }

    pub(super) fn map_path(&mut self, map: impl FnOnce(&PathUri) -> PathUri) {
        if let Some(path) = &mut self.path {
            **path = map(path);
        }
    }

    pub(super) fn not_text(path: &PathUri) -> Self {
        Self::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8").about(path)
    }

    /// The error for a path or a sandbox that the caller must change.
    pub(super) fn invalid_input(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidInput, message)
    }

    /// The error text without "(os error N)" at its end.
    pub fn words(&self) -> &str {
        let number = self.errno.map(|errno| format!(" (os error {errno})")).unwrap_or_default();
        self.message.strip_suffix(&number).unwrap_or(&self.message)
    }

    /// The error that these members of a JSON-RPC error stand for.
    fn from_wire_error(code: i64, message: String, data: Option<ErrorData>) -> Self {
        let errno = data.as_ref().and_then(|data| data.errno);
        let by_code = || match code {
            code if code == ErrorCode::NotFound.number() => ErrorKind::NotFound,
            code if code == ErrorCode::InvalidRequest.number() => ErrorKind::InvalidInput,
            _ => ErrorKind::Other,
        };
        let kind = errno
            .map(|errno| io::Error::from_raw_os_error(errno).kind())
            .or_else(|| data.as_ref().and_then(|data| kind_of(&data.kind)))
            .unwrap_or_else(by_code);
        let path = data.and_then(|data| data.path).and_then(|path| path.parse().ok()).map(Box::new);
        Self { kind, errno, path, message }
    }
}

/// The kind for a value of `data.kind` in a wire error, which says more than the code does.
fn kind_of(word: &str) -> Option<ErrorKind> {
    Some(match word {
        "notFound" => ErrorKind::NotFound,
        "permissionDenied" => ErrorKind::PermissionDenied,
        "alreadyExists" => ErrorKind::AlreadyExists,
        "notADirectory" => ErrorKind::NotADirectory,
        "isADirectory" => ErrorKind::IsADirectory,
        "readOnlyFilesystem" => ErrorKind::ReadOnlyFilesystem,
        "storageFull" => ErrorKind::StorageFull,
        "invalidInput" => ErrorKind::InvalidInput,
        "outOfMemory" => ErrorKind::OutOfMemory,
        "timedOut" => ErrorKind::TimedOut,
        "resourceTemporarilyUnavailable" => ErrorKind::WouldBlock,
        _ => return None,
    })
}

impl From<FileError> for FileSystemError {
    /// Converts the error into the wire error that a server would send, and that into this type. So local and remote files give the same
    /// error.
    fn from(error: FileError) -> Self {
        let code = match error.kind() {
            ErrorKind::NotFound => ErrorCode::NotFound,
            ErrorKind::InvalidInput | ErrorKind::PermissionDenied => ErrorCode::InvalidRequest,
            _ if error.size_limit().is_some() => ErrorCode::InvalidRequest,
            _ => ErrorCode::Internal,
        };
        let data = ErrorData::from_io(error.io(), error.path());
        Self::from_wire_error(code.number(), error.to_string(), Some(data))
    }
}

impl From<ExecServerError> for FileSystemError {
    fn from(error: ExecServerError) -> Self {
        let message = error.to_string();
        match error {
            ExecServerError::Server { code, message, data } => {
                Self::from_wire_error(code, message, data.map(|data| *data))
            }
            ExecServerError::Json(_) | ExecServerError::Protocol(_) => Self::new(ErrorKind::InvalidData, message),
            ExecServerError::TooManyRequests(_) => Self::new(ErrorKind::WouldBlock, message),
            ExecServerError::HttpRequest(_) | ExecServerError::ProcessFailed(_) => {
                Self::new(ErrorKind::Other, message)
            }
            _ => Self::new(ErrorKind::BrokenPipe, message),
        }
    }
}

impl From<io::Error> for FileSystemError {
    fn from(error: io::Error) -> Self {
        Self { kind: error.kind(), errno: error.raw_os_error(), path: None, message: error.to_string() }
    }
}

impl From<FileSystemError> for io::Error {
    fn from(error: FileSystemError) -> Self {
        Self::new(error.kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_for(code: i64, data: Option<(Option<i32>, &str)>) -> ErrorKind {
        let data = data.map(|(errno, kind)| ErrorData { errno, kind: kind.to_owned(), path: None });
        FileSystemError::from_wire_error(code, "it failed".to_owned(), data).kind
    }

    #[test]
    fn without_data_the_code_decides_the_kind() {
        assert_eq!(kind_for(-32004, None), ErrorKind::NotFound);
        assert_eq!(kind_for(-32600, None), ErrorKind::InvalidInput);
        assert_eq!(kind_for(-32603, None), ErrorKind::Other);
    }

    #[test]
    fn the_error_number_decides_the_kind_then_the_data_and_then_the_code() {
        assert_eq!(kind_for(-32600, Some((Some(13), "permissionDenied"))), ErrorKind::PermissionDenied);
        assert_eq!(kind_for(-32603, Some((Some(39), "other"))), ErrorKind::DirectoryNotEmpty);
        assert_eq!(kind_for(-32603, Some((None, "alreadyExists"))), ErrorKind::AlreadyExists);
        assert_eq!(kind_for(-32600, Some((None, "other"))), ErrorKind::InvalidInput);
    }

    #[test]
    fn an_error_of_the_connection_is_a_broken_pipe() {
        for error in [ExecServerError::Closed, ExecServerError::Recovering, ExecServerError::Disconnected("x".into())]
        {
            assert_eq!(FileSystemError::from(error).kind, ErrorKind::BrokenPipe);
        }
    }

    #[test]
    fn words_leave_out_the_error_number() {
        let error = FileSystemError::from(FileError::os(io::Error::from_raw_os_error(2), std::path::Path::new("/x")));
        assert_eq!((error.words(), error.kind), ("No such file or directory", ErrorKind::NotFound));
    }
}
