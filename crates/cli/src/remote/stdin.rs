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
    /// The last one is empty, unless it is not for the process to know that there is no more.
    pieces: mpsc::Receiver<Vec<u8>>,
    has_ended: bool,
}

impl Stdin {
    /// Begins to read. `escapes`: look for keys that are for us.
    pub(crate) fn start(escapes: Option<Escapes>) -> io::Result<Self> {
        let ahead = if isatty(stdin()) { KEYS_AHEAD } else { AHEAD };
        let (to_pass, pieces) = mpsc::channel(ahead);
        let (wished, wish) = oneshot::channel();
        // Not waited for: it may hang in a read for ever.
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let is_typed = escapes.is_some();
            match read_all(&to_pass, escapes) {
                Some(found) => {
                    let _nobody_waits = wished.send(found);
                }
                // A raw terminal has no end; it is gone, and so are we.
                None if is_typed => {}
                None => {
                    let _nobody_waits = to_pass.blocking_send(Vec::new());
                }
            }
        })?;
        Ok(Self { input: Input { pieces, has_ended: false }, wish })
    }
}

impl Input {
    /// What has come since the last time; none at the end.
    pub(crate) async fn next(&mut self) -> Option<Vec<u8>> {
        if self.has_ended {
            return None;
        }
        let Some(mut piece) = self.pieces.recv().await else { std::future::pending().await };
        self.has_ended = piece.is_empty();
        while !self.has_ended
            && piece.len() < PIECE_BYTES
            && let Ok(more) = self.pieces.try_recv()
        {
            self.has_ended = more.is_empty();
            piece.extend(more);
        }
        Some(piece).filter(|piece| !piece.is_empty())
    }
}

fn read_all(to_pass: &mpsc::Sender<Vec<u8>>, mut escapes: Option<Escapes>) -> Option<Wish> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = match read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => count,
        };
        let (piece, wish) = match &mut escapes {
            Some(escapes) => escapes.take(&buffer[..count]),
            None => (buffer[..count].to_vec(), None),
        };
        if wish.is_some() || (!piece.is_empty() && to_pass.blocking_send(piece).is_err()) {
            return wish;
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
