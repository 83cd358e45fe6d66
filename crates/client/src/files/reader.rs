//! Reading a file of any size in blocks. Several blocks are requested before the first has come, so that a long round trip does not slow
//! the reading down. Memory does not grow with the size of the file.

mod plan;

use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use files::RegularFile;
use protocol::fs::{ExtentsResult, FileMetadata};

use super::blocks::{BlockFuture, BlockWindow};
use super::remote::RemoteFile;
use super::{FileSystemError, local};
use plan::{BlockRange, ReadPlan};

/// How many blocks are requested at first. The number is small because most files are short; it grows with each full block.
const FIRST_BLOCKS: usize = 2;
/// How many blocks of a local file are requested: one block is read while the caller uses the other.
const LOCAL_BLOCKS: usize = 2;

/// The open file that blocks are read from.
pub(super) enum BlockSource {
    Local(Arc<RegularFile>),
    Remote(Arc<RemoteFile>),
}

/// The answer to a read of one block. `eof` says that the file ends after these bytes.
pub(super) struct Block {
    pub(super) bytes: Bytes,
    pub(super) eof: bool,
}

impl BlockSource {
    /// Reads one block. Returns its range too, because the caller has several blocks in flight.
    fn read(&self, BlockRange { offset, len }: BlockRange) -> BlockFuture<(BlockRange, Block)> {
        let range = BlockRange { offset, len };
        match self {
            Self::Local(file) => {
                let block = local::read_block(Arc::clone(file), offset, len);
                Box::pin(async move { Ok((range, block.await?)) })
            }
            Self::Remote(file) => {
                let file = Arc::clone(file);
                Box::pin(async move { Ok((range, file.read_block(offset, len).await?)) })
            }
        }
    }

    /// The page of extents (parts of the file that are not holes) that begins at `offset`.
    fn extents(&self, offset: u64) -> BlockFuture<ExtentsResult> {
        match self {
            Self::Local(file) => Box::pin(local::extents(Arc::clone(file), offset)),
            Self::Remote(file) => {
                let file = Arc::clone(file);
                Box::pin(async move { file.extents(offset).await })
            }
        }
    }

    /// How many blocks may be in flight at the same time.
    fn most_blocks(&self, plan: &ReadPlan) -> usize {
        match self {
            Self::Local(_) => LOCAL_BLOCKS,
            Self::Remote(_) => plan.most_blocks(),
        }
    }
}

/// Reads a file from its beginning to its end. Dropping the value closes the file.
pub struct FileReader(BlockReading);

impl FileReader {
    pub(super) fn new(source: BlockSource, metadata: Option<FileMetadata>) -> Self {
        let plan = ReadPlan::whole(metadata.as_ref().map(|metadata| metadata.size));
        Self(BlockReading::new(source, metadata, plan))
    }

    /// Reads the next piece, which is never empty. Returns `None` after the last piece. Cancel safe.
    ///
    /// If the file becomes shorter while it is read, the reader ends at the new end of the file.
    pub async fn next(&mut self) -> Option<Result<Bytes, FileSystemError>> {
        Some(self.0.next().await?.map(|chunk| chunk.bytes))
    }

    /// The metadata of the file when it was opened. `None` if the server is old and does not send it.
    pub fn metadata(&self) -> Option<&FileMetadata> {
        self.0.metadata.as_ref()
    }
}

/// A piece of a file, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChunk {
    /// The position of the first byte in the file, in bytes.
    pub offset: u64,
    /// The contents of the piece. Never empty.
    pub bytes: Bytes,
}

/// Reads a file without its holes. Dropping the value closes the file.
pub struct ExtentReader(BlockReading);

impl ExtentReader {
    /// `has_extents` says whether the server can tell which parts of the file are holes. If it cannot, the whole file is read.
    pub(super) fn new(source: BlockSource, metadata: Option<FileMetadata>, has_extents: bool) -> Self {
        // A file that the kernel generates, for example in /proc, reports the size 0 and still has data. So a file of
        // the size 0 is read without asking for its extents.
        let has_size = metadata.as_ref().is_some_and(|metadata| metadata.size > 0);
        let plan = match &metadata {
            Some(metadata) if has_extents && has_size => ReadPlan::extents(metadata.size),
            _ => ReadPlan::whole(metadata.as_ref().map(|metadata| metadata.size)),
        };
        Self(BlockReading::new(source, metadata, plan))
    }

    /// Reads the next piece, which is never empty. Returns `None` after the last piece. The bytes between two pieces are zero. Cancel safe.
    ///
    /// If the file becomes shorter while it is read, the reader ends at the new end of the file.
    pub async fn next(&mut self) -> Option<Result<FileChunk, FileSystemError>> {
        self.0.next().await
    }

    /// The size of the file in bytes, as far as it is known. It is final after the last piece.
    pub fn size(&self) -> u64 {
        self.0.plan.size()
    }

    /// The metadata of the file when it was opened. `None` if the server is old and does not send it.
    pub fn metadata(&self) -> Option<&FileMetadata> {
        self.0.metadata.as_ref()
    }
}

/// The state of a reader: the plan of what to request next, and the requests in flight.
struct BlockReading {
    /// `None` after the last block and after an error. Dropping the source closes the file.
    source: Option<BlockSource>,
    metadata: Option<FileMetadata>,
    plan: ReadPlan,
    /// The blocks that were requested and not taken yet.
    window: BlockWindow<(BlockRange, Block)>,
    /// How many blocks may be in flight now.
    most: usize,
    /// The request for a page of extents that is in flight.
    extents: Option<BlockFuture<ExtentsResult>>,
}

impl BlockReading {
    fn new(source: BlockSource, metadata: Option<FileMetadata>, plan: ReadPlan) -> Self {
        Self {
            source: Some(source),
            metadata,
            plan,
            window: BlockWindow::default(),
            most: FIRST_BLOCKS,
            extents: None,
        }
    }

    async fn next(&mut self) -> Option<Result<FileChunk, FileSystemError>> {
        let next = poll_fn(|cx| self.poll_next(cx)).await;
        if !matches!(next, Some(Ok(_))) {
            self.end();
        }
        next
    }

    /// Closes the file. From now on `next` returns `None`.
    fn end(&mut self) {
        self.window.clear();
        self.extents = None;
        self.source = None;
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<FileChunk, FileSystemError>>> {
        loop {
            if self.source.is_none() {
                return Poll::Ready(None);
            }
            self.fill(cx);
            match self.window.poll_first(cx) {
                Poll::Ready(Some(Ok((range, block)))) => {
                    let taken = self.take(range, block);
                    self.fill(cx);
                    match taken {
                        Ok(Some(chunk)) => return Poll::Ready(Some(Ok(chunk))),
                        Ok(None) => {}
                        Err(error) => return Poll::Ready(Some(Err(error))),
                    }
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => match ready!(self.poll_extents(cx)) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                    None => return Poll::Ready(None),
                },
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Requests blocks until the window is full or the plan has no block to request now.
    fn fill(&mut self, cx: &mut Context<'_>) {
        let Some(source) = &self.source else { return };
        while self.window.len() < self.most
            && let Some(range) = self.plan.next(self.window.is_empty())
        {
            self.window.begin(source.read(range), cx);
        }
    }

    /// Waits for the next page of extents and adds it to the plan. Called when all extents of the page before were
    /// read. Returns `None` if there is no further page.
    fn poll_extents(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(), FileSystemError>>> {
        let (Some(source), Some(from)) = (&self.source, self.plan.page_from()) else { return Poll::Ready(None) };
        let asked = self.extents.get_or_insert_with(|| source.extents(from));
        let page = ready!(asked.as_mut().poll(cx));
        self.extents = None;
        Poll::Ready(Some(page.and_then(|page| self.plan.take_page(page))))
    }

    /// Checks the block that was read for `range`, and tells the plan how far the file was read. Returns `None` if
    /// the block is empty.
    fn take(&mut self, range: BlockRange, block: Block) -> Result<Option<FileChunk>, FileSystemError> {
        let Block { bytes, eof } = block;
        let count = bytes.len();
        if count > range.len {
            return Err(unexpected("a block has more bytes than were asked for"));
        }
        if count == 0 && !eof {
            return Err(unexpected("an empty block came before the end of the file"));
        }
        let end = range.offset + count as u64;
        if count == range.len {
            let most = self.source.as_ref().map_or(0, |source| source.most_blocks(&self.plan));
            self.most = (self.most + 1).min(most);
            self.plan.note_full_block(end);
        } else if eof {
            self.plan.note_end_of_file(end);
            self.end();
        } else {
            // Bytes are missing between this block and the blocks that were requested after it. So these blocks are
            // dropped, and the plan requests them again.
            self.window.clear();
            self.plan.go_back_to(end)?;
        }
        Ok((count > 0).then_some(FileChunk { offset: range.offset, bytes }))
    }
}

/// The error for an answer that breaks the protocol.
fn unexpected(text: &str) -> FileSystemError {
    FileSystemError::new(ErrorKind::InvalidData, format!("exec-server protocol error: {text}"))
}
