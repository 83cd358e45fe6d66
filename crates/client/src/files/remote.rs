//! The files of an environment (the machine of a server). Each operation is a call of the client to the server.

mod file;
mod whole;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use protocol::fs::{
    CopyParams, CreateDirectoryParams, CreateParams, DirectoryEntry, FileMetadata, FileParams, HandleResult,
    LinkTarget, OpenParams, PathParams, ReadDirectoryParams, RemoveParams, RenameParams, SetMetadataParams,
    SymlinkParams, WalkOptions, WalkParams, WalkResult, WriteFileParams,
};
use protocol::{
    Base64Bytes, Capabilities, PathUri, SandboxContext, TypedMethod, encode_base64_into, encoded_len, methods,
};

pub(crate) use file::RemoteFile;
pub(crate) use whole::WholeFile;

use super::reader::{BlockSource, ExtentReader, FileReader};
use super::writer::{BlockSink, FileWriter};
use super::{
    CopyOptions, CreateDirectoryOptions, ExecutorFileSystem, FileFuture, FileOptions, FileSystemError, NewMetadata,
    RemoveOptions, RenameOptions, WriteStreamOptions, sandbox,
};
use crate::client_core::{CallOptions, ClientHandle};
use crate::error::ExecServerError;

/// The files of an environment. The client stays open while this value or a clone of it exists.
#[derive(Clone)]
pub struct RemoteFileSystem {
    client: Arc<ClientHandle>,
}

/// The permission bits that the usual umask 022 leaves. Used for servers that do not know `mode_if_new`, so that the
/// client has to guess their umask.
const UNDER_USUAL_UMASK: u32 = 0o755;

impl RemoteFileSystem {
    pub(crate) fn new(client: Arc<ClientHandle>) -> Self {
        Self { client }
    }

    async fn capabilities(&self) -> Result<Capabilities, FileSystemError> {
        Ok(self.client.core.capabilities().await?)
    }

    fn to_remote(&self, path: &PathUri) -> PathUri {
        match self.client.core.connector.paths() {
            Some(paths) => paths.to_remote(path),
            None => path.clone(),
        }
    }

    fn to_local(&self, path: PathUri) -> PathUri {
        match self.client.core.connector.paths() {
            Some(paths) => paths.to_local(&path),
            None => path,
        }
    }

    /// The sandbox as it is sent to the server: without paths that the server does not need, and with mapped paths.
    fn remote_sandbox(&self, sandbox: Option<&SandboxContext>) -> Result<Option<SandboxContext>, FileSystemError> {
        let Some(sandbox) = sandbox.map(sandbox::without_unused_paths) else { return Ok(None) };
        self.client.core.uses_sandboxes.store(true, Ordering::Relaxed);
        let Some(paths) = self.client.core.connector.paths() else { return Ok(Some(sandbox)) };
        paths.map_sandbox_context(&sandbox).map(Some).map_err(FileSystemError::invalid_input)
    }

    /// Makes a call. If it fails, the path in the error is mapped to this machine.
    async fn request<M: TypedMethod>(&self, params: &M::Params) -> Result<M::Result, FileSystemError> {
        self.call::<M>(params).await.map_err(|error| local_error(&self.client, error))
    }

    /// As [`request`](Self::request), with the error as the client returns it.
    async fn call<M: TypedMethod>(&self, params: &M::Params) -> Result<M::Result, ExecServerError> {
        let options = self.client.core.user_options(CallOptions::FILE_REQUEST);
        self.client.core.call::<M>(params, options).await
    }

    /// Makes a call that changes files. Callers that ask for the same metadata at the same time share one request; a
    /// request that was sent before the end of this call is not shared with later callers.
    async fn change<M: TypedMethod>(&self, params: &M::Params) -> Result<(), FileSystemError> {
        let _changing_files = self.client.core.metadata_flights.mark_files_changing();
        self.request::<M>(params).await.map(drop)
    }

    /// Opens a file for reading in blocks.
    async fn open(
        &self,
        path: &PathUri,
        sandbox: Option<&SandboxContext>,
    ) -> Result<(Arc<RemoteFile>, HandleResult), FileSystemError> {
        let (path, sandbox) = (self.to_remote(path), self.remote_sandbox(sandbox)?);
        let params = |handle_id| OpenParams { handle_id, path: path.clone(), sandbox: sandbox.clone() };
        let opened = RemoteFile::open::<methods::FsOpen>(&self.client, params).await;
        opened.map_err(|error| local_error(&self.client, error))
    }

    /// Lists a directory. `dangling_links` says whether symbolic links whose target does not exist are listed too.
    async fn list(
        &self,
        path: &PathUri,
        dangling_links: bool,
        sandbox: Option<&SandboxContext>,
    ) -> Result<Vec<DirectoryEntry>, FileSystemError> {
        let (path, sandbox) = (self.to_remote(path), self.remote_sandbox(sandbox)?);
        let params = ReadDirectoryParams { path, dangling_links, sandbox };
        let mut result = self.request::<methods::FsReadDirectory>(&params).await?;
        for entry in &mut result.entries {
            entry.path = entry.path.take().map(|path| self.to_local(path));
        }
        Ok(result.entries)
    }

    fn path_params(&self, path: &PathUri, sandbox: Option<&SandboxContext>) -> Result<PathParams, FileSystemError> {
        Ok(PathParams { path: self.to_remote(path), sandbox: self.remote_sandbox(sandbox)? })
    }

    fn file_params(&self, path: &PathUri, options: &FileOptions) -> Result<FileParams, FileSystemError> {
        Ok(FileParams {
            path: self.to_remote(path),
            follow_symlinks: options.follow_symlinks,
            sandbox: self.remote_sandbox(options.sandbox.as_ref())?,
        })
    }
}

/// The error, with its path mapped to this machine.
fn local_error(client: &ClientHandle, error: ExecServerError) -> FileSystemError {
    let mut error = FileSystemError::from(error);
    if let Some(paths) = client.core.connector.paths() {
        error.map_path(|path| paths.to_local(path));
    }
    error
}

impl ExecutorFileSystem for RemoteFileSystem {
    fn read_file<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, Vec<u8>> {
        Box::pin(async move {
            let params = self.file_params(path, options)?;
            let result = self.request::<methods::FsReadFile>(&params).await?;
            Ok(result.data.0)
        })
    }

    fn read_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, FileReader> {
        Box::pin(async move {
            let (file, opened) = self.open(path, sandbox).await?;
            Ok(FileReader::new(BlockSource::Remote(file), opened.metadata))
        })
    }

    fn read_extents<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ExtentReader> {
        Box::pin(async move {
            let has_extents = self.capabilities().await?.fs_extents;
            let (file, opened) = self.open(path, sandbox).await?;
            Ok(ExtentReader::new(BlockSource::Remote(file), opened.metadata, has_extents))
        })
    }

    fn write_file<'a>(&'a self, path: &'a PathUri, data: Bytes, options: &'a FileOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let mut text = Vec::with_capacity(encoded_len(data.len()));
            encode_base64_into(&mut text, &data);
            drop(data);
            let params = WriteFileParams {
                path: self.to_remote(path),
                // Base64 is ASCII, so this does not fail.
                data_base64: String::from_utf8(text).unwrap_or_default(),
                follow_symlinks: options.follow_symlinks,
                sandbox: self.remote_sandbox(options.sandbox.as_ref())?,
            };
            self.change::<methods::FsWriteFile>(&params).await
        })
    }

    fn write_file_stream<'a>(
        &'a self,
        path: &'a PathUri,
        options: &'a WriteStreamOptions,
    ) -> FileFuture<'a, FileWriter> {
        Box::pin(async move {
            let sandbox = options.sandbox.clone();
            let capabilities = self.capabilities().await?;
            if !capabilities.fs_write_blocks {
                let whole = WholeFile { server: self.clone(), path: path.clone(), sandbox, bytes: Vec::new() };
                return Ok(FileWriter::new(BlockSink::Whole(Box::new(whole)), options.clone()));
            }
            let mut kept = options.clone();
            if !capabilities.fs_mode_if_new {
                // `mode` also changes the permissions of a file that is replaced, but the server has no other option.
                kept.mode = kept.mode.or(kept.mode_if_new.take().map(|bits| bits & UNDER_USUAL_UMASK));
            }
            let (path, sandbox) = (self.to_remote(path), self.remote_sandbox(sandbox.as_ref())?);
            let params = |handle_id| {
                let (path, sandbox) = (path.clone(), sandbox.clone());
                let WriteStreamOptions { replace, follow_symlinks, .. } = *options;
                CreateParams { handle_id, path, replace, follow_symlinks, sandbox }
            };
            let created = RemoteFile::open::<methods::FsCreate>(&self.client, params).await;
            let (file, _) = created.map_err(|error| local_error(&self.client, error))?;
            Ok(FileWriter::new(BlockSink::Remote(file), kept))
        })
    }

    fn create_directory<'a>(&'a self, path: &'a PathUri, options: &'a CreateDirectoryOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let params = CreateDirectoryParams {
                path: self.to_remote(path),
                recursive: options.recursive,
                follow_symlinks: options.follow_symlinks,
                sandbox: self.remote_sandbox(options.sandbox.as_ref())?,
            };
            self.change::<methods::FsCreateDirectory>(&params).await
        })
    }

    fn metadata<'a>(&'a self, path: &'a PathUri, options: &'a FileOptions) -> FileFuture<'a, FileMetadata> {
        Box::pin(async move {
            let params = self.file_params(path, options)?;
            let call = self.call::<methods::FsGetMetadata>(&params);
            // Callers that ask for the metadata of the same path at the same time share one request, if their options
            // are the usual ones.
            let metadata = if params.follow_symlinks && params.sandbox.is_none() {
                self.client.core.metadata_flights.join(&params.path, call).await
            } else {
                call.await
            };
            metadata.map_err(|error| local_error(&self.client, error))
        })
    }

    fn set_metadata<'a>(&'a self, path: &'a PathUri, new: &'a NewMetadata) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let params = SetMetadataParams {
                path: self.to_remote(path),
                mode: new.mode,
                mtime: new.mtime,
                follow_symlinks: new.follow_symlinks,
                sandbox: self.remote_sandbox(new.sandbox.as_ref())?,
            };
            self.change::<methods::FsSetMetadata>(&params).await
        })
    }

    fn canonicalize<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, PathUri> {
        Box::pin(async move {
            let params = self.path_params(path, sandbox)?;
            let result = self.request::<methods::FsCanonicalize>(&params).await?;
            Ok(self.to_local(result.path))
        })
    }

    fn read_directory<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>> {
        Box::pin(self.list(path, false, sandbox))
    }

    fn read_directory_with_links<'a>(
        &'a self,
        path: &'a PathUri,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, Vec<DirectoryEntry>> {
        Box::pin(self.list(path, true, sandbox))
    }

    fn walk<'a>(
        &'a self,
        path: &'a PathUri,
        options: WalkOptions,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, WalkResult> {
        Box::pin(async move {
            let params = WalkParams { path: self.to_remote(path), options, sandbox: self.remote_sandbox(sandbox)? };
            let mut result = self.request::<methods::FsWalk>(&params).await?;
            if let Some(paths) = self.client.core.connector.paths() {
                result.entries.iter_mut().for_each(|entry| entry.path = paths.to_local(&entry.path));
                result.errors.iter_mut().for_each(|error| error.path = paths.to_local(&error.path));
            }
            Ok(result)
        })
    }

    fn remove<'a>(&'a self, path: &'a PathUri, options: &'a RemoveOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let params = RemoveParams {
                path: self.to_remote(path),
                recursive: options.recursive,
                force: options.force,
                follow_symlinks: options.follow_symlinks,
                sandbox: self.remote_sandbox(options.sandbox.as_ref())?,
            };
            self.change::<methods::FsRemove>(&params).await
        })
    }

    fn copy<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a CopyOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let params = CopyParams {
                source_path: self.to_remote(from),
                destination_path: self.to_remote(to),
                recursive: options.recursive,
                sandbox: self.remote_sandbox(options.sandbox.as_ref())?,
            };
            self.change::<methods::FsCopy>(&params).await
        })
    }

    fn rename<'a>(&'a self, from: &'a PathUri, to: &'a PathUri, options: &'a RenameOptions) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let params = RenameParams {
                source_path: self.to_remote(from),
                destination_path: self.to_remote(to),
                replace: options.replace,
                sandbox: self.remote_sandbox(options.sandbox.as_ref())?,
            };
            self.change::<methods::FsRename>(&params).await
        })
    }

    fn read_link<'a>(&'a self, path: &'a PathUri, sandbox: Option<&'a SandboxContext>) -> FileFuture<'a, OsString> {
        Box::pin(async move {
            let params = self.path_params(path, sandbox)?;
            let link = self.request::<methods::FsReadLink>(&params).await?;
            Ok(match link.raw {
                Some(raw) => OsString::from_vec(raw.0),
                None => OsString::from(link.target),
            })
        })
    }

    fn symlink<'a>(
        &'a self,
        path: &'a PathUri,
        target: OsString,
        sandbox: Option<&'a SandboxContext>,
    ) -> FileFuture<'a, ()> {
        Box::pin(async move {
            let target = match target.into_string() {
                Ok(target) => LinkTarget { target, raw: None },
                Err(target) => LinkTarget {
                    target: target.to_string_lossy().into_owned(),
                    raw: Some(Base64Bytes(target.into_vec())),
                },
            };
            let params = SymlinkParams { path: self.to_remote(path), target, sandbox: self.remote_sandbox(sandbox)? };
            self.change::<methods::FsSymlink>(&params).await
        })
    }
}
