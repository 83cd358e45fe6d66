//! Writing a file of any size. It stands in its place when it is whole, and blocks are on their way while the next are made.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use files::Upload;

use super::blocks::{BlockFuture, Window};
use super::remote::{RemoteFile, WholeFile};
use super::{BLOCK_BYTES, FileSystemError, WriteStreamOptions, local};

/// Blocks on their way from here.
const REMOTE_BLOCKS: usize = 16;
/// Blocks on their way to the disk.
const LOCAL_BLOCKS: usize = 2;
/// Smaller pieces are put together.
const LARGE_PIECE: usize = 128 << 10;

/// Where blocks go.
pub(super) enum Sink {
    Local(Arc<Upload>),
    Remote(Arc<RemoteFile>),
    /// An older server takes a file only as a whole.
    Whole(Box<WholeFile>),
}

/// A file on its way. Dropped before it is [committed](Self::commit), it leaves nothing behind.
pub struct FileWriter {
    sink: Sink,
    options: WriteStreamOptions,
    window: Window<()>,
    pending: BytesMut,
    /// Where `pending` begins.
    at: u64,
    /// Up to where the file goes so far.
    end: u64,
    failure: Option<FileSystemError>,
}

impl FileWriter {
    pub(super) fn new(sink: Sink, options: WriteStreamOptions) -> Self {
        let (window, pending) = (Window::default(), BytesMut::new());
        Self { sink, options, window, pending, at: 0, end: 0, failure: None }
    }

    /// Writes a piece behind the last one. It waits while enough is on its way; what fails may show with a later piece.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), FileSystemError> {
        while !bytes.is_empty() {
            if self.pending.is_empty() && bytes.len() >= LARGE_PIECE {
                self.room_for_one().await?;
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

    /// Leaves out so many bytes, which are zero.
    pub async fn skip(&mut self, bytes: u64) -> Result<(), FileSystemError> {
        let to = self
            .position()
            .checked_add(bytes)
            .ok_or_else(|| FileSystemError::invalid_input("file write offset overflowed"))?;
        self.seek(to).await
    }

    /// Goes on at this place of the file. The file goes at least that far.
    pub async fn seek(&mut self, offset: u64) -> Result<(), FileSystemError> {
        if offset != self.position() {
            self.flush().await?;
            self.at = offset;
        }
        self.end = self.end.max(offset);
        Ok(())
    }

    fn position(&self) -> u64 {
        self.at.saturating_add(self.pending.len() as u64)
    }

    /// Puts the file in its place. After an error everything is as it was before, unless the connection was lost for good
    /// ([`BrokenPipe`](ErrorKind::BrokenPipe)): then nobody knows.
    pub async fn commit(mut self) -> Result<(), FileSystemError> {
        self.flush().await?;
        self.room(0).await?;
        let size = self.options.size.unwrap_or(self.end);
        match self.sink {
            Sink::Local(upload) => local::commit(upload, size, &self.options).await,
            Sink::Remote(file) => file.commit(size, &self.options).await,
            Sink::Whole(whole) => whole.commit(size, &self.options).await,
        }
    }

    /// Gives the file up, and returns when nothing of it is left.
    pub async fn abort(mut self) -> Result<(), FileSystemError> {
        match self.sink {
            Sink::Local(upload) => {
                // What a thread is writing is written; then it has let go.
                let _it_does_not_matter = poll_fn(|cx| self.window.poll_room(0, cx)).await;
                local::discard(upload).await
            }
            Sink::Remote(file) => {
                self.window.clear();
                file.close().await
            }
            Sink::Whole(_) => Ok(()),
        }
    }

    async fn flush(&mut self) -> Result<(), FileSystemError> {
        if self.pending.is_empty() {
            return self.check();
        }
        self.room_for_one().await?;
        let block = self.pending.split().freeze();
        self.send(block).await
    }

    /// Waits until another block can be sent. Waited for before the block is taken: who stops waiting has lost nothing.
    async fn room_for_one(&mut self) -> Result<(), FileSystemError> {
        let most = match self.sink {
            Sink::Local(_) => LOCAL_BLOCKS,
            Sink::Remote(_) => REMOTE_BLOCKS,
            Sink::Whole(_) => 1,
        };
        self.room(most - 1).await
    }

    /// Does not wait.
    async fn send(&mut self, block: Bytes) -> Result<(), FileSystemError> {
        let offset = self.at;
        self.at = offset
            .checked_add(block.len() as u64)
            .ok_or_else(|| FileSystemError::invalid_input("file write offset overflowed"))?;
        self.end = self.end.max(self.at);
        let write: BlockFuture<()> = match &mut self.sink {
            Sink::Local(upload) => Box::pin(local::write_block(Arc::clone(upload), offset, block)),
            Sink::Remote(file) => {
                let file = Arc::clone(file);
                Box::pin(async move { file.write_block(offset, block).await })
            }
            Sink::Whole(whole) => {
                let written = whole.write_block(offset, &block);
                Box::pin(async { written })
            }
        };
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

    async fn room(&mut self, most: usize) -> Result<(), FileSystemError> {
        self.check()?;
        let room = poll_fn(|cx| self.window.poll_room(most, cx)).await;
        // A file in which a block is missing must never be committed.
        self.failure = room.clone().err();
        room
    }

    fn check(&self) -> Result<(), FileSystemError> {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

/// What an older server cannot be sent.
pub(super) fn too_large_for_server(limit: usize) -> FileSystemError {
    FileSystemError::new(
        ErrorKind::Unsupported,
        format!("the server cannot be sent a file piece by piece, and one of more than {limit} bytes not at once"),
    )
}
