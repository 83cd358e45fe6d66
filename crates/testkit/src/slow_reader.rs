//! A client that reads slowly but steadily, for tests of backpressure.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Interval, MissedTickBehavior, interval};
use transport::{ConnectOptions, PeerLabel, upgrade_client};

use crate::{Client, TestServer};

/// Largest number of bytes that one read returns.
const READ_BYTES: usize = 64 << 10;

/// A TCP connection that returns at most 64 KiB for each read, and on average at most one read for each pause.
pub struct SlowReader {
    stream: TcpStream,
    /// One tick for each read.
    pauses: Interval,
    is_pause_over: bool,
}

impl SlowReader {
    /// Connects a client with a new session. The client reads about once in each `pause`.
    pub async fn client(server: &TestServer, pause: Duration) -> Client {
        let mut pauses = interval(pause);
        pauses.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let stream = TcpStream::connect(server.address()).await.unwrap();
        let slow = Self { stream, pauses, is_pause_over: true };
        let peer = PeerLabel::new(server.address());
        let stream = upgrade_client(slow, "localhost", peer, ConnectOptions::default()).await.unwrap();
        let mut client = Client::from_stream(stream);
        client.handshake(None).await;
        client
    }
}

impl AsyncRead for SlowReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_pause_over {
            ready!(self.pauses.poll_tick(cx));
            self.is_pause_over = true;
        }
        let size = buf.remaining().min(READ_BYTES);
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(size));
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part))?;
        let count = part.filled().len();
        buf.advance(count);
        self.is_pause_over = false;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SlowReader {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
