//! Our ends of the streams of a child, without blocking: wait for readiness, then try. The same two types serve pipes and
//! terminals; both halves of a terminal share one descriptor.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::descriptors::{set_nonblocking, watch};

/// What a busy stream gets, so that a writer is not woken for every 64 KiB; the most that an ordinary user may ask for.
const BUSY_PIPE_BYTES: usize = 1 << 20;

/// What the child writes and we read.
#[derive(Debug)]
pub struct ChildOutput {
    fd: Arc<AsyncFd<OwnedFd>>,
    kind: Kind,
}

/// What one attempt to read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// This many bytes are at the start of the buffer.
    Data(usize),
    /// Nothing yet; wait for [`ChildOutput::readable`].
    WouldBlock,
    /// Everything was read and nobody holds the other end any more.
    End,
}

impl ChildOutput {
    /// The read end of a pipe. Must be called within a tokio runtime, like every function here that makes a stream.
    pub(crate) fn from_pipe(fd: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        Ok(Self { fd: Arc::new(watch(fd, Interest::READABLE)?), kind: Kind::Pipe })
    }

    /// Waits until [`Self::try_read`] is worth calling. Cancel safe.
    pub async fn readable(&self) {
        if self.fd.readable().await.is_err() {
            runtime_is_gone().await;
        }
    }

    /// Reads what is there. Before the runtime has noticed that the stream is ready this says `WouldBlock` even if there is data;
    /// [`Self::readable`] then returns soon.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        Self::outcome(
            self.fd.try_io(Interest::READABLE, |fd| Ok(rustix::io::read(fd, &mut *buffer)?)),
            !buffer.is_empty(),
        )
    }

    /// Reads what is there, whether or not the runtime has noticed that there is something.
    pub fn read_now(&self, buffer: &mut [u8]) -> io::Result<ReadOutcome> {
        Self::outcome(rustix::io::read(&*self.fd, &mut *buffer).map_err(Into::into), !buffer.is_empty())
    }

    fn outcome(read: io::Result<usize>, wanted_some: bool) -> io::Result<ReadOutcome> {
        match read {
            Ok(0) if wanted_some => Ok(ReadOutcome::End),
            Ok(count) => Ok(ReadOutcome::Data(count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(ReadOutcome::WouldBlock),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(ReadOutcome::WouldBlock),
            // How a terminal says that its last user has closed it.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(ReadOutcome::End),
            Err(error) => Err(error),
        }
    }

    /// How many bytes could be read now.
    pub fn available(&self) -> usize {
        if self.kind == Kind::Terminal {
            // What a process has written may still be on its way to our side; the kernel completes that before it answers a poll.
            poll_now(&self.fd, PollFlags::IN);
        }
        let bytes = rustix::io::ioctl_fionread(&*self.fd).unwrap_or(0);
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Gives a stream that has shown itself to be busy a larger buffer in the kernel, as far as the machine permits.
    pub fn enlarge(&self) {
        let _best_effort = rustix::pipe::fcntl_setpipe_size(&*self.fd, BUSY_PIPE_BYTES);
    }
}

/// What we write and the child reads. Dropping the one of a pipe is the end of the child's input.
#[derive(Clone, Debug)]
pub struct ChildInput {
    fd: Arc<AsyncFd<OwnedFd>>,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pipe,
    /// Takes what nobody will ever read, until it is full. What is written to it arrives a moment later.
    Terminal,
}

/// What one attempt to write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// This many bytes were taken.
    Wrote(usize),
    /// The buffer in the kernel is full; wait for [`ChildInput::writable`].
    WouldBlock,
    /// Nobody can read it any more.
    Closed,
}

impl ChildInput {
    pub(crate) fn from_pipe(fd: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        Ok(Self { fd: Arc::new(watch(fd, Interest::WRITABLE)?), kind: Kind::Pipe })
    }

    /// Waits until [`Self::try_write`] is worth calling. Cancel safe.
    pub async fn writable(&self) {
        if self.fd.writable().await.is_err() {
            runtime_is_gone().await;
        }
    }

    /// Writes as much as fits.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<WriteOutcome> {
        if self.kind == Kind::Terminal && self.reader_gone() {
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

    /// Whether nobody can read what would be written now.
    pub fn reader_gone(&self) -> bool {
        reader_gone(&self.fd)
    }
}

fn reader_gone(fd: &AsyncFd<OwnedFd>) -> bool {
    poll_now(fd, PollFlags::empty()).intersects(PollFlags::ERR | PollFlags::HUP)
}

/// What is true of a descriptor now; nothing if the kernel does not say.
fn poll_now(fd: &AsyncFd<OwnedFd>, wanted: PollFlags) -> PollFlags {
    let mut polled = [PollFd::new(fd, wanted)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match rustix::event::poll(&mut polled, Some(&at_once)) {
        Ok(_) => polled[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// Both directions of one descriptor, which is closed when the last of the three is dropped.
#[derive(Clone)]
pub(crate) struct Duplex(Arc<AsyncFd<OwnedFd>>);

impl Duplex {
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        set_nonblocking(&fd)?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        Ok(Self(Arc::new(watch(fd, interest)?)))
    }

    pub(crate) fn reader(&self) -> ChildOutput {
        ChildOutput { fd: Arc::clone(&self.0), kind: Kind::Terminal }
    }

    pub(crate) fn writer(&self) -> ChildInput {
        ChildInput { fd: Arc::clone(&self.0), kind: Kind::Terminal }
    }
}

impl AsFd for Duplex {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Readiness fails only while the runtime shuts down. Waiting for ever is right then: the task is about to be dropped, and
/// returning would make its loop spin.
pub(crate) async fn runtime_is_gone() {
    std::future::pending::<()>().await;
}
