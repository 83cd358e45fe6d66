//! Our stdout and stderr, written by a thread of its own: a slow reader holds up that thread and, by way of a short queue, the process,
//! but never the connection.

use std::io;

use bytes::Bytes;
use client::Stream;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::stdio::{stderr, stdout};
use tokio::sync::{mpsc, oneshot};

/// Pieces have up to 256 KiB.
const QUEUED_PIECES: usize = 4;

/// Takes what is to be written.
pub(crate) struct Output {
    pieces: mpsc::Sender<(Stream, Bytes)>,
}

/// Says when all was written after [`Output`] was dropped, or, before that, why nothing more can be.
pub(crate) type Written = oneshot::Receiver<io::Result<()>>;

impl Output {
    /// Begins to write.
    pub(crate) fn start() -> io::Result<(Self, Written)> {
        let (pieces, to_write) = mpsc::channel(QUEUED_PIECES);
        let (tell, written) = oneshot::channel();
        // Not waited for: it may hang in a write for ever.
        std::thread::Builder::new().name("stdout".to_owned()).spawn(move || {
            let _nobody_waits = tell.send(write_all(to_write));
        })?;
        Ok((Self { pieces }, written))
    }

    /// Waits for room. None if nothing can be written any more.
    pub(crate) async fn room(&self) -> Option<Room<'_>> {
        self.pieces.reserve().await.ok().map(Room)
    }

    /// Whether whoever should read our output does not.
    pub(crate) fn is_stuck(&self) -> bool {
        self.pieces.capacity() == 0
    }
}

/// Room for one piece.
pub(crate) struct Room<'a>(mpsc::Permit<'a, (Stream, Bytes)>);

impl Room<'_> {
    pub(crate) fn fill(self, stream: Stream, piece: Bytes) {
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
            // Somebody who shares the file with us has made it non-blocking.
            Err(Errno::AGAIN) => match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            },
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
