//! Decides before a process is started how it will learn that our stdin has ended. The published protocol, which is
//! that of `codex exec-server`, can write to the stdin of a process, but cannot close it. On a server without the
//! extension `processCloseStdin`, a process that reads to the end of its input would wait for ever. So no process
//! without a terminal is started there if our stdin already holds input. Start reading at [`plan`].

use std::time::Duration;

use anyhow::Context as _;
use client::Capabilities;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, fstat, tell};
use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::isatty;

use super::EndOfInput;

/// How long we wait for the first byte or the end of a pipe. The shell starts the program that writes to the pipe at
/// the same time as us, so its first byte may come a little later.
const FIRST_BYTE_PATIENCE: Duration = Duration::from_secs(1);

/// The content of our stdin before the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StdinContent {
    /// Our stdin has ended.
    Ended,
    /// At least one byte can be read.
    Bytes,
    /// No byte has come so far: a terminal, or a pipe whose other end is open.
    NothingYet,
}

/// Decides how the process will learn that our stdin has ended. `tty`: the process has a terminal. An error means
/// that nothing must be started.
pub(crate) async fn plan(server: &Capabilities, tty: bool) -> anyhow::Result<EndOfInput> {
    if server.process_close_stdin {
        return Ok(EndOfInput::Passed);
    }
    if tty {
        return Ok(EndOfInput::Typed);
    }
    match tokio::task::spawn_blocking(stdin_content).await?.context("cannot look at stdin")? {
        StdinContent::Ended => Ok(EndOfInput::EndedBeforeStart),
        StdinContent::NothingYet => Ok(EndOfInput::CannotBePassed),
        StdinContent::Bytes => anyhow::bail!(
            "this server cannot end the stdin of a command, so a command that reads all of its input would never end; \
             copy the input to a file of the environment, or give no input with `< /dev/null`"
        ),
    }
}

/// Looks at our stdin. It takes no input from it, except one byte of a device.
fn stdin_content() -> Result<StdinContent, Errno> {
    if isatty(stdin()) {
        return Ok(StdinContent::NothingYet);
    }
    let patience = Timespec { tv_sec: FIRST_BYTE_PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(stdin(), PollFlags::IN)];
    loop {
        match poll(&mut fds, Some(&patience)) {
            Ok(0) => return Ok(StdinContent::NothingYet),
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
            // A pipe that is readable and empty has ended.
            Ok(bytes) => Ok(usize::from(bytes > 0)),
            // A device has no such count. To lose one byte of `/dev/zero` does no harm.
            Err(_) => rustix::io::read(stdin(), &mut [0; 1]),
        }
    };
    match first_byte {
        // `nohup` makes stdin a file that cannot be read.
        Ok(0) | Err(Errno::BADF) => Ok(StdinContent::Ended),
        Ok(_) => Ok(StdinContent::Bytes),
        Err(error) => Err(error),
    }
}
