//! Copies one file or one symbolic link, between any two machines. A copy that fails leaves no incomplete file at the
//! target.

use std::ffi::OsString;
use std::io::ErrorKind;

use bytes::Bytes;
use client::{
    ExtentReader, FileMetadata, FileOptions, FileReader, FileSystemError, FileWriter, RemoveOptions,
    WriteStreamOptions,
};

use super::super::progress::ProgressLine;
use super::file_kind::SymlinkPolicy;
use super::host_path::HostPath;

/// Size in bytes below which all bytes of a file are read, also the zeros of its holes. To ask where the holes are
/// would take longer than to send these zeros.
const SMALLEST_SPARSE_FILE: u64 = 256 << 10;
/// How often we try to make a link. After a lost connection we do not know whether the link was made, so we look for
/// the link after each failed attempt.
const LINK_TRIES: usize = 8;

/// Set-user-ID and set-group-ID, which no copied file gets. The copy may have another owner, with whose rights it
/// would run.
const SET_ID_BITS: u32 = 0o6000;

/// Which permission bits a copy gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermissionPolicy {
    /// A new file gets the bits of its source that the umask of the target's machine allows. A file that exists keeps
    /// its bits.
    Umask,
    /// The bits of the source, except [`SET_ID_BITS`] of files.
    Exact,
}

/// The result of a copy. The error is a sentence for the user.
type Copied = Result<(), String>;

/// Copies a file with its modification time. `target_links` says what to do with a link at the target. `earlier` is
/// the metadata of the source from before it was opened, for servers that do not report metadata of an open file.
pub(crate) async fn copy_file(
    source: &HostPath,
    target: &HostPath,
    target_links: SymlinkPolicy,
    earlier: &FileMetadata,
    permissions: PermissionPolicy,
    progress: &ProgressLine,
) -> Copied {
    let unreadable = |error: FileSystemError| source.failure("read", &error);
    let unwritable = |error: FileSystemError| target.failure("write", &error);
    let mut pieces = SourcePieces::open(source, earlier.size).await.map_err(unreadable)?;
    let metadata = pieces.metadata().unwrap_or(earlier).clone();
    let bits = metadata.mode.map(|mode| mode & !SET_ID_BITS);
    let (mode, mode_if_new) = if permissions == PermissionPolicy::Exact { (bits, None) } else { (None, bits) };
    let follow_symlinks = target_links == SymlinkPolicy::Follow;
    let options = WriteStreamOptions {
        mode,
        mode_if_new,
        mtime: metadata.mtime,
        follow_symlinks,
        ..WriteStreamOptions::default()
    };
    let mut writer = open_writer(target, &options).await.map_err(unwritable)?;
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

/// Opens the target for writing. A link that must not be followed is removed, so that the file can replace it.
async fn open_writer(target: &HostPath, options: &WriteStreamOptions) -> Result<FileWriter, FileSystemError> {
    let (files, uri) = (&target.host.files, target.uri()?);
    let opened = files.write_file_stream(&uri, options).await;
    // A link that must not be followed is refused as `InvalidInput`. This error has other causes too, so `read_link`
    // below asks whether there is a link.
    if options.follow_symlinks || !opened.as_ref().is_err_and(|error| error.kind == ErrorKind::InvalidInput) {
        return opened;
    }
    if files.read_link(&uri, None).await.is_ok() {
        files.remove(&uri, &RemoveOptions { force: true, ..RemoveOptions::default() }).await?;
        return files.write_file_stream(&uri, options).await;
    }
    opened
}

/// Reads the content of a file in pieces.
enum SourcePieces {
    /// All bytes, holes as zeros.
    All(FileReader),
    /// Only the bytes outside of the holes.
    Extents(ExtentReader),
}

impl SourcePieces {
    async fn open(source: &HostPath, size: u64) -> Result<Self, FileSystemError> {
        let (files, uri) = (&source.host.files, source.uri()?);
        Ok(if size < SMALLEST_SPARSE_FILE {
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

    /// The next piece and its offset. `reached` is the offset of the end of the piece before it.
    async fn next(&mut self, reached: u64) -> Option<Result<(u64, Bytes), FileSystemError>> {
        Some(match self {
            Self::All(reader) => reader.next().await?.map(|bytes| (reached, bytes)),
            Self::Extents(reader) => reader.next().await?.map(|chunk| (chunk.offset, chunk.bytes)),
        })
    }

    /// The size of the file. `reached` is the offset of the end of the last piece.
    fn size(&self, reached: u64) -> u64 {
        match self {
            Self::All(_) => reached,
            Self::Extents(reader) => reader.size(),
        }
    }
}

/// Copies the link `source`, which leads to `link_target`. A file or another link at the path `target` is removed.
pub(crate) async fn copy_link(source: &HostPath, target: &HostPath, link_target: &OsString) -> Copied {
    if !target.host.has_links() {
        return Err(format!("left out {source}: it is a link, and the server of {target} cannot make links"));
    }
    make_link(target, link_target).await.map_err(|error| target.failure("make the link", &error))
}

async fn make_link(target: &HostPath, link_target: &OsString) -> Result<(), FileSystemError> {
    let (files, uri) = (&target.host.files, target.uri()?);
    let mut tries = 0;
    loop {
        let Err(error) = files.symlink(&uri, link_target.clone(), None).await else { return Ok(()) };
        if files.read_link(&uri, None).await.is_ok_and(|found| found == *link_target) {
            return Ok(());
        }
        tries += 1;
        match error.kind {
            _ if tries == LINK_TRIES => return Err(error),
            // The connection was lost before the answer, and the link was not made.
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
