//! Our stdin, read by a thread of its own: there is no other way to wait for every kind of file, and a wish to leave must be seen even while
//! nothing can be passed on.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp};
use tokio::sync::{mpsc, oneshot};

use super::escape::{Escapes, Wish};

/// What a pipe holds.
const READ_BYTES: usize = 64 * 1024;
/// Read ahead from files and pipes, enough to keep a write busy.
const AHEAD: usize = 8;
/// Read ahead from a terminal, where a piece is a key: a wish to leave may come behind many keys that nobody takes.
const KEYS_AHEAD: usize = 4096;
/// A message of this size is worth its round trip, and does not hold up those behind it.
const PIECE_BYTES: usize = 256 * 1024;
/// How often a job in the background looks whether it may read its terminal.
const IN_BACKGROUND: Duration = Duration::from_millis(200);

/// What comes in.
pub(crate) struct Stdin {
    pub(crate) input: Input,
    /// A wish that was typed; dropped at the end of the stdin.
    pub(crate) wish: oneshot::Receiver<Wish>,
}

/// The bytes that are to be passed on.
pub(crate) struct Input {
    pieces: mpsc::Receiver<Piece>,
    /// What came behind the bytes that were handed out last.
    end: Option<Piece>,
}

/// What the thread has read. After an end or a failure nothing follows.
enum Piece {
    Bytes(Vec<u8>),
    End,
    Failed(io::Error),
}

impl Stdin {
    /// Begins to read. `escapes`: look for keys that are for us.
    pub(crate) fn start(escapes: Option<Escapes>) -> io::Result<Self> {
        let is_terminal = isatty(stdin());
        let ahead = if is_terminal { KEYS_AHEAD } else { AHEAD };
        let (to_pass, pieces) = mpsc::channel(ahead);
        let (wished, wish) = oneshot::channel();
        // Not waited for: it may hang in a read for ever.
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let is_typed = escapes.is_some();
            let end = match read_all(&to_pass, escapes) {
                Ok(Some(found)) => {
                    let _nobody_waits = wished.send(found);
                    return;
                }
                // A raw terminal has no end; it is gone, and so are we.
                Ok(None) | Err(_) if is_typed => return,
                Ok(None) => Piece::End,
                Err(error) if is_nothing_to_read(&error, is_terminal) => Piece::End,
                Err(error) => Piece::Failed(error),
            };
            let _nobody_waits = to_pass.blocking_send(end);
        })?;
        Ok(Self { input: Input { pieces, end: None }, wish })
    }
}

impl Input {
    /// What has come since the last time; none at the end. Waits for ever where it is not for the process to know that there is no more.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let first = match self.end.take() {
            Some(end) => Some(end),
            None => self.pieces.recv().await,
        };
        let mut bytes = match first {
            Some(Piece::Bytes(bytes)) => bytes,
            Some(Piece::End) => return Ok(None),
            Some(Piece::Failed(error)) => return Err(error),
            None => std::future::pending().await,
        };
        while bytes.len() < PIECE_BYTES
            && let Ok(more) = self.pieces.try_recv()
        {
            match more {
                Piece::Bytes(more) => bytes.extend(more),
                end => {
                    self.end = Some(end);
                    break;
                }
            }
        }
        Ok(Some(bytes))
    }
}

/// Whether a failed read only says that nobody gives us any input: `nohup` makes stdin a file that cannot be read, and a terminal that is
/// gone fails in this way.
fn is_nothing_to_read(error: &io::Error, is_terminal: bool) -> bool {
    match Errno::from_io_error(error) {
        Some(Errno::BADF) => true,
        Some(Errno::IO) => is_terminal,
        _ => false,
    }
}

/// None at the end.
fn read_all(to_pass: &mpsc::Sender<Piece>, mut escapes: Option<Escapes>) -> io::Result<Option<Wish>> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = match read(&mut buffer)? {
            0 => return Ok(None),
            count => count,
        };
        let (piece, wish) = match &mut escapes {
            Some(escapes) => escapes.take(&buffer[..count]),
            None => (buffer[..count].to_vec(), None),
        };
        if wish.is_some() || (!piece.is_empty() && to_pass.blocking_send(Piece::Bytes(piece)).is_err()) {
            return Ok(wish);
        }
    }
}

fn read(buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        // Also for descriptors that somebody else has made non-blocking.
        match poll(&mut [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)], None) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        // Reading would stop us, although the program may not even want any input.
        if is_in_background() {
            std::thread::sleep(IN_BACKGROUND);
            continue;
        }
        match rustix::io::read(stdin(), &mut *buffer) {
            Err(Errno::INTR | Errno::AGAIN) => {}
            result => return Ok(result?),
        }
    }
}

fn is_in_background() -> bool {
    tcgetpgrp(stdin()).is_ok_and(|foreground| foreground != rustix::process::getpgrp())
}
