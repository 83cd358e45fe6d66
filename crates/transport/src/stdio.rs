//! Our own stdin and stdout as a message stream.
//!
//! A pipe is opened a second time, without blocking: what tokio has for standard streams hands every piece to another
//! thread, which halves the speed of output. It is not made non-blocking as it stands, because whoever started us may
//! share it, and so may our stderr.

use std::os::fd::AsFd;

use rustix::fs::FileType;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;

use crate::message::MessageLimits;
use crate::peer::PeerLabel;
use crate::stream::{MessageStream, lines};

/// Lines over our own stdin and stdout.
pub fn stdio(limits: MessageLimits) -> MessageStream {
    lines(input(), output(), PeerLabel::Stdio, limits)
}

fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    let reopen = || pipe::OpenOptions::new().open_receiver("/proc/self/fd/0").ok();
    match is_pipe(std::io::stdin()).then(reopen).flatten() {
        Some(pipe) => Box::new(pipe),
        None => Box::new(tokio::io::stdin()),
    }
}

fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    let reopen = || pipe::OpenOptions::new().open_sender("/proc/self/fd/1").ok();
    match is_pipe(std::io::stdout()).then(reopen).flatten() {
        Some(pipe) => Box::new(pipe),
        None => Box::new(tokio::io::stdout()),
    }
}

/// Asked before it is opened again, because opening a terminal or a device does more than that.
fn is_pipe(stream: impl AsFd) -> bool {
    rustix::fs::fstat(stream).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}
