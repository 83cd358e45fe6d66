//! The server's ends of the streams of a child: [`ChildOutput`] reads and [`ChildInput`] writes. Neither blocks: callers wait until the
//! stream is ready and then try. Both types serve pipes and terminals. The reader and the writer of a terminal share one descriptor. This
//! module does not buffer and does not know what the bytes mean.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::descriptors::{set_nonblocking, watch};

/// Size to which the pipe of a busy stream is enlarged. In a pipe of the default size, the child must wait for the
/// server after every 64 KiB. 1 MiB is the most that an unprivileged user may ask for by default.
const BUSY_PIPE_BYTES: usize = 1 << 20;

/// Reads what the child writes to one of its output streams.
#[derive(Debug)]
pub struct ChildOutput {
    fd: Arc<AsyncFd<OwnedFd>>,
    kind: StreamKind,
}

/// The result of one attempt to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// This many bytes were written to the start of the buffer.
    Data(usize),
    /// Nothing was read, usually because there is no data now. Wait for [`ChildOutput::readable`] before the next
    /// attempt.
    WouldBlock,
    /// All data was read and no process has the other end open.
    End,
}

impl ChildOutput {
    /// Takes the read end of a pipe. Must be called inside a tokio runtime, like every function here that creates a stream.
    pub(crate) fn from_pipe(fd: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        Ok(Self { fd: Arc::new(watch(fd, Interest::READABLE)?), kind: StreamKind::Pipe })
    }

    /// Waits until [`Self::try_read`] is worth calling. Cancel safe.
    pub async fn readable(&self) {
        if self.fd.readable().await.is_err() {
            wait_for_runtime_shutdown().await;
        }
    }

    /// Reads the data that is available, if the runtime has noticed that the stream is readable. Otherwise returns `WouldBlock` even if
    /// there is data, and [`Self::readable`] returns soon.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        Self::outcome(
            self.fd.try_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut *buffer)?)),
            !buffer.is_empty(),
        )
    }

    /// Reads the data that is available, whether or not the runtime has noticed that the stream is readable.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        Self::outcome(rustix::io::read(&*self.fd, &mut *buffer).map_err(Into::into), !buffer.is_empty())
    }

    fn outcome(read: io::Result<usize>, buffer_has_room: bool) -> io::Result<ReadOutcome> {
        match read {
            Ok(0) if buffer_has_room => Ok(ReadOutcome::End),
            Ok(count) => Ok(ReadOutcome::Data(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadOutcome::WouldBlock),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(ReadOutcome::WouldBlock),
            // A terminal returns EIO when the last process has closed the slave.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(ReadOutcome::End),
            Err(error) => Err(error),
        }
    }

    /// The number of bytes that can be read now. 0 if the kernel does not say.
    pub fn available(&self) -> usize {
        if self.kind == StreamKind::Terminal {
            // The kernel passes bytes from the slave to the master with a delay. A poll makes the kernel pass them at
            // once.
            poll_now(&self.fd, PollFlags::IN);
        }
        let bytes = rustix::io::ioctl_fionread(&*self.fd).unwrap_or(0);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Enlarges the buffer of a pipe in the kernel to 1 MiB. Does nothing if the kernel refuses, and nothing for a terminal.
    pub fn enlarge(&self) {
        let _best_effort = rustix::pipe::fcntl_setpipe_size(&*self.fd, BUSY_PIPE_BYTES);
    }
}

/// Writes what the child reads as its stdin. When the writer of a pipe and all of its clones are dropped, the child
/// reads the end of its input.
#[derive(Clone, Debug)]
pub struct ChildInput {
    fd: Arc<AsyncFd<OwnedFd>>,
    kind: StreamKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamKind {
    Pipe,
    /// Unlike a pipe, a terminal accepts bytes until its buffer is full even if no process has it open, and it
    /// delivers bytes with a delay.
    Terminal,
}

/// The result of one attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The kernel has taken this many bytes from the start of the buffer.
    Wrote(usize),
    /// Nothing was written, usually because the buffer in the kernel is full. Wait for [`ChildInput::writable`]
    /// before the next attempt.
    WouldBlock,
    /// No process has the other end open, so the bytes can never be read.
    Closed,
}

impl ChildInput {
    pub(crate) fn from_pipe(fd: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        Ok(Self { fd: Arc::new(watch(fd, Interest::WRITABLE)?), kind: StreamKind::Pipe })
    }

    /// Waits until [`Self::try_write`] is worth calling. Cancel safe.
    pub async fn writable(&self) {
        if self.fd.writable().await.is_err() {
            wait_for_runtime_shutdown().await;
        }
    }

    /// Writes as many bytes as the kernel takes without blocking.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<WriteOutcome> {
        if self.kind == StreamKind::Terminal && self.reader_gone() {
            return Ok(WriteOutcome::Closed);
        }
        let written = self.fd.try_io(Interest::WRITABLE, |fd| Ok(rustix::io::write(fd, bytes)?));
        match written {
            Ok(count) => Ok(WriteOutcome::Wrote(count)),
            Err(error) => match error.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::PIPE | Errno::IO) => Ok(WriteOutcome::Closed),
                Some(Errno::INTR) => Ok(WriteOutcome::WouldBlock),
                _ if error.kind() == io::ErrorKind::WouldBlock => Ok(WriteOutcome::WouldBlock),
                _ => Err(error),
            },
        }
    }

    /// Whether no process has the other end open.
    pub fn reader_gone(&self) -> bool {
        reader_gone(&self.fd)
    }
}

fn reader_gone(fd: &AsyncFd<OwnedFd>) -> bool {
    poll_now(fd, PollFlags::empty()).intersects(PollFlags::ERR | PollFlags::HUP)
}

/// The readiness of a descriptor now. Empty if the poll fails.
fn poll_now(fd: &AsyncFd<OwnedFd>, wanted: PollFlags) -> PollFlags {
    let mut polled = [PollFd::new(fd, wanted)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut polled, Some(&at_once)) {
        Ok(_) => polled[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// The master side of a terminal, one descriptor for both directions. It is closed when this value, its clones and
/// all readers and writers made from it are dropped.
#[derive(Clone)]
pub(crate) struct TerminalMaster(Arc<AsyncFd<OwnedFd>>);

impl TerminalMaster {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        Ok(Self(Arc::new(watch(fd, interest)?)))
    }

    pub(crate) fn reader(&self) -> ChildOutput {
        ChildOutput { fd: Arc::clone(&self.0), kind: StreamKind::Terminal }
    }

    pub(crate) fn writer(&self) -> ChildInput {
        ChildInput { fd: Arc::clone(&self.0), kind: StreamKind::Terminal }
    }
}

impl AsFd for TerminalMaster {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Never returns. Waiting for readiness fails only while the runtime shuts down. The task is about to be dropped then, and an error would
/// make the caller's loop spin until that happens.
pub(crate) async fn wait_for_runtime_shutdown() {
    std::future::pending::<()>().await;
}
