//! A file that the server has opened for this client, or an upload: a new file that appears at its path when it is
//! committed. Requests name both by a handle id, which the client chooses. Open files and uploads belong to the
//! session (the server's state of this client), which outlives a lost connection. So requests about them are repeated
//! over the next connection.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf as _, Bytes, BytesMut};
use protocol::fs::{
    CloseParams, CommitParams, ExtentsParams, ExtentsResult, HandleResult, ReadBlockParams, ReadBlockResult,
    decode_block_result, encode_write_block,
};
use protocol::{ErrorCode, Method, RequestId, TypedMethod, encode_request, methods};

use super::super::reader::Block;
use super::super::{FileSystemError, WriteStreamOptions};
use crate::client_core::{CallOptions, ClientHandle};
use crate::error::ExecServerError;
use crate::file_calls::FileLimit;
use crate::jobs::BackgroundJob;
use crate::rpc::{CallError, CallSlot};

/// Whether a block that a lost connection did not carry can be read or written again in smaller parts. It can,
/// because each part has its own offset.
const BLOCKS_CAN_BE_DIVIDED: bool = true;

/// An open file or an upload. Dropping the value starts a job that closes the file or cancels the upload.
pub(crate) struct RemoteFile {
    client: Arc<ClientHandle>,
    /// The handle id.
    id: String,
    /// The server does not have the file open, so dropping this value need not close it.
    is_closed: AtomicBool,
}

impl RemoteFile {
    /// Opens a file or begins an upload. If the connection is lost before the answer, the file is opened again with another handle id, and
    /// the first handle is closed.
    pub(super) async fn open<M: TypedMethod<Result = HandleResult>>(
        client: &Arc<ClientHandle>,
        mut params: impl FnMut(String) -> M::Params,
    ) -> Result<(Arc<Self>, HandleResult), ExecServerError> {
        let core = &client.core;
        loop {
            // Closing the file may need a background job.
            core.wait_for_room_for_job().await?;
            let mut permit = core.file_calls.acquire(FileLimit::Applies).await;
            let (generation, rpc) = core.rpc(core.options.when_recovering).await?;
            let id = uuid::Uuid::new_v4().simple().to_string();
            let params = params(id.clone());
            // If the caller drops the future from here on, dropping this value closes the handle.
            let file = Arc::new(Self { client: Arc::clone(client), id, is_closed: AtomicBool::new(false) });
            match permit.run(rpc.call(M::METHOD.name(), &params, CallSlot::Ordinary)).await {
                Ok(result) => {
                    permit.note_answer();
                    return Ok((file, result));
                }
                Err(CallError::Failed(error)) => {
                    // If the server refused the request, it has opened nothing.
                    file.is_closed.store(matches!(error, ExecServerError::Server { .. }), Ordering::Relaxed);
                    return Err(error);
                }
                Err(CallError::NotSent) => file.is_closed.store(true, Ordering::Relaxed),
                Err(CallError::Lost) => permit.note_connection_lost(),
            }
            drop((file, permit));
            // The next attempt needs another connection.
            core.wait_while_current(generation).await;
        }
    }

    /// Reads a block. If connections break too early to carry the whole block, reads it in parts.
    pub(crate) async fn read_block(&self, offset: u64, len: usize) -> Result<Block, FileSystemError> {
        // The limit for writes holds for reads too: it is the number of bytes that a connection can probably carry.
        let write_size = &self.client.core.write_size;
        let mut read = BytesMut::new();
        loop {
            let wanted = write_size.lock().bytes(BLOCKS_CAN_BE_DIVIDED).min(len - read.len());
            let Some(part) = self.read_part(offset + read.len() as u64, wanted).await? else {
                write_size.lock().note_connection_lost();
                continue;
            };
            write_size.lock().note_carried(part.bytes.len());
            let is_last = part.eof || part.bytes.len() < wanted || read.len() + part.bytes.len() >= len;
            if is_last && read.is_empty() {
                return Ok(part);
            }
            read.extend_from_slice(&part.bytes);
            if is_last {
                return Ok(Block { bytes: read.freeze(), eof: part.eof });
            }
        }
    }

    /// Reads a part of a block. Returns `None` if the connection was lost before the answer came.
    async fn read_part(&self, offset: u64, len: usize) -> Result<Option<Block>, FileSystemError> {
        let params = ReadBlockParams { handle_id: self.id.clone(), offset, len: len as u64 };
        let encode = |id: &RequestId| encode_request(id, Method::FsReadBlock.name(), &params);
        let Some(result) = self.call_until_lost(encode).await? else { return Ok(None) };
        // An answer in the usual form has a fast decoder.
        if let Some((bytes, eof)) = decode_block_result(&result) {
            return Ok(Some(Block { bytes: bytes.into(), eof }));
        }
        let result: ReadBlockResult =
            serde_json::from_slice(&result).map_err(|error| self.file_error(error.into()))?;
        Ok(Some(Block { bytes: result.chunk.0.into(), eof: result.eof }))
    }

    pub(crate) async fn extents(&self, offset: u64) -> Result<ExtentsResult, FileSystemError> {
        self.call::<methods::FsExtents>(&ExtentsParams { handle_id: self.id.clone(), offset }).await
    }

    /// Writes a block. If connections break too early to carry the whole block, writes it in parts. Each part has its
    /// offset, so a part can be written twice.
    pub(crate) async fn write_block(&self, offset: u64, block: Bytes) -> Result<(), FileSystemError> {
        let write_size = &self.client.core.write_size;
        let (mut offset, mut rest) = (offset, block);
        loop {
            let count = write_size.lock().bytes(BLOCKS_CAN_BE_DIVIDED).min(rest.len());
            let part = rest.slice(..count);
            let written = self.call_until_lost(|id| encode_write_block(id, &self.id, offset, &part)).await?;
            if written.is_none() {
                write_size.lock().note_connection_lost();
                continue;
            }
            write_size.lock().note_carried(count);
            offset += count as u64;
            rest.advance(count);
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Sends a request and waits for its answer. Returns `None` if the connection was lost before the answer came.
    async fn call_until_lost(
        &self,
        encode: impl Fn(&RequestId) -> Vec<u8>,
    ) -> Result<Option<Bytes>, FileSystemError> {
        let answer = self.client.core.call_encoded_until_lost(CallOptions::FILE_REQUEST, encode).await;
        answer.map_err(|error| self.file_error(error))
    }

    pub(crate) async fn commit(&self, size: u64, options: &WriteStreamOptions) -> Result<(), FileSystemError> {
        let params = CommitParams {
            handle_id: self.id.clone(),
            size: Some(size),
            mode: options.mode,
            mode_if_new: options.mode_if_new,
            mtime: options.mtime,
            sync: options.sync,
        };
        // Callers that ask for metadata at the same time share one request. After the commit, they must not share a request that was sent
        // before it or during it.
        let _changing_files = self.client.core.metadata_flights.mark_files_changing();
        self.call::<methods::FsCommit>(&params).await.map(drop)
    }

    /// Closes the file, or cancels the upload, and waits for the answer.
    pub(crate) async fn close(&self) -> Result<(), FileSystemError> {
        self.call::<methods::FsClose>(&CloseParams { handle_id: self.id.clone() }).await?;
        self.is_closed.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn call<M: TypedMethod>(&self, params: &M::Params) -> Result<M::Result, FileSystemError> {
        let answer = self.client.core.call::<M>(params, CallOptions::FILE_REQUEST).await;
        answer.map_err(|error| self.file_error(error))
    }

    /// The error of an operation on this file.
    fn file_error(&self, error: ExecServerError) -> FileSystemError {
        match error {
            // The server does not know the handle id. The file itself may exist: some servers close all files of a
            // connection that is lost.
            ExecServerError::Server { code, message, data: None } if code == ErrorCode::NotFound.number() => {
                let text = format!("exec-server no longer has the file open: {message}");
                FileSystemError::new(ErrorKind::BrokenPipe, text)
            }
            error => super::local_error(&self.client, error),
        }
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if !*self.is_closed.get_mut() {
            self.client.core.inbound.add_job(BackgroundJob::CloseFile(std::mem::take(&mut self.id)));
        }
    }
}
