//! The files of this machine. All operations run on tokio's threads for blocking work.

mod walk;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use files::{Cancel, CancelOnDrop, CommitOptions, DanglingLinks, FileError, FileRoot, Follow, RegularFile, Upload};
use protocol::fs::{DirectoryEntry, Extent, ExtentsResult, FileMetadata, FileTime, WalkOptions, WalkResult};
use protocol::{PathUri, SandboxContext};

use super::reader::{Block, BlockSource, ExtentReader, FileReader};
use super::writer::{BlockSink, FileWriter};
use super::{
    CopyOptions, CreateDirectoryOptions, ExecutorFileSystem, FileFuture, FileOptions, FileSystemError, NewMetadata,
    RemoveOptions, RenameOptions, WriteStreamOptions,
};

/// Largest file that `read_file` returns. The protocol has the same limit for servers.
const MAX_READ_FILE_BYTES: u64 = 512 << 20;
/// The most entries of a directory that is listed. The protocol has the same limit for servers.
const MAX_DIRECTORY_ENTRIES: usize = 50_000;
/// The most extents (parts of a file that are not holes) in one page. If a file has more extents, its reader asks for
/// the next page.
const EXTENTS_PER_PAGE: usize = 4096;

/// The files of this machine. A sandbox that restricts files is refused, because the client cannot enforce it.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalFileSystem;

impl ExecutorFileSystem for LocalFileSystem {
    fn read_file<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, Vec<u8>> {
        let follow = follow(options.follow_symlinks);
        on_path(path, options.sandbox.as_ref(), move |root, path| {
            files::read_file(root, path, follow, MAX_READ_FILE_BYTES)
        })
    }

    fn read_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, FileReader> {
        on_path(path, sandbox, |root, path| {
            open(root, path).map(|(source, metadata)| FileReader::new(source, Some(metadata)))
        })
    }

    fn read_extents<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ExtentReader> {
        on_path(path, sandbox, |root, path| {
            let has_extents = true;
            open(root, path).map(|(source, metadata)| ExtentReader::new(source, Some(metadata), has_extents))
        })
    }

    fn write_file<'a>(&'a self, path: &'a PathUri, data: Bytes, options: &'a FileOptions) -> FileFuture<'a, ()> {
        let follow = follow(options.follow_symlinks);
        on_path(path, options.sandbox.as_ref(), move |root, path| files::write_file(root, path, &data, follow))
    }

    fn write_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        options: &'a WriteStreamOptions,
    ) -> FileFuture<'a, FileWriter> {
        let kept = options.clone();
        on_path(path, options.sandbox.as_ref(), move |root, path| {
            let upload = Upload::create(root, path, kept.replace, follow(kept.follow_symlinks))?;
            Ok(FileWriter::new(BlockSink::Local(Arc::new(upload)), kept))
        })
    }

    fn create_directory<'a>(&'a self, path: &'a PathUri, options: &'a CreateDirectoryOptions) -> FileFuture<'a, ()> {
        let (recursive, follow) = (options.recursive, follow(options.follow_symlinks));
        on_path(path, options.sandbox.as_ref(), move |root, path| {
            files::create_directory(root, path, recursive, follow)
        })
    }

    fn metadata<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, FileMetadata> {
        let follow = follow(options.follow_symlinks);
        on_path(path, options.sandbox.as_ref(), move |root, path| Ok(to_wire(&files::metadata(root, path, follow)?)))
    }

    fn set_metadata<'a>(&'a self, path: &'a PathUri, new: &'a NewMetadata) -> FileFuture<'a, ()> {
        let (mode, follow) = (new.mode, follow(new.follow_symlinks));
        let mtime = new.mtime.map(|time| (time.secs, time.nanos));
        on_path(path, new.sandbox.as_ref(), move |root, path| files::set_metadata(root, path, mode, mtime, follow))
    }

    fn canonicalize<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, PathUri> {
        on_path(path, sandbox, |root, path| uri(&files::canonicalize(root, path)?))
    }

    fn read_directory<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>> {
        on_path(path, sandbox, |root, path| read_directory(root, path, DanglingLinks::LeftOut))
    }

    fn read_directory_with_links<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>> {
        on_path(path, sandbox, |root, path| read_directory(root, path, DanglingLinks::Listed))
    }

    fn walk<'a>(
        &'a self,
        path: &'a PathUri,
        options: WalkOptions,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, WalkResult> {
        // If the caller drops the future, the walk on the other thread stops.
        let cancel = CancelOnDrop::new();
        let cancelled = cancel.flag();
        let walked = on_path(path, sandbox, move |root, path| walk::walk(root, path, options, &cancelled));
        Box::pin(async move {
            let walked = walked.await;
            drop(cancel);
            walked
        })
    }

    fn remove<'a>(&'a self, path: &'a PathUri, options: &'a RemoveOptions) -> FileFuture<'a, ()> {
        let (recursive, force, follow) = (options.recursive, options.force, follow(options.follow_symlinks));
        on_path(path, options.sandbox.as_ref(), move |root, path| {
            // A removal that has begun is never cancelled.
            files::remove(root, path, recursive, force, follow, &Cancel::new())
        })
    }

    fn copy<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a CopyOptions) -> FileFuture<'a, ()> {
        let recursive = options.recursive;
        // A copy that has begun is never cancelled.
        on_paths(from, to, options.sandbox.as_ref(), move |root, from, to| {
            files::copy(root, from, to, recursive, &Cancel::new())
        })
    }

    fn rename<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a RenameOptions) -> FileFuture<'a, ()> {
        let replace = options.replace;
        on_paths(from, to, options.sandbox.as_ref(), move |root, from, to| files::rename(root, from, to, replace))
    }

    fn read_link<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, OsString> {
        on_path(path, sandbox, files::read_link)
    }

    fn symlink<'a>(
        &'a self,
        path: &'a PathUri,
        target: OsString,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ()> {
        on_path(path, sandbox, move |root, path| files::symlink(root, &target, path))
    }
}

/// Opens a file for reading in blocks.
fn open(root: &FileRoot, path: &Path) -> Result<(BlockSource, FileMetadata), FileError> {
    let file = files::open_file(root, path, Follow::Yes)?;
    let metadata = to_wire(&file.metadata()?);
    Ok((BlockSource::Local(Arc::new(file)), metadata))
}

pub(super) async fn read_block(file: Arc<RegularFile>, offset: u64, len: usize) -> Result<Block, FileSystemError> {
    blocking(move || {
        let mut bytes = Vec::with_capacity(len);
        let eof = file.read_block(offset, len, &mut bytes)?;
        Ok(Block { bytes: bytes.into(), eof })
    })
    .await
}

/// The page of extents that begins at `offset`.
pub(super) async fn extents(file: Arc<RegularFile>, offset: u64) -> Result<ExtentsResult, FileSystemError> {
    let found = blocking(move || file.extents(offset, EXTENTS_PER_PAGE)).await?;
    Ok(ExtentsResult {
        next: found.extents.last().filter(|_| found.more).map(|last| last.end()),
        size: found.size,
        extents: found.extents.iter().map(|one| Extent { offset: one.offset, len: one.length }).collect(),
    })
}

pub(super) async fn write_block(upload: Arc<Upload>, offset: u64, block: Bytes) -> Result<(), FileSystemError> {
    blocking(move || upload.write_block(offset, &block)).await
}

pub(super) async fn commit(
    upload: Arc<Upload>,
    size: u64,
    options: &WriteStreamOptions,
) -> Result<(), FileSystemError> {
    let options = CommitOptions {
        size: Some(size),
        mode: options.mode,
        mode_if_new: options.mode_if_new,
        mtime: options.mtime.map(|time| (time.secs, time.nanos)),
        sync: options.sync,
    };
    blocking(move || upload.commit(&options)).await
}

/// Removes what was written, unless another task still holds the upload.
pub(super) async fn discard(upload: Arc<Upload>) -> Result<(), FileSystemError> {
    blocking(move || {
        drop(upload);
        Ok(())
    })
    .await
}

fn follow(follow_symlinks: bool) -> Follow {
    if follow_symlinks { Follow::Yes } else { Follow::No }
}

fn to_wire(metadata: &files::Metadata) -> FileMetadata {
    FileMetadata {
        is_directory: metadata.is_directory,
        is_file: metadata.is_file,
        is_symlink: metadata.is_symlink,
        size: metadata.size,
        created_at_ms: metadata.created_at_ms,
        modified_at_ms: metadata.modified_at_ms,
        mode: Some(metadata.mode),
        mtime: Some(FileTime { secs: metadata.modified_seconds, nanos: metadata.modified_nanos }),
    }
}

/// Lists a directory. As on a server, entries say whether they are links only if links without a target are listed.
fn read_directory(
    root: &FileRoot,
    directory: &Path,
    dangling: DanglingLinks,
) -> Result<Vec<DirectoryEntry>, FileError> {
    let entries = files::read_directory(root, directory, MAX_DIRECTORY_ENTRIES, dangling)?.into_iter().map(|entry| {
        let (is_directory, is_file) = (entry.is_directory, entry.is_file);
        let is_symlink = (dangling == DanglingLinks::Listed).then_some(entry.is_symlink);
        let (file_name, path) = match entry.name.into_string() {
            Ok(name) => (name, None),
            Err(name) => (name.to_string_lossy().into_owned(), Some(uri(&directory.join(&name))?)),
        };
        Ok(DirectoryEntry { file_name, is_directory, is_file, is_symlink, path })
    });
    entries.collect()
}

fn uri(path: &Path) -> Result<PathUri, FileError> {
    PathUri::from_native(path).ok_or_else(|| FileError::refused("the path is not absolute", path))
}

/// The URI as a path of this machine. Fails if the sandbox restricts files.
fn native_path(path: &PathUri, sandbox: Option<&SandboxContext>) -> Result<PathBuf, FileSystemError> {
    if sandbox.is_some_and(SandboxContext::restricts_files) {
        return Err(FileSystemError::invalid_input("filesystem sandbox cannot be enforced on this executor"));
    }
    path.to_native().map_err(|error| FileSystemError::invalid_input(error.to_string()).about(path))
}

/// Runs an operation on one path in the root of this machine, on a thread for blocking work.
fn on_path<'a, T: Send + 'static>(
    path: &'a PathUri,
    sandbox: Option<&'a SandboxContext>,
    operation: impl FnOnce(&FileRoot, &Path) -> Result<T, FileError> + Send + 'static,
) -> FileFuture<'a, T> {
    Box::pin(async move {
        let path = native_path(path, sandbox)?;
        blocking(move || operation(FileRoot::host(), &path)).await
    })
}

/// As [`on_path`], with two paths.
fn on_paths<'a, T: Send + 'static>(
    from: &'a PathUri,
    to: &'a PathUri,
    sandbox: Option<&'a SandboxContext>,
    operation: impl FnOnce(&FileRoot, &Path, &Path) -> Result<T, FileError> + Send + 'static,
) -> FileFuture<'a, T> {
    Box::pin(async move {
        let (from, to) = (native_path(from, sandbox)?, native_path(to, sandbox)?);
        blocking(move || operation(FileRoot::host(), &from, &to)).await
    })
}

/// Runs an operation on a thread for blocking work.
async fn blocking<T: Send + 'static>(
    operation: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileSystemError> {
    match tokio::task::spawn_blocking(operation).await {
        Ok(result) => Ok(result?),
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down and has not begun the operation.
        Err(_) => Err(FileSystemError::new(std::io::ErrorKind::Interrupted, "the program is ending")),
    }
}
