//! One file or one link from one place to another. What goes wrong on the way leaves nothing at the target.

use std::ffi::OsString;
use std::io::ErrorKind;

use bytes::Bytes;
use client::{
    ExtentReader, FileMetadata, FileOptions, FileReader, FileSystemError, FileWriter, RemoveOptions,
    WriteStreamOptions,
};

use super::super::progress::ProgressLine;
use super::file_hosts::HostPath;
use super::file_kind::SymlinkPolicy;

/// Smaller files are not asked for their holes: that would take longer than to send them.
const WORTH_ASKING: u64 = 256 << 10;
/// A link is made in one step that cannot be repeated blindly; so often it is looked whether it was made.
const LINK_TRIES: usize = 8;

/// Set-user-ID and set-group-ID. The copy belongs to somebody else, whose rights it must not lend.
const SET_ID_BITS: u32 = 0o6000;

/// Which permission bits a copy gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyModes {
    /// Something new gets those of its source, less what the umask takes where the copy is made. What is there keeps its own.
    Umask,
    /// Those of the source.
    Exact,
}

/// Why it was not copied: a sentence.
type Copied = Result<(), String>;

/// Copies a file with its time. `looked` is what was known of it before it was opened.
pub(crate) async fn copy_file(
    source: &HostPath,
    target: &HostPath,
    target_links: SymlinkPolicy,
    looked: &FileMetadata,
    modes: CopyModes,
    progress: &ProgressLine,
) -> Copied {
    let unreadable = |error: FileSystemError| source.complaint("read", &error);
    let unwritable = |error: FileSystemError| target.complaint("write", &error);
    let mut pieces = SourcePieces::open(source, looked.size).await.map_err(unreadable)?;
    let metadata = pieces.metadata().unwrap_or(looked).clone();
    let bits = metadata.mode.map(|mode| mode & !SET_ID_BITS);
    let (mode, mode_if_new) = if modes == CopyModes::Exact { (bits, None) } else { (None, bits) };
    let follow_symlinks = target_links == SymlinkPolicy::Follow;
    let options = WriteStreamOptions {
        mode,
        mode_if_new,
        mtime: metadata.mtime,
        follow_symlinks,
        ..WriteStreamOptions::default()
    };
    let mut writer = begin(target, &options).await.map_err(unwritable)?;
    let mut reached = 0;
    while let Some(piece) = pieces.next(reached).await {
        let (offset, bytes) = piece.map_err(unreadable)?;
        let end = offset + bytes.len() as u64;
        writer.seek(offset).await.map_err(unwritable)?;
        writer.write(bytes).await.map_err(unwritable)?;
        progress.add_bytes(end.saturating_sub(reached));
        reached = end;
    }
    let size = pieces.size(reached);
    writer.seek(size).await.map_err(unwritable)?;
    writer.commit().await.map_err(unwritable)?;
    progress.add_bytes(size.saturating_sub(reached));
    progress.add_copied_file();
    Ok(())
}

/// Begins the copy. A link that must not be followed is removed, so that the file can take its place.
async fn begin(target: &HostPath, options: &WriteStreamOptions) -> Result<FileWriter, FileSystemError> {
    let (files, uri) = (&target.host.files, target.uri()?);
    let begun = files.write_file_stream(&uri, options).await;
    if options.follow_symlinks || !begun.as_ref().is_err_and(|error| error.kind == ErrorKind::InvalidInput) {
        return begun;
    }
    if files.read_link(&uri, None).await.is_ok() {
        files.remove(&uri, &RemoveOptions { force: true, ..RemoveOptions::default() }).await?;
        return files.write_file_stream(&uri, options).await;
    }
    begun
}

/// A file with or without its holes.
enum SourcePieces {
    All(FileReader),
    Extents(ExtentReader),
}

impl SourcePieces {
    async fn open(source: &HostPath, size: u64) -> Result<Self, FileSystemError> {
        let (files, uri) = (&source.host.files, source.uri()?);
        Ok(if size < WORTH_ASKING {
            Self::All(files.read_file_stream(&uri, None).await?)
        } else {
            Self::Extents(files.read_extents(&uri, None).await?)
        })
    }

    fn metadata(&self) -> Option<&FileMetadata> {
        match self {
            Self::All(reader) => reader.metadata(),
            Self::Extents(reader) => reader.metadata(),
        }
    }

    async fn next(&mut self, reached: u64) -> Option<Result<(u64, Bytes), FileSystemError>> {
        Some(match self {
            Self::All(reader) => reader.next().await?.map(|bytes| (reached, bytes)),
            Self::Extents(reader) => reader.next().await?.map(|chunk| (chunk.offset, chunk.bytes)),
        })
    }

    fn size(&self, reached: u64) -> u64 {
        match self {
            Self::All(_) => reached,
            Self::Extents(reader) => reader.size(),
        }
    }
}

/// Makes a link, in place of a file or another link if there is one.
pub(crate) async fn copy_link(target: &HostPath, says: &OsString) -> Copied {
    if !target.host.has_links() {
        return Err(format!("left out {target}: it is a link, and this server cannot make links"));
    }
    make_link(target, says).await.map_err(|error| target.complaint("make the link", &error))
}

async fn make_link(target: &HostPath, says: &OsString) -> Result<(), FileSystemError> {
    let (files, uri) = (&target.host.files, target.uri()?);
    let mut tries = 0;
    loop {
        let Err(error) = files.symlink(&uri, says.clone(), None).await else { return Ok(()) };
        if files.read_link(&uri, None).await.is_ok_and(|found| found == *says) {
            return Ok(());
        }
        tries += 1;
        match error.kind {
            _ if tries == LINK_TRIES => return Err(error),
            // The connection was lost with the answer, and it was not made.
            ErrorKind::BrokenPipe => {}
            ErrorKind::AlreadyExists => {
                let found = files.metadata(&uri, &FileOptions::default()).await;
                if found.is_ok_and(|found| found.is_directory && !found.is_symlink) {
                    return Err(error);
                }
                let options = RemoveOptions { force: true, ..RemoveOptions::default() };
                files.remove(&uri, &options).await?;
            }
            _ => return Err(error),
        }
    }
}
