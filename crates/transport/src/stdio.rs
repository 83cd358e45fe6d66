//! Our own stdin and stdout as a message stream.
//!
//! tokio's own stdin and stdout pass every read and write to another thread, which halves the speed of output. So if stdin or stdout is
//! a pipe, this module opens the pipe a second time, in non-blocking mode. It does not change the mode of the descriptor that we
//! inherited, because our parent process and our stderr may share it.

use std::os::fd::AsFd;

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

use crate::message::MessageLimits;
use crate::peer::PeerLabel;
use crate::stream::{MessageStream, lines};

/// A message stream with one message per line over our own stdin and stdout. Must be called inside a tokio runtime.
pub fn stdio(limits: MessageLimits) -> MessageStream {
    lines(input(), output(), PeerLabel::new("stdio"), limits)
}

fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    let open_again = || pipe::OpenOptions::new().open_receiver("/proc/self/fd/0").ok();
    match is_pipe(std::io::stdin()).then(open_again).flatten() {
        Some(pipe) => Box::new(pipe),
        None => Box::new(tokio::io::stdin()),
    }
}

fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    let open_again = || pipe::OpenOptions::new().open_sender("/proc/self/fd/1").ok();
    match is_pipe(std::io::stdout()).then(open_again).flatten() {
        Some(pipe) => Box::new(pipe),
        None => Box::new(tokio::io::stdout()),
    }
}

/// Checked before a stream is opened again, because opening a terminal or a device can have side effects.
fn is_pipe(stream: impl AsFd) -> bool {
    rustix::fs::fstat(stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}
