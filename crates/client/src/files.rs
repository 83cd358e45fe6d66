//! Operations on files. One trait covers the files of an environment (the machine of a server) and the files of this
//! machine, and the same failure gives the same error for both. Start with [`ExecutorFileSystem`].

mod blocks;
mod error;
mod local;
mod options;
mod reader;
mod remote;
mod sandbox;
mod sandboxed;
mod writer;

use std::ffi::OsString;
use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use protocol::fs::{DirectoryEntry, FileMetadata, WalkOptions, WalkResult};
use protocol::{PathUri, SandboxContext};

pub use error::FileSystemError;
pub use local::LocalFileSystem;
pub use options::{
    CopyOptions, CreateDirectoryOptions, FileOptions, NewMetadata, RemoveOptions, RenameOptions, WriteStreamOptions,
};
pub use reader::{ExtentReader, FileChunk, FileReader};
pub use remote::RemoteFileSystem;
pub use sandboxed::SandboxedFileSystem;
pub use writer::FileWriter;

/// Size of the blocks in which a file is written, and in which its extents (the parts that are not holes) are read.
/// Servers accept larger blocks, but blocks of this size stay in the caches of the processor, which is faster.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

/// The future that each operation of an [`ExecutorFileSystem`] returns.
pub type FileFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, FileSystemError>> + Send + 'a>>;

/// Operations on files, of an environment or of this machine.
///
/// The connection may be lost before the answer. Then the client repeats an operation over the next connection,
/// provided that doing it twice is the same as doing it once. Any other operation fails with
/// [`BrokenPipe`](std::io::ErrorKind::BrokenPipe), and the caller does not know whether it was done.
pub trait ExecutorFileSystem: Send + Sync {
    /// Reads a whole file of at most 512 MiB. A file of an environment must also fit into one message of the server.
    /// Larger files need [`read_file_stream`](Self::read_file_stream).
    fn read_file<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, Vec<u8>>;

    /// Reads a whole file as text. A file that is not UTF-8 gives an error of kind [`InvalidData`](std::io::ErrorKind::InvalidData).
    fn read_file_text<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, String> {
        Box::pin(async move {
            let bytes = self.read_file(path, options).await?;
            String::from_utf8(bytes).map_err(|_| FileSystemError::not_text(path))
        })
    }

    /// Opens a file of any size for reading in pieces. Symbolic links are followed.
    fn read_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, FileReader>;

    /// As [`read_file_stream`](Self::read_file_stream), but skips the holes of the file. Each piece comes with its offset.
    fn read_extents<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ExtentReader>;

    /// Replaces the contents of a file by `data`, in place: a failure may leave the file half written.
    fn write_file<'a>(&'a self, path: &'a PathUri, data: Bytes, options: &'a FileOptions) -> FileFuture<'a, ()>;

    /// Writes a file of any size in pieces. The file appears at `path` when it is [committed](FileWriter::commit), and not before.
    fn write_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        options: &'a WriteStreamOptions,
    ) -> FileFuture<'a, FileWriter>;

    /// Creates a directory, and with `recursive` its parents.
    fn create_directory<'a>(&'a self, path: &'a PathUri, options: &'a CreateDirectoryOptions) -> FileFuture<'a, ()>;

    /// Type, size, times and permissions of a file. For a symbolic link, the metadata is that of its target; if the
    /// options do not follow links, a link is an error.
    fn metadata<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, FileMetadata>;

    /// Changes the permissions or the modification time of a file.
    fn set_metadata<'a>(&'a self, path: &'a PathUri, new: &'a NewMetadata) -> FileFuture<'a, ()>;

    /// Resolves all symbolic links in a path. The file must exist.
    fn canonicalize<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, PathUri>;

    /// Lists a directory, in no particular order. Symbolic links whose target does not exist are left out.
    fn read_directory<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>>;

    /// As [`read_directory`](Self::read_directory), but lists symbolic links whose target does not exist too, and
    /// each entry says whether it is a link. A server without the extension `fsLinks` leaves such links out and does
    /// not say which entries are links.
    fn read_directory_with_links<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>>;

    /// Lists a directory tree, level by level, within the limits of the options.
    fn walk<'a>(
        &'a self,
        path: &'a PathUri,
        options: WalkOptions,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, WalkResult>;

    /// Removes a file, a directory, or a symbolic link, but never the target of the link.
    fn remove<'a>(&'a self, path: &'a PathUri, options: &'a RemoveOptions) -> FileFuture<'a, ()>;

    /// Copies a file, a directory, or a symbolic link, but not the target of the link.
    fn copy<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a CopyOptions) -> FileFuture<'a, ()>;

    /// Moves a file or a directory within one file system, in one step.
    fn rename<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a RenameOptions) -> FileFuture<'a, ()>;

    /// The target of a symbolic link, as the link states it. The target need not exist.
    fn read_link<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, OsString>;

    /// Creates a symbolic link at `path`. The target may have any bytes and need not exist.
    fn symlink<'a>(
        &'a self,
        path: &'a PathUri,
        target: OsString,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ()>;
}
