//! Writing a file to a server that cannot take a file in blocks. The file is collected in memory and sent in one
//! message at the end.

use std::io::ErrorKind;

use protocol::{PathUri, SandboxContext};

use super::super::writer::too_large_for_server;
use super::super::{ExecutorFileSystem, FileOptions, FileSystemError, NewMetadata, WriteStreamOptions};
use super::RemoteFileSystem;

/// Largest file that is sent in one message. In base64 it fits into a message of 64 MiB.
const WHOLE_FILE_BYTES: usize = 32 << 20;

/// A file that is collected in memory. Nothing is sent before `commit`.
pub(crate) struct WholeFile {
    pub(super) server: RemoteFileSystem,
    pub(super) path: PathUri,
    pub(super) sandbox: Option<SandboxContext>,
    pub(super) bytes: Vec<u8>,
}

impl WholeFile {
    pub(crate) fn write_block(&mut self, offset: u64, block: &[u8]) -> Result<(), FileSystemError> {
        let end = usize::try_from(offset).ok().and_then(|offset| offset.checked_add(block.len()));
        let end = end.filter(|end| *end <= WHOLE_FILE_BYTES).ok_or_else(|| self.too_large())?;
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[end - block.len()..end].copy_from_slice(block);
        Ok(())
    }

    /// Sends the file, which the server writes in place: a failure may leave the file half written. `mode` and
    /// `mtime` are set only if the server can do that. `mode_if_new` and `sync` are ignored.
    pub(crate) async fn commit(mut self, size: u64, options: &WriteStreamOptions) -> Result<(), FileSystemError> {
        let size = usize::try_from(size).ok().filter(|size| *size <= WHOLE_FILE_BYTES);
        self.bytes.resize(size.ok_or_else(|| self.too_large())?, 0);
        let file_options = FileOptions { follow_symlinks: options.follow_symlinks, sandbox: self.sandbox.clone() };
        if !options.replace && self.server.metadata(&self.path, &file_options).await.is_ok() {
            return Err(FileSystemError::new(ErrorKind::AlreadyExists, "File exists").about(&self.path));
        }
        self.server.write_file(&self.path, self.bytes.into(), &file_options).await?;
        let new = NewMetadata {
            mode: options.mode,
            mtime: options.mtime,
            follow_symlinks: options.follow_symlinks,
            sandbox: self.sandbox.clone(),
        };
        let changes_metadata = new.mode.is_some() || new.mtime.is_some();
        if changes_metadata && self.server.capabilities().await?.fs_set_metadata {
            self.server.set_metadata(&self.path, &new).await?;
        }
        Ok(())
    }

    fn too_large(&self) -> FileSystemError {
        too_large_for_server(WHOLE_FILE_BYTES).about(&self.path)
    }
}
