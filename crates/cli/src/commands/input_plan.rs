//! What becomes of our stdin. The published protocol can write to the stdin of a process and cannot end it, so against a server without
//! `processCloseStdin` a command that reads to the end of its input would wait for ever. Where that can be seen beforehand, nothing is
//! run.

use std::time::Duration;

use anyhow::Context as _;
use client::Capabilities;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat, tell};
use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::isatty;

use super::foreground::EndOfInput;

/// How long a pipe is watched for its first byte or its end: whoever writes to it was started at the same time as we were.
const FIRST_BYTE: Duration = Duration::from_secs(1);

/// What our stdin holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waiting {
    /// Nothing, and nothing will come.
    Nothing,
    Bytes,
    /// Nothing so far: a terminal, or a pipe whose other end is open.
    NotYet,
}

/// How the end of our stdin is passed on, if it can be. `tty`: the process has a terminal.
pub(crate) async fn plan(server: &Capabilities, tty: bool) -> anyhow::Result<EndOfInput> {
    if server.process_close_stdin {
        return Ok(EndOfInput::Passed);
    }
    if tty {
        return Ok(EndOfInput::Typed);
    }
    match tokio::task::spawn_blocking(look).await?.context("cannot look at stdin")? {
        Waiting::Nothing => Ok(EndOfInput::BeforeTheStart),
        Waiting::NotYet => Ok(EndOfInput::CannotBePassed),
        Waiting::Bytes => anyhow::bail!(
            "this server cannot end the stdin of a command, so a command that reads all of its input would never end; \
             copy the input to a file over there, or give no input with `< /dev/null`"
        ),
    }
}

/// Looks at our stdin and takes nothing from it.
fn look() -> Result<Waiting, Errno> {
    if isatty(stdin()) {
        return Ok(Waiting::NotYet);
    }
    let patience = Timespec { tv_sec: FIRST_BYTE.as_secs().cast_signed(), tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&patience)) {
            Ok(0) => return Ok(Waiting::NotYet),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    let is_regular = fstat(stdin()).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_file());
    let first_byte = if is_regular {
        // The size of a file says too little: a file in `/proc` has content and the size 0.
        rustix::io::pread(stdin(), &mut [0; 1], tell(stdin())?)
    } else {
        match rustix::io::ioctl_fionread(stdin()) {
            // Readable and empty is the end.
            Ok(bytes) => Ok(usize::from(bytes > 0)),
            // A device does not say. One byte of `/dev/zero` is nobody's loss.
            Err(_) => rustix::io::read(stdin(), &mut [0; 1]),
        }
    };
    match first_byte {
        // `nohup` makes stdin a file that cannot be read.
        Ok(0) | Err(Errno::BADF) => Ok(Waiting::Nothing),
        Ok(_) => Ok(Waiting::Bytes),
        Err(error) => Err(error),
    }
}
