//! The error that the operations of this crate return. Start with [`FileError`].

use std::io;
use std::path::{Path, PathBuf};

use crate::Follow;

/// The cause of a failure and the path that it concerns. The cause is an error of the operating system, a check of
/// this crate that failed, or a cancellation, which has no path. Displays as the text of the cause; the path is not
/// added.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct FileError {
    source: io::Error,
    path: Option<PathBuf>,
    is_sandbox_denial: bool,
}

/// The inner error of [`FileError::too_large`], from which [`FileError::size_limit`] reads the limit.
#[derive(Debug, thiserror::Error)]
#[error("file is too large to read: limit is {limit} bytes")]
struct TooLarge {
    limit: u64,
}

impl FileError {
    /// An error of the operating system about `path`.
    pub fn os(source: impl Into<io::Error>, path: &Path) -> Self {
        Self { source: source.into(), path: Some(path.to_owned()), is_sandbox_denial: false }
    }

    /// [`os`](Self::os) as a function for `map_err`.
    pub(crate) fn at<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Self {
        move |source| Self::os(source, path)
    }

    /// A check refused `path`, or the operation on it, as invalid input. [`kind`](Self::kind) returns
    /// `ErrorKind::InvalidInput`.
    pub fn refused(text: impl Into<String>, path: &Path) -> Self {
        Self::failed_check(io::ErrorKind::InvalidInput, text, path)
    }

    /// A check failed for a reason other than invalid input. [`kind`](Self::kind) returns `kind`.
    pub fn failed_check(kind: io::ErrorKind, text: impl Into<String>, path: &Path) -> Self {
        Self::os(io::Error::new(kind, text.into()), path)
    }

    /// The file at `path` has more than `limit` bytes, the most that the caller wants to read.
    pub(crate) fn too_large(limit: u64, path: &Path) -> Self {
        Self::os(io::Error::new(io::ErrorKind::FileTooLarge, TooLarge { limit }), path)
    }

    /// The limit in bytes, if a file was larger than the caller allows. `None` for all other errors, also for
    /// `EFBIG`, which has the same `ErrorKind`.
    pub fn size_limit(&self) -> Option<u64> {
        self.source.get_ref()?.downcast_ref::<TooLarge>().map(|too_large| too_large.limit)
    }

    /// `path` is not a regular file although the operation needs one. Clients see the two texts, so the texts must
    /// not change.
    pub(crate) fn not_a_file(path: &Path, follow: Follow) -> Self {
        match follow {
            Follow::Yes => Self::refused(format!("path `{}` is not a file", path.display()), path),
            Follow::No => Self::refused("path is not a regular file", path),
        }
    }

    /// `path` itself is a symbolic link, and the caller asked for [`Follow::No`].
    pub(crate) fn symbolic_link(path: &Path) -> Self {
        Self::refused("path contains a symbolic link", path)
    }

    /// The caller cancelled the operation. The error has the kind `ErrorKind::Interrupted` and no path.
    pub(crate) fn cancelled() -> Self {
        let source = io::Error::new(io::ErrorKind::Interrupted, "cancelled");
        Self { source, path: None, is_sandbox_denial: false }
    }

    /// The same error, with whether a sandbox has caused it.
    pub(crate) fn with_sandbox_denial(self, is_sandbox_denial: bool) -> Self {
        Self { is_sandbox_denial, ..self }
    }

    /// Whether the operation ran in a sandbox, and would not have failed in this way without it: the sandbox makes the
    /// file read-only, hides it, has mounted something at this path or between two paths, or lacks a privilege of this
    /// process. A file that does not exist is never counted.
    pub fn is_sandbox_denial(&self) -> bool {
        self.is_sandbox_denial
    }

    /// The cause. After a failed check of this crate or a cancellation, it is an `io::Error` without an errno.
    pub fn io(&self) -> &io::Error {
        &self.source
    }

    /// The kind of the cause.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The path that the error concerns. `None` only after a cancellation.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}
