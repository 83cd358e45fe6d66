//! Reads our stdin in a thread of its own. A thread can wait for every kind of file, and it sees `~.`, the keys with
//! which a person leaves the process, even while the process takes no input. This module sends nothing to the process
//! itself.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::{isatty, tcgetpgrp};
use tokio::sync::{mpsc, oneshot};

use super::escape_keys::{EscapeCommand, EscapeKeys};

/// The size of a read, which is as much as a pipe holds by default.
const READ_BYTES: usize = 64 * 1024;
/// Number of reads from a file or a pipe that may wait to be passed on: enough that a write to the process need not
/// wait for the next read.
const READS_AHEAD: usize = 8;
/// [`READS_AHEAD`] for a terminal, where most reads are one key. `~.` must be seen even if it follows many keys that
/// the process has not taken.
const KEYS_AHEAD: usize = 4096;
/// Waiting reads are joined to messages of about this size. It is large enough to be worth a round trip, and small
/// enough not to delay other messages.
const MESSAGE_BYTES: usize = 256 * 1024;
/// Pause between two checks whether we are still a background job, which must not read its terminal.
const BACKGROUND_CHECK: Duration = Duration::from_millis(200);

/// The bytes and the escape command that come from our stdin.
pub(crate) struct StdinReader {
    pub(crate) input: StdinInput,
    /// An escape command that was typed. Its sender is dropped without a command when stdin ends or fails.
    pub(crate) escape: oneshot::Receiver<EscapeCommand>,
}

/// The bytes for the process.
pub(crate) struct StdinInput {
    reads: mpsc::Receiver<StdinRead>,
    /// The end or failure that came after the bytes that were returned last.
    end: Option<StdinRead>,
}

/// The result of a read. Nothing follows an end or a failure.
enum StdinRead {
    Bytes(Vec<u8>),
    End,
    Failed(io::Error),
}

impl StdinReader {
    /// Starts the thread. `escapes` is given if stdin is a raw terminal. It finds escape keys, which are not passed
    /// on.
    pub(crate) fn start(escapes: Option<EscapeKeys>) -> io::Result<Self> {
        let is_terminal = isatty(stdin());
        let ahead = if is_terminal { KEYS_AHEAD } else { READS_AHEAD };
        let (sender, reads) = mpsc::channel(ahead);
        let (escape_sender, escape) = oneshot::channel();
        // The thread is not joined: it may block in a read for ever.
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            let is_raw_terminal = escapes.is_some();
            let end = match read_all(&sender, escapes) {
                Ok(Some(command)) => {
                    // The event loop, which would receive the command, may have ended.
                    let _ignored = escape_sender.send(command);
                    return;
                }
                // At a raw terminal, an end or a failure means that the terminal is gone. Dropping `escape_sender`
                // reports that.
                Ok(None) | Err(_) if is_raw_terminal => return,
                Ok(None) => StdinRead::End,
                Err(error) if is_nothing_to_read(&error, is_terminal) => StdinRead::End,
                Err(error) => StdinRead::Failed(error),
            };
            // Here too, the event loop may have ended.
            let _ignored = sender.blocking_send(end);
        })?;
        Ok(Self { input: StdinInput { reads, end: None }, escape })
    }
}

impl StdinInput {
    /// Waits for bytes, and returns those that have been read, up to about [`MESSAGE_BYTES`]; `None` at the end of
    /// stdin. After an escape command, or when a raw terminal is gone, it waits for ever: the process is not told of
    /// an end of its input.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let first = match self.end.take() {
            Some(end) => Some(end),
            None => self.reads.recv().await,
        };
        let mut bytes = match first {
            Some(StdinRead::Bytes(bytes)) => bytes,
            Some(StdinRead::End) => return Ok(None),
            Some(StdinRead::Failed(error)) => return Err(error),
            None => std::future::pending().await,
        };
        while bytes.len() < MESSAGE_BYTES
            && let Ok(more) = self.reads.try_recv()
        {
            match more {
                StdinRead::Bytes(more) => bytes.extend(more),
                end => {
                    self.end = Some(end);
                    break;
                }
            }
        }
        Ok(Some(bytes))
    }
}

/// Whether a failed read means that there is no input: `nohup` makes stdin a file that cannot be read, and a read
/// from a terminal that is gone fails with EIO.
fn is_nothing_to_read(error: &io::Error, is_terminal: bool) -> bool {
    match Errno::from_io_error(error) {
        Some(Errno::BADF) => true,
        Some(Errno::IO) => is_terminal,
        _ => false,
    }
}

/// Reads until an escape command is typed. `None`: stdin has ended, or nobody receives the bytes any more.
fn read_all(sender: &mpsc::Sender<StdinRead>, mut escapes: Option<EscapeKeys>) -> io::Result<Option<EscapeCommand>> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = match read(&mut buffer)? {
            0 => return Ok(None),
            count => count,
        };
        let (bytes, command) = match &mut escapes {
            Some(escapes) => escapes.take(&buffer[..count]),
            None => (buffer[..count].to_vec(), None),
        };
        if command.is_some() || (!bytes.is_empty() && sender.blocking_send(StdinRead::Bytes(bytes)).is_err()) {
            return Ok(command);
        }
    }
}

fn read(buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        // Another process that shares the file may have made it non-blocking, so the read alone might not wait.
        match poll(&mut [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)], None) {
            Err(Errno::INTR) => continue,
            result => result?,
        };
        // The kernel would stop a background job that reads its terminal, although the process may want no input.
        if is_in_background() {
            std::thread::sleep(BACKGROUND_CHECK);
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
