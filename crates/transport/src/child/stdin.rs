//! The stdin of a child. Two owners can close it: the writer of the message stream, when it is shut down or dropped, and the guard of
//! the child.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;
use tokio::net::unix::pipe;

/// The writing end of the pipe. Dropping it closes the pipe.
#[derive(Debug)]
pub(super) struct ChildStdin {
    state: Arc<Mutex<StdinState>>,
}

/// Closes the pipe for the guard of the child. This value does not keep the pipe open.
#[derive(Debug)]
pub(super) struct StdinCloser {
    state: Weak<Mutex<StdinState>>,
}

#[derive(Debug)]
struct StdinState {
    /// `None` after the pipe was closed.
    pipe: Option<pipe::Sender>,
    /// The task that waits for room in the pipe. tokio does not wake it when we close the pipe ourselves.
    blocked_writer: Option<Waker>,
}

impl ChildStdin {
    pub(super) fn new(pipe: pipe::Sender) -> Self {
        Self { state: Arc::new(Mutex::new(StdinState { pipe: Some(pipe), blocked_writer: None })) }
    }

    pub(super) fn closer(&self) -> StdinCloser {
        StdinCloser { state: Arc::downgrade(&self.state) }
    }
}

impl StdinCloser {
    pub(super) fn close(&self) {
        if let Some(state) = self.state.upgrade() {
            close(&state);
        }
    }
}

fn close(state: &Mutex<StdinState>) {
    let mut state = lock(state);
    let (pipe, blocked_writer) = (state.pipe.take(), state.blocked_writer.take());
    drop(state);
    drop(pipe);
    if let Some(waker) = blocked_writer {
        waker.wake();
    }
}

fn lock(state: &Mutex<StdinState>) -> MutexGuard<'_, StdinState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsyncWrite for ChildStdin {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        let Some(pipe) = &mut state.pipe else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let written = Pin::new(pipe).poll_write(cx, bytes);
        state.blocked_writer = written.is_pending().then(|| cx.waker().clone());
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        close(&self.state);
        Poll::Ready(Ok(()))
    }
}
