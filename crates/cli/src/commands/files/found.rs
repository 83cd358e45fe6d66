//! What stands at a place.

use std::ffi::OsString;

use client::{FileMetadata, FileOptions, FileSystemError};

use super::place::Place;

/// What was found.
pub(crate) enum Found {
    File(FileMetadata),
    Directory(FileMetadata),
    /// A link, with what it says.
    Link(OsString),
    /// Neither of these.
    Special(FileMetadata),
}

/// What becomes of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Links {
    /// It stands for its target.
    Follow,
    /// It is a link.
    Keep,
}

/// Looks at a place.
pub(crate) async fn look(place: &Place, links: Links) -> Result<Found, FileSystemError> {
    let uri = place.uri()?;
    match place.site.files.metadata(&uri, &FileOptions::default()).await {
        Ok(metadata) if metadata.is_symlink && links == Links::Keep => {
            if !place.site.has_links() {
                let words = "it is a link, and this server cannot read links";
                return Err(std::io::Error::new(std::io::ErrorKind::Unsupported, words).into());
            }
            Ok(Found::Link(place.site.files.read_link(&uri, None).await?))
        }
        Ok(metadata) if metadata.is_directory => Ok(Found::Directory(metadata)),
        Ok(metadata) if metadata.is_file => Ok(Found::File(metadata)),
        Ok(metadata) => Ok(Found::Special(metadata)),
        Err(error) if links == Links::Keep => {
            // A link that leads nowhere, or in a circle, perhaps.
            place.site.files.read_link(&uri, None).await.map(Found::Link).map_err(|_| error)
        }
        Err(error) => Err(error),
    }
}
