//! Finds out whether a path is a file, a directory, a symbolic link or something else.

use std::ffi::OsString;

use client::{FileMetadata, FileOptions, FileSystemError};

use super::host_path::HostPath;

/// What a path leads to.
pub(crate) enum FileKind {
    File(FileMetadata),
    Directory(FileMetadata),
    /// A symbolic link, with the path that it contains.
    Link(OsString),
    /// A device, a pipe or a socket.
    Special(FileMetadata),
}

/// What a symbolic link at the end of a path means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymlinkPolicy {
    /// The file that the link leads to.
    Follow,
    /// The link itself.
    Keep,
}

/// Asks the machine what is at a path.
pub(crate) async fn inspect(path: &HostPath, links: SymlinkPolicy) -> Result<FileKind, FileSystemError> {
    let uri = path.uri()?;
    match path.host.files.metadata(&uri, &FileOptions::default()).await {
        Ok(metadata) if metadata.is_symlink && links == SymlinkPolicy::Keep => {
            if !path.host.has_links() {
                let words = "it is a link, and this server cannot read links";
                return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, words).into());
            }
            Ok(FileKind::Link(path.host.files.read_link(&uri, None).await?))
        }
        Ok(metadata) if metadata.is_directory => Ok(FileKind::Directory(metadata)),
        Ok(metadata) if metadata.is_file => Ok(FileKind::File(metadata)),
        Ok(metadata) => Ok(FileKind::Special(metadata)),
        Err(error) if links == SymlinkPolicy::Keep => {
            // It may be a link that leads nowhere, or in a circle.
            path.host.files.read_link(&uri, None).await.map(FileKind::Link).map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}
