//! Notices that a connection is idle: no byte has been read from it or written to it for a while. An idle
//! connection is closed, so that it does not hold a permit for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

/// When a connection was last used. Clones are about the same connection.
#[derive(Clone)]
pub(crate) struct Activity(Arc<Mutex<ActivityState>>);

struct ActivityState {
    last_used: Instant,
    /// Number of live [`ActivityHold`]s. While it is above 0 the connection is not idle.
    holds: usize,
}

/// While this exists, the connection does not count as idle.
pub(crate) struct ActivityHold(Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(ActivityState { last_used: Instant::now(), holds: 0 })))
    }

    pub(crate) fn hold(&self) -> ActivityHold {
        self.0.lock().holds += 1;
        ActivityHold(self.clone())
    }

    fn note_use(&self) {
        self.0.lock().last_used = Instant::now();
    }

    /// Waits until the connection was idle for this time.
    pub(crate) async fn idle_for(&self, time: Duration) {
        loop {
            let until = {
                let state = self.0.lock();
                let since = if state.holds > 0 { Instant::now() } else { state.last_used };
                since + time
            };
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl Drop for ActivityHold {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.holds -= 1;
        state.last_used = Instant::now();
    }
}

/// A stream that notes each read and write.
pub(crate) struct WatchedStream<S> {
    stream: S,
    activity: Activity,
}

impl<S> WatchedStream<S> {
    pub(crate) fn new(stream: S, activity: Activity) -> Self {
        Self { stream, activity }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            self.activity.note_use();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if polled.is_ready() {
            self.activity.note_use();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::timeout;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn bytes_in_either_direction_postpone_the_end_of_an_idle_connection() {
        let (near, mut far) = duplex(64);
        let activity = Activity::new();
        let mut watched = WatchedStream::new(near, activity.clone());
        for _ in 0..3 {
            assert!(timeout(MINUTE / 2, activity.idle_for(MINUTE)).await.is_err());
            watched.write_all(b"x").await.unwrap();
            assert!(timeout(MINUTE / 2, activity.idle_for(MINUTE)).await.is_err());
            far.write_all(b"y").await.unwrap();
            watched.read_u8().await.unwrap();
        }
        let last = Instant::now();
        activity.idle_for(MINUTE).await;
        assert_eq!(last.elapsed().as_secs(), 60);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_waits_for_a_decision_is_not_idle() {
        let activity = Activity::new();
        let hold = activity.hold();
        assert!(timeout(MINUTE * 100, activity.idle_for(MINUTE)).await.is_err());
        drop(hold);
        let released = Instant::now();
        activity.idle_for(MINUTE).await;
        assert_eq!(released.elapsed().as_secs(), 60);
    }
}
