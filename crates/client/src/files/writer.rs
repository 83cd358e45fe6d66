//! Writing a file of any size in blocks. Some blocks are in flight while the caller produces the next block. The file
//! appears at its path when it is committed.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use files::Upload;

use super::blocks::{BlockFuture, BlockWindow};
use super::remote::{RemoteFile, WholeFile};
use super::{BLOCK_BYTES, FileSystemError, WriteStreamOptions, local};

/// How many blocks of a remote file may be in flight.
const REMOTE_BLOCKS: usize = 16;
/// How many blocks of a local file may be written at the same time.
const LOCAL_BLOCKS: usize = 2;
/// A piece of at least this many bytes is sent without being copied, unless smaller pieces wait before it. Smaller
/// pieces are collected into a block.
const LARGE_PIECE_BYTES: usize = 128 << 10;

/// The file that blocks are written to.
pub(super) enum BlockSink {
    Local(Arc<Upload>),
    Remote(Arc<RemoteFile>),
    /// For an old server, which cannot take a file in blocks.
    Whole(Box<WholeFile>),
}

/// Writes a file. If the value is dropped before [`commit`](Self::commit), nothing is left of the new file.
pub struct FileWriter {
    sink: BlockSink,
    options: WriteStreamOptions,
    /// The blocks that are in flight.
    window: BlockWindow<()>,
    /// Small pieces that are not sent yet.
    pending: BytesMut,
    /// The offset of `pending` in the file.
    at: u64,
    /// The size of the file so far.
    end: u64,
    /// The first error of a block. Every later attempt to send a block or to commit fails with it.
    failure: Option<FileSystemError>,
}

impl FileWriter {
    pub(super) fn new(sink: BlockSink, options: WriteStreamOptions) -> Self {
        let (window, pending) = (BlockWindow::default(), BytesMut::new());
        Self { sink, options, window, pending, at: 0, end: 0, failure: None }
    }

    /// Writes the next piece of the file. Waits while too many blocks are in flight. An error may belong to an earlier piece.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), FileSystemError> {
        while !bytes.is_empty() {
            if self.pending.is_empty() && bytes.len() >= LARGE_PIECE_BYTES {
                self.wait_for_room().await?;
                let block = bytes.split_to(bytes.len().min(BLOCK_BYTES));
                self.send(block).await?;
            } else {
                let room = BLOCK_BYTES - self.pending.len();
                self.pending.extend_from_slice(&bytes.split_to(bytes.len().min(room)));
                if self.pending.len() == BLOCK_BYTES {
                    self.flush().await?;
                }
            }
        }
        Ok(())
    }

    /// Leaves a hole of this many bytes, which read as zero.
    pub async fn skip(&mut self, bytes: u64) -> Result<(), FileSystemError> {
        let to = self
            .position()
            .checked_add(bytes)
            .ok_or_else(|| FileSystemError::invalid_input("file write offset overflowed"))?;
        self.seek(to).await
    }

    /// Continues at this offset. The file becomes at least that long.
    pub async fn seek(&mut self, offset: u64) -> Result<(), FileSystemError> {
        if offset != self.position() {
            self.flush().await?;
            self.at = offset;
        }
        self.end = self.end.max(offset);
        Ok(())
    }

    /// The offset in the file at which the next piece begins.
    fn position(&self) -> u64 {
        self.at.saturating_add(self.pending.len() as u64)
    }

    /// Makes the file appear at its path. After an error the path is as it was before, with three exceptions. After
    /// [`BrokenPipe`](ErrorKind::BrokenPipe) the result is not known. If the option `sync` is set and the disk fails,
    /// the new file may be in place. A server that cannot take a file in blocks may have written a part of the file.
    pub async fn commit(mut self) -> Result<(), FileSystemError> {
        self.flush().await?;
        self.wait_for_blocks(0).await?;
        let size = self.options.size.unwrap_or(self.end);
        match self.sink {
            BlockSink::Local(upload) => local::commit(upload, size, &self.options).await,
            BlockSink::Remote(file) => file.commit(size, &self.options).await,
            BlockSink::Whole(whole) => whole.commit(size, &self.options).await,
        }
    }

    /// Abandons the file. Returns when the partial file is removed.
    pub async fn abort(mut self) -> Result<(), FileSystemError> {
        match self.sink {
            BlockSink::Local(upload) => {
                // The writing threads hold the upload until they have finished, so this waits for them. Their errors
                // do not matter any more.
                let _ignored_error = poll_fn(|cx| self.window.poll_down_to(0, cx)).await;
                local::discard(upload).await
            }
            BlockSink::Remote(file) => {
                self.window.clear();
                file.close().await
            }
            BlockSink::Whole(_) => Ok(()),
        }
    }

    /// Begins to send the pending pieces as one block.
    async fn flush(&mut self) -> Result<(), FileSystemError> {
        if self.pending.is_empty() {
            return self.check();
        }
        self.wait_for_room().await?;
        let block = self.pending.split().freeze();
        self.send(block).await
    }

    /// Waits until another block can be sent. `flush` takes the block out of `pending` only after that, so `pending`
    /// stays complete if the future of `flush` is dropped while it waits.
    async fn wait_for_room(&mut self) -> Result<(), FileSystemError> {
        let most = match self.sink {
            BlockSink::Local(_) => LOCAL_BLOCKS,
            BlockSink::Remote(_) => REMOTE_BLOCKS,
            BlockSink::Whole(_) => 1,
        };
        self.wait_for_blocks(most - 1).await
    }

    /// Begins to send a block, without waiting for the answer.
    async fn send(&mut self, block: Bytes) -> Result<(), FileSystemError> {
        let offset = self.at;
        self.at = offset
            .checked_add(block.len() as u64)
            .ok_or_else(|| FileSystemError::invalid_input("file write offset overflowed"))?;
        self.end = self.end.max(self.at);
        let write: BlockFuture<()> = match &mut self.sink {
            BlockSink::Local(upload) => Box::pin(local::write_block(Arc::clone(upload), offset, block)),
            BlockSink::Remote(file) => {
                let file = Arc::clone(file);
                Box::pin(async move { file.write_block(offset, block).await })
            }
            BlockSink::Whole(whole) => {
                let written = whole.write_block(offset, &block);
                Box::pin(async { written })
            }
        };
        // `poll_fn` gives access to the context and is ready at once.
        let mut write = Some(write);
        poll_fn(|cx| {
            if let Some(write) = write.take() {
                self.window.begin(write, cx);
            }
            Poll::Ready(())
        })
        .await;
        Ok(())
    }

    /// Waits until at most `most` blocks are in flight.
    async fn wait_for_blocks(&mut self, most: usize) -> Result<(), FileSystemError> {
        self.check()?;
        let waited = poll_fn(|cx| self.window.poll_down_to(most, cx)).await;
        // The failure is remembered, because a file in which a block is missing must never be committed.
        self.failure = waited.clone().err();
        waited
    }

    /// Fails if an earlier block has failed.
    fn check(&self) -> Result<(), FileSystemError> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// The error for a file that is too large for a server that cannot take a file in blocks.
pub(super) fn too_large_for_server(limit: usize) -> FileSystemError {
    FileSystemError::new(
        ErrorKind::Unsupported,
        format!(
            "the server cannot take a file in pieces, and this one is larger than the {limit} bytes that fit into one message"
        ),
    )
}
