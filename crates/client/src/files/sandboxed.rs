//! Files behind a sandbox: every operation carries the same sandbox, so that no caller can forget it.

use std::ffi::OsString;

use bytes::Bytes;
use protocol::fs::{DirectoryEntry, FileMetadata, WalkOptions, WalkResult};
use protocol::{PathUri, SandboxContext};

use super::{
    CopyOptions, CreateDirectoryOptions, ExecutorFileSystem, ExtentReader, FileFuture, FileOptions, FileReader,
    FileSystemError, FileWriter, NewMetadata, RemoveOptions, RenameOptions, WriteStreamOptions,
};

/// A file system whose operations all carry one sandbox. The sandbox is enforced by the file system inside, or the
/// operation is refused there. An operation that asks for another sandbox is refused here.
pub struct SandboxedFileSystem {
    files: Box<dyn ExecutorFileSystem>,
    sandbox: SandboxContext,
}

impl SandboxedFileSystem {
    /// Puts `files` behind a sandbox.
    pub fn new(files: Box<dyn ExecutorFileSystem>, sandbox: SandboxContext) -> Self {
        Self { files, sandbox }
    }

    /// Refuses another sandbox than ours: only one can be sent, and dropping the other would allow more than it does.
    fn check(&self, asked: Option<&SandboxContext>) -> Result<Option<&SandboxContext>, FileSystemError> {
        match asked {
            Some(asked) if *asked != self.sandbox => {
                Err(FileSystemError::invalid_input("the operation asks for another sandbox than its file system has"))
            }
            _ => Ok(Some(&self.sandbox)),
        }
    }
}

/// Calls an operation that takes the sandbox as an argument.
macro_rules! with_argument {
    ($self:ident.$operation:ident($($argument:expr),*; $asked:ident)) => {
        Box::pin(async move { $self.files.$operation($($argument,)* $self.check($asked)?).await })
    };
}

/// Calls an operation that has the sandbox in its options.
macro_rules! with_options {
    ($self:ident.$operation:ident($($argument:expr),*; $options:ident: $type:ident)) => {
        Box::pin(async move {
            let sandbox = $self.check($options.sandbox.as_ref())?.cloned();
            $self.files.$operation($($argument,)* &$type { sandbox, ..$options.clone() }).await
        })
    };
}

impl ExecutorFileSystem for SandboxedFileSystem {
    fn read_file<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, Vec<u8>> {
        with_options!(self.read_file(path; options: FileOptions))
    }

    fn read_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, FileReader> {
        with_argument!(self.read_file_stream(path; sandbox))
    }

    fn read_extents<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ExtentReader> {
        with_argument!(self.read_extents(path; sandbox))
    }

    fn write_file<'a>(&'a self, path: &'a PathUri, data: Bytes, options: &'a FileOptions) -> FileFuture<'a, ()> {
        with_options!(self.write_file(path, data; options: FileOptions))
    }

    fn write_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        options: &'a WriteStreamOptions,
    ) -> FileFuture<'a, FileWriter> {
        with_options!(self.write_file_stream(path; options: WriteStreamOptions))
    }

    fn create_directory<'a>(&'a self, path: &'a PathUri, options: &'a CreateDirectoryOptions) -> FileFuture<'a, ()> {
        with_options!(self.create_directory(path; options: CreateDirectoryOptions))
    }

    fn metadata<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, FileMetadata> {
        with_options!(self.metadata(path; options: FileOptions))
    }

    fn set_metadata<'a>(&'a self, path: &'a PathUri, new: &'a NewMetadata) -> FileFuture<'a, ()> {
        with_options!(self.set_metadata(path; new: NewMetadata))
    }

    fn canonicalize<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, PathUri> {
        with_argument!(self.canonicalize(path; sandbox))
    }

    fn read_directory<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>> {
        with_argument!(self.read_directory(path; sandbox))
    }

    fn read_directory_with_links<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>> {
        with_argument!(self.read_directory_with_links(path; sandbox))
    }

    fn walk<'a>(
        &'a self,
        path: &'a PathUri,
        options: WalkOptions,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, WalkResult> {
        with_argument!(self.walk(path, options; sandbox))
    }

    fn remove<'a>(&'a self, path: &'a PathUri, options: &'a RemoveOptions) -> FileFuture<'a, ()> {
        with_options!(self.remove(path; options: RemoveOptions))
    }

    fn copy<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a CopyOptions) -> FileFuture<'a, ()> {
        with_options!(self.copy(from, to; options: CopyOptions))
    }

    fn rename<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a RenameOptions) -> FileFuture<'a, ()> {
        with_options!(self.rename(from, to; options: RenameOptions))
    }

    fn read_link<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, OsString> {
        with_argument!(self.read_link(path; sandbox))
    }

    fn symlink<'a>(
        &'a self,
        path: &'a PathUri,
        target: OsString,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ()> {
        with_argument!(self.symlink(path, target; sandbox))
    }
}
