//! Why something could not be done with a file.

use std::io;
use std::path::{Path, PathBuf};

use crate::Follow;

/// Why an operation failed: what the operating system said, or a check of ours, and which path it was about.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct FileError {
    source: io::Error,
    path: Option<PathBuf>,
}

/// Travels inside the error, so that a caller can word it with its own limit.
#[derive(Debug, thiserror::Error)]
#[error("file is too large to read: limit is {limit} bytes")]
struct TooLarge {
    limit: u64,
}

impl FileError {
    /// What the operating system said about `path`.
    pub fn os(source: impl Into<io::Error>, path: &Path) -> Self {
        Self { source: source.into(), path: Some(path.to_owned()) }
    }

    /// For `map_err`: what the operating system said about `path`.
    pub fn at<E: Into<io::Error>>(path: &Path) -> impl FnOnce(E) -> Self {
        move |source| Self::os(source, path)
    }

    /// A check of ours refused `path`: it is the caller's fault, and nothing was done.
    pub fn refused(text: impl Into<String>, path: &Path) -> Self {
        Self::check(io::ErrorKind::InvalidInput, text, path)
    }

    /// A check of ours failed for another reason than bad input.
    pub fn check(kind: io::ErrorKind, text: impl Into<String>, path: &Path) -> Self {
        Self { source: io::Error::new(kind, text.into()), path: Some(path.to_owned()) }
    }

    /// There is more in the file than the caller wants to have.
    pub fn too_large(limit: u64, path: &Path) -> Self {
        Self { source: io::Error::new(io::ErrorKind::FileTooLarge, TooLarge { limit }), path: Some(path.to_owned()) }
    }

    /// The limit that a file was over. The operating system has an error of the same kind, for which this is `None`.
    pub fn size_limit(&self) -> Option<u64> {
        self.source.get_ref()?.downcast_ref::<TooLarge>().map(|too_large| too_large.limit)
    }

    /// Something that is neither a file nor a directory stands at `path`, or a directory where a file is wanted.
    pub(crate) fn not_a_file(path: &Path, follow: Follow) -> Self {
        match follow {
            Follow::Yes => Self::refused(format!("path `{}` is not a file", path.display()), path),
            Follow::No => Self::refused("path is not a regular file", path),
        }
    }

    /// A symbolic link stands where the caller wants none to be followed.
    pub(crate) fn symbolic_link(path: &Path) -> Self {
        Self::refused("path contains a symbolic link", path)
    }

    /// The caller asked the operation to end.
    pub fn cancelled() -> Self {
        Self { source: io::Error::new(io::ErrorKind::Interrupted, "cancelled"), path: None }
    }

    /// The error of the operating system, or our check in the same clothes.
    pub fn io(&self) -> &io::Error {
        &self.source
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    /// The path it is about.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}
