//! What stands at a place.

use std::ffi::OsString;

use client::{FileMetadata, FileOptions, FileSystemError};

use super::file_hosts::HostPath;

/// What was found.
pub(crate) enum FileKind {
    File(FileMetadata),
    Directory(FileMetadata),
    /// A link, with what it says.
    Link(OsString),
    /// Neither of these.
    Special(FileMetadata),
}

/// What becomes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymlinkPolicy {
    /// It stands for its target.
    Follow,
    /// It is a link.
    Keep,
}

/// Looks at a place.
pub(crate) async fn inspect(place: &HostPath, links: SymlinkPolicy) -> Result<FileKind, FileSystemError> {
    let uri = place.uri()?;
    match place.host.files.metadata(&uri, &FileOptions::default()).await {
        Ok(metadata) if metadata.is_symlink && links == SymlinkPolicy::Keep => {
            if !place.host.has_links() {
                let words = "it is a link, and this server cannot read links";
                return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, words).into());
            }
            Ok(FileKind::Link(place.host.files.read_link(&uri, None).await?))
        }
        Ok(metadata) if metadata.is_directory => Ok(FileKind::Directory(metadata)),
        Ok(metadata) if metadata.is_file => Ok(FileKind::File(metadata)),
        Ok(metadata) => Ok(FileKind::Special(metadata)),
        Err(error) if links == SymlinkPolicy::Keep => {
            // A link that leads nowhere, or in a circle, perhaps.
            place.host.files.read_link(&uri, None).await.map(FileKind::Link).map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}
