//! Files of an environment, and those of this machine, through one trait: what works with one works with the other, and fails with
//! equal errors.

mod blocks;
mod error;
mod local;
mod options;
mod reader;
mod remote;
mod sandbox;
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
pub use writer::FileWriter;

/// The most a file has in one piece on its way. A server takes more, but what stays in the caches is faster.
pub(crate) const BLOCK_BYTES: usize = 256 << 10;

/// A future that a file system returns.
pub type FileFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, FileSystemError>> + Send + 'a>>;

/// What can be done with files, wherever they are.
///
/// An operation that changes something and was sent when the connection broke is repeated if doing it twice is the same as doing it
/// once; otherwise it fails with [`BrokenPipe`](std::io::ErrorKind::BrokenPipe), and whether it was done is not known.
pub trait ExecutorFileSystem: Send + Sync {
    /// The whole of a file that fits a message; others are for [`read_file_stream`](Self::read_file_stream).
    fn read_file<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, Vec<u8>>;

    /// The same as text. What is not UTF-8 is an error of kind [`InvalidData`](std::io::ErrorKind::InvalidData).
    fn read_file_text<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, String> {
        Box::pin(async move {
            let bytes = self.read_file(path, options).await?;
            String::from_utf8(bytes).map_err(|_| FileSystemError::not_text(path))
        })
    }

    /// A file of any size, piece by piece. Symbolic links are followed.
    fn read_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, FileReader>;

    /// The same without the holes of the file, each piece with its place.
    fn read_extents<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ExtentReader>;

    /// Makes `data` the contents of a file, in place.
    fn write_file<'a>(&'a self, path: &'a PathUri, data: Bytes, options: &'a FileOptions) -> FileFuture<'a, ()>;

    /// A file of any size, piece by piece. It stands at `path` when it is [committed](FileWriter::commit), and not before.
    fn write_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        options: &'a WriteStreamOptions,
    ) -> FileFuture<'a, FileWriter>;

    /// Makes a directory.
    fn create_directory<'a>(&'a self, path: &'a PathUri, options: &'a CreateDirectoryOptions) -> FileFuture<'a, ()>;

    /// What is known of a file. A link that is followed is described by its target.
    fn metadata<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, FileMetadata>;

    /// Changes it.
    fn set_metadata<'a>(&'a self, path: &'a PathUri, new: &'a NewMetadata) -> FileFuture<'a, ()>;

    /// The same path without links.
    fn canonicalize<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, PathUri>;

    /// What is in a directory, in no particular order. Links that lead nowhere are left out.
    fn read_directory<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>>;

    /// The same with links that lead nowhere, and each entry says whether it is a link. A server without `fsLinks` leaves them out, and
    /// does not say.
    fn read_directory_with_links<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>>;

    /// What is below a directory, level by level, within limits.
    fn walk<'a>(
        &'a self,
        path: &'a PathUri,
        options: WalkOptions,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, WalkResult>;

    /// Removes a file, a link itself, or a directory.
    fn remove<'a>(&'a self, path: &'a PathUri, options: &'a RemoveOptions) -> FileFuture<'a, ()>;

    /// Copies a file, a link itself, or a directory.
    fn copy<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a CopyOptions) -> FileFuture<'a, ()>;

    /// Gives something another name in the same file system, in one step.
    fn rename<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a RenameOptions) -> FileFuture<'a, ()>;

    /// What a symbolic link says, which need not exist.
    fn read_link<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, OsString>;

    /// Makes a symbolic link at `path` that says `target`, of whatever bytes.
    fn symlink<'a>(
        &'a self,
        path: &'a PathUri,
        target: OsString,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ()>;
}
