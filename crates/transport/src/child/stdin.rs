//! The stdin of a child, which two may close: the writer of the stream when it has nothing more to say or is dropped, and the
//! guard.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use tokio::io::AsyncWrite;
use tokio::net::unix::pipe;

/// The end that is written to.
#[derive(Debug)]
pub(super) struct ChildStdin {
    shared: Arc<Mutex<Shared>>,
}

/// The right to close it, which does not keep it open.
#[derive(Debug)]
pub(super) struct StdinCloser {
    shared: Weak<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    /// Gone when it was closed.
    pipe: Option<pipe::Sender>,
    /// A writer that waits for room. The pipe would not wake it when it is closed on our side.
    waiting: Option<Waker>,
}

impl ChildStdin {
    pub(super) fn new(pipe: pipe::Sender) -> Self {
        Self { shared: Arc::new(Mutex::new(Shared { pipe: Some(pipe), waiting: None })) }
    }

    pub(super) fn closer(&self) -> StdinCloser {
        StdinCloser { shared: Arc::downgrade(&self.shared) }
    }
}

impl StdinCloser {
    pub(super) fn close(&self) {
        if let Some(shared) = self.shared.upgrade() {
            close(&shared);
        }
    }
}

fn close(shared: &Mutex<Shared>) {
    let mut shared = lock(shared);
    let (pipe, waiting) = (shared.pipe.take(), shared.waiting.take());
    drop(shared);
    drop(pipe);
    if let Some(waker) = waiting {
        waker.wake();
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsyncWrite for ChildStdin {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut shared = lock(&self.shared);
        let Some(pipe) = &mut shared.pipe else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let outcome = Pin::new(pipe).poll_write(cx, bytes);
        shared.waiting = outcome.is_pending().then(|| cx.waker().clone());
        outcome
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        close(&self.shared);
        Poll::Ready(Ok(()))
    }
}
