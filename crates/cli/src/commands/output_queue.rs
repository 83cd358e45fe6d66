//! Writes output to our stdout and stderr in a separate thread. A slow reader of our output delays that thread and,
//! because the queue is short, the process that writes the output, but never the connection.

use std::io;

use bytes::Bytes;
use client::Stream;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::stdio::{stderr, stdout};
use tokio::sync::{mpsc, oneshot};

/// Pieces of output that may wait for the thread. A piece is the output of one event, up to 256 KiB, or its JSON.
const QUEUED_PIECES: usize = 4;

/// Output that waits for the thread that writes it.
pub(crate) struct OutputQueue {
    pieces: mpsc::Sender<(Stream, Bytes)>,
}

/// Resolves when the thread ends: when [`OutputQueue`] was dropped and everything is written, or at the first write
/// that fails.
pub(crate) type OutputWritten = oneshot::Receiver<io::Result<()>>;

impl OutputQueue {
    /// Starts the thread, and returns the queue and a future that resolves when the thread ends.
    pub(crate) fn start() -> io::Result<(Self, OutputWritten)> {
        let (pieces, to_write) = mpsc::channel(QUEUED_PIECES);
        let (end, written) = oneshot::channel();
        // The thread is not joined: it may block in a write for ever.
        std::thread::Builder::new().name("stdout".to_owned()).spawn(move || {
            // The command, which would receive the result, may have ended.
            let _ignored = end.send(write_all(to_write));
        })?;
        Ok((Self { pieces }, written))
    }

    /// Waits for room for one piece. `None` after a write has failed.
    pub(crate) async fn reserve(&self) -> Option<OutputPermit<'_>> {
        self.pieces.reserve().await.ok().map(OutputPermit)
    }

    /// Whether the queue is full, which happens if the reader of our output does not read. Permits count as pieces.
    pub(crate) fn is_stuck(&self) -> bool {
        self.pieces.capacity() == 0
    }
}

/// Room for one piece in the queue.
pub(crate) struct OutputPermit<'a>(mpsc::Permit<'a, (Stream, Bytes)>);

impl OutputPermit<'_> {
    pub(crate) fn send(self, stream: Stream, piece: Bytes) {
        self.0.send((stream, piece));
    }
}

fn write_all(mut pieces: mpsc::Receiver<(Stream, Bytes)>) -> io::Result<()> {
    while let Some((stream, piece)) = pieces.blocking_recv() {
        write_piece(if stream == Stream::Stderr { stderr() } else { stdout() }, &piece)?;
    }
    Ok(())
}

fn write_piece(fd: BorrowedFd<'_>, mut piece: &[u8]) -> io::Result<()> {
    while !piece.is_empty() {
        match rustix::io::write(fd, piece) {
            Ok(count) => piece = &piece[count..],
            Err(Errno::INTR) => {}
            // Another process that shares the file with us has made it non-blocking.
            Err(Errno::AGAIN) => match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
