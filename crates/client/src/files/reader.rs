//! Reading a file of any size. Some blocks are asked for before the first is there, so that the distance to the file does not count;
//! no more than a few, so that its size does not.

mod plan;

use std::future::poll_fn;
use std::io::ErrorKind;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use files::RegularFile;
use protocol::fs::{ExtentsResult, FileMetadata};

use super::blocks::{BlockFuture, Window};
use super::remote::RemoteFile;
use super::{FileSystemError, local};
use plan::{Plan, Wanted};

/// Blocks on their way at the beginning: most files are short.
const FIRST_BLOCKS: usize = 2;
/// One that is being read while another is being used.
const LOCAL_BLOCKS: usize = 2;

/// Where blocks come from.
pub(super) enum Source {
    Local(Arc<RegularFile>),
    Remote(Arc<RemoteFile>),
}

/// What was read.
pub(super) struct Block {
    pub(super) bytes: Bytes,
    pub(super) eof: bool,
}

impl Source {
    fn read(&self, Wanted { offset, len }: Wanted) -> BlockFuture<(Wanted, Block)> {
        let wanted = Wanted { offset, len };
        match self {
            Self::Local(file) => {
                let block = local::read_block(Arc::clone(file), offset, len);
                Box::pin(async move { Ok((wanted, block.await?)) })
            }
            Self::Remote(file) => {
                let file = Arc::clone(file);
                Box::pin(async move { Ok((wanted, file.read_block(offset, len).await?)) })
            }
        }
    }

    fn extents(&self, offset: u64) -> BlockFuture<ExtentsResult> {
        match self {
            Self::Local(file) => Box::pin(local::extents(Arc::clone(file), offset)),
            Self::Remote(file) => {
                let file = Arc::clone(file);
                Box::pin(async move { file.extents(offset).await })
            }
        }
    }

    fn most_blocks(&self, plan: &Plan) -> usize {
        match self {
            Self::Local(_) => LOCAL_BLOCKS,
            Self::Remote(_) => plan.most_blocks(),
        }
    }
}

/// A file that is read from its beginning to its end. Dropping it closes the file.
pub struct FileReader(Reading);

impl FileReader {
    pub(super) fn new(source: Source, metadata: Option<FileMetadata>) -> Self {
        let plan = Plan::whole(metadata.as_ref().map(|metadata| metadata.size));
        Self(Reading::new(source, metadata, plan))
    }

    /// The next piece, which is never empty; none after the last. Cancel safe.
    ///
    /// A file that becomes shorter meanwhile ends there.
    pub async fn next(&mut self) -> Option<Result<Bytes, FileSystemError>> {
        Some(self.0.next().await?.map(|chunk| chunk.bytes))
    }

    /// What was known of the file when it was opened; an older server does not say.
    pub fn metadata(&self) -> Option<&FileMetadata> {
        self.0.metadata.as_ref()
    }
}

/// A piece of a file, and where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileChunk {
    /// How much of the file comes before it.
    pub offset: u64,
    /// The piece.
    pub bytes: Bytes,
}

/// A file that is read without its holes. Dropping it closes the file.
pub struct ExtentReader(Reading);

impl ExtentReader {
    /// `can_tell`: the server knows extents.
    pub(super) fn new(source: Source, metadata: Option<FileMetadata>, can_tell: bool) -> Self {
        // A file that is made up while it is read says that it is empty.
        let is_plain = metadata.as_ref().is_some_and(|metadata| metadata.size > 0);
        let plan = match &metadata {
            Some(metadata) if can_tell && is_plain => Plan::extents(metadata.size),
            _ => Plan::whole(metadata.as_ref().map(|metadata| metadata.size)),
        };
        Self(Reading::new(source, metadata, plan))
    }

    /// The next piece, which is never empty; none after the last. What lies between two pieces is zero. Cancel safe.
    ///
    /// A file that becomes shorter meanwhile ends there.
    pub async fn next(&mut self) -> Option<Result<FileChunk, FileSystemError>> {
        self.0.next().await
    }

    /// How long the file is, as far as that is known; after the last piece it is.
    pub fn size(&self) -> u64 {
        self.0.plan.size()
    }

    /// What was known of the file when it was opened; an older server does not say.
    pub fn metadata(&self) -> Option<&FileMetadata> {
        self.0.metadata.as_ref()
    }
}

struct Reading {
    /// None once there is nothing more to read: then the file is closed.
    source: Option<Source>,
    metadata: Option<FileMetadata>,
    plan: Plan,
    window: Window<(Wanted, Block)>,
    /// How many blocks may be under way by now.
    most: usize,
    extents: Option<BlockFuture<ExtentsResult>>,
}

impl Reading {
    fn new(source: Source, metadata: Option<FileMetadata>, plan: Plan) -> Self {
        Self { source: Some(source), metadata, plan, window: Window::default(), most: FIRST_BLOCKS, extents: None }
    }

    async fn next(&mut self) -> Option<Result<FileChunk, FileSystemError>> {
        let next = poll_fn(|cx| self.poll_next(cx)).await;
        if !matches!(next, Some(Ok(_))) {
            self.end();
        }
        next
    }

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
                Poll::Ready(Some(Ok((wanted, block)))) => {
                    let taken = self.take(wanted, block);
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

    fn fill(&mut self, cx: &mut Context<'_>) {
        let Some(source) = &self.source else { return };
        while self.window.len() < self.most
            && let Some(wanted) = self.plan.next(self.window.is_empty())
        {
            self.window.begin(source.read(wanted), cx);
        }
    }

    /// The next page of extents, when all of those before have been read.
    fn poll_extents(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(), FileSystemError>>> {
        let (Some(source), Some(from)) = (&self.source, self.plan.page_from()) else { return Poll::Ready(None) };
        let asked = self.extents.get_or_insert_with(|| source.extents(from));
        let page = ready!(asked.as_mut().poll(cx));
        self.extents = None;
        Poll::Ready(Some(page.and_then(|page| self.plan.take_page(page))))
    }

    fn take(&mut self, wanted: Wanted, block: Block) -> Result<Option<FileChunk>, FileSystemError> {
        let Block { bytes, eof } = block;
        let count = bytes.len();
        if count > wanted.len {
            return Err(unexpected("a block has more bytes than were asked for"));
        }
        if count == 0 && !eof {
            return Err(unexpected("an empty block came before the end of the file"));
        }
        let end = wanted.offset + count as u64;
        if count == wanted.len {
            let most = self.source.as_ref().map_or(0, |source| source.most_blocks(&self.plan));
            self.most = (self.most + 1).min(most);
            self.plan.reached(end);
        } else if eof {
            self.plan.ended(end);
            self.end();
        } else {
            // What was asked for behind it is in the wrong place now.
            self.window.clear();
            self.plan.go_back(end)?;
        }
        Ok((count > 0).then_some(FileChunk { offset: wanted.offset, bytes }))
    }
}

fn unexpected(text: &str) -> FileSystemError {
    FileSystemError::new(ErrorKind::InvalidData, format!("exec-server protocol error: {text}"))
}
