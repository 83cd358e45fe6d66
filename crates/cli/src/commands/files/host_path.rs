//! A path on one of the machines that a command works on. [`HostPath`] knows how the path was typed, and lists
//! directories.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use client::{DirectoryEntry, FileSystemError, PathUri};

use super::super::typed_path::TypedPath;
use super::file_hosts::FileHost;
use crate::terminal_text::readable;

/// A path on a machine.
#[derive(Clone)]
pub(crate) struct HostPath {
    pub(crate) host: Arc<FileHost>,
    /// The absolute path.
    pub(crate) path: PathBuf,
    /// The path as it was typed, with the names that were joined to it. Messages show it, and its end says what the
    /// user means: see [`means_contents`](Self::means_contents).
    pub(crate) typed: PathBuf,
}

impl HostPath {
    /// The path as requests name it.
    pub(crate) fn uri(&self) -> Result<PathUri, FileSystemError> {
        PathUri::from_native(&self.path)
            .ok_or_else(|| std::io::Error::new(std::io::ErrorKind::InvalidInput, "the path is not absolute").into())
    }

    /// The path of a file in this directory.
    pub(crate) fn join(&self, name: &OsStr) -> Self {
        Self { host: Arc::clone(&self.host), path: self.path.join(name), typed: self.typed.join(name) }
    }

    /// The same file by a path without symbolic links. The file must exist.
    pub(crate) async fn without_links(&self) -> Result<Self, FileSystemError> {
        let path = self.host.files.canonicalize(&self.uri()?, None).await?.to_native();
        let path = path.map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
        Ok(Self { path, ..self.clone() })
    }

    /// Whether the path means the contents of a directory, not the directory itself. Such a path ends with no name:
    /// it was typed with `.` or `..` at its end, or it is `/`.
    pub(crate) fn means_contents(&self) -> bool {
        let (TypedPath::Plain(path) | TypedPath::InEnvironment(_, path)) = self.parsed();
        let last = path.as_os_str().as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        matches!(last, b"." | b"..") || self.path.file_name().is_none()
    }

    /// Whether the path was typed as an environment alone (`ENV:`), which means the working directory of the server.
    pub(crate) fn means_working_directory(&self) -> bool {
        matches!(self.parsed(), TypedPath::InEnvironment(_, path) if path.as_os_str().is_empty())
    }

    fn parsed(&self) -> TypedPath<'_> {
        TypedPath::parse(self.typed.as_os_str())
    }

    /// Whether the path was typed with a slash at its end, as that of a directory.
    pub(crate) fn means_directory(&self) -> bool {
        self.typed.as_os_str().as_bytes().ends_with(b"/")
    }

    /// The names of the files in this directory. Servers limit their number; on this machine there is no limit.
    pub(crate) async fn names(&self) -> Result<Vec<OsString>, FileSystemError> {
        if self.host.is_local() {
            let path = self.path.clone();
            let listed = tokio::task::spawn_blocking(move || -> std::io::Result<Vec<OsString>> {
                std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
            });
            return Ok(listed.await.map_err(std::io::Error::from)??);
        }
        checked_names(self.host.files.read_directory_with_links(&self.uri()?, None).await?)
    }

    /// An error message: `action`, such as `read`, failed for this path.
    pub(crate) fn failure(&self, action: &str, error: &FileSystemError) -> String {
        format!("cannot {action} {self}: {}", error.words())
    }
}

impl std::fmt::Display for HostPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&readable(&self.typed.to_string_lossy()))
    }
}

/// The names in the listing of a server. A listing is refused if it has a text that is not the name of a file, such
/// as `..` or a text with a slash, which could lead a copy out of its target directory. It is also refused if it has
/// a name twice: the first copy could make a link, and the second would follow it.
fn checked_names(entries: Vec<DirectoryEntry>) -> Result<Vec<OsString>, FileSystemError> {
    let mut names = BTreeSet::new();
    for entry in entries {
        let exact = entry.path.and_then(|path| path.to_native().ok());
        let name = exact.as_deref().and_then(Path::file_name).map_or_else(|| entry.file_name.into(), OsStr::to_owned);
        if Path::new(&name).file_name() != Some(&name) || !names.insert(name) {
            let text = "exec-server protocol error: the listing has a repeated or an impossible name";
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, text).into());
        }
    }
    Ok(names.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_with_a_repeated_name_or_with_a_text_that_is_not_a_file_name_is_refused() {
        let names = |names: &[&str]| {
            let entry = |name: &&str| DirectoryEntry {
                file_name: (*name).to_owned(),
                is_directory: false,
                is_file: true,
                is_symlink: None,
                path: None,
            };
            checked_names(names.iter().map(entry).collect())
        };
        assert_eq!(names(&["b", "..a", "a b", ".c", "-"]).unwrap(), ["-", "..a", ".c", "a b", "b"]);
        for bad in ["..", ".", "", "/", "../x", "/etc/passwd", "x/y", "x/", "./x", "x/.", "x/.."] {
            assert!(names(&["good", bad]).is_err(), "{bad}");
        }
        assert!(names(&["twice", "once", "twice"]).is_err());
    }
}
