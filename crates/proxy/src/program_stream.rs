//! The stream of an HTTP connection of a program. hyper owns the stream, and does not read it while the body of a
//! request is unread. [`DepartureWatch`] shares the socket and sees even then that the program has closed the connection.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, Interest, Join, ReadBuf, join};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::limits::HTTP_READ_BYTES;

/// A stream whose socket a [`DepartureWatch`] shares.
pub(crate) type ProgramStream = Join<SharedReadHalf, OwnedWriteHalf>;

/// Reads from a socket that a [`DepartureWatch`] watches at the same time.
pub(crate) struct SharedReadHalf(Arc<OwnedReadHalf>);

/// Notices that the program has closed its connection.
pub(crate) struct DepartureWatch(Arc<OwnedReadHalf>);

/// Makes a stream for hyper, and a watch on the same socket.
pub(crate) fn watch_departure(stream: TcpStream) -> (ProgramStream, DepartureWatch) {
    let (reading, writing) = stream.into_split();
    let reading = Arc::new(reading);
    (join(SharedReadHalf(Arc::clone(&reading)), writing), DepartureWatch(reading))
}

impl DepartureWatch {
    /// Waits until the program has closed its connection, or its sending direction. When hyper reads the end
    /// of the sending direction, it too takes it for the end of the connection.
    pub(crate) async fn left(&self) {
        // Tokio cannot wait for the end of the incoming bytes alone. The interest in urgent data includes it, and no
        // urgent data is reported, because TCP streams are not registered for it. Unread bytes do not end the wait.
        let closed = self.0.ready(Interest::PRIORITY).await;
        if let Err(error) = closed {
            tracing::debug!(%error, "cannot watch a connection to the proxy");
        }
    }

    /// Waits until the program has reset its connection, see [`reset_by_program`].
    pub(crate) async fn reset(&self) {
        reset_by_program(self.0.as_ref().as_ref()).await;
    }
}

/// Waits until the program has reset its connection. Unread bytes do not end the wait. The end of the sending direction
/// does not end it either: a program that wants a tunnel may send its bytes, end its direction and wait for the
/// answer. TCP shows a program that has closed its connection in the same way until the proxy sends something. So a
/// question to the decider for such a program stays open until the decider answers or the proxy is stopped.
pub(crate) async fn reset_by_program(stream: &TcpStream) {
    if let Err(error) = stream.ready(Interest::ERROR).await {
        tracing::debug!(%error, "cannot watch a connection to the proxy");
    }
}

impl AsyncRead for SharedReadHalf {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.as_ref().as_ref().poll_read_ready(cx))?;
            let room = buf.remaining().min(HTTP_READ_BYTES);
            match self.0.try_read(buf.initialize_unfilled_to(room)) {
                Ok(count) => {
                    buf.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // The readiness was outdated, and tokio has cleared it.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_watch_ignores_unread_bytes_and_sees_the_end_behind_them() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut program = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut stream, watch) = watch_departure(listener.accept().await.unwrap().0);
        program.write_all(b"unread").await.unwrap();
        watch.0.readable().await.unwrap();
        tokio::select! {
            biased;
            () = watch.left() => panic!("the program is still there"),
            () = tokio::task::yield_now() => {}
        }
        drop(program);
        watch.left().await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, b"unread");
    }
}
