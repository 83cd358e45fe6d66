//! Runs blocking work on a new thread for each call. The threads that tokio keeps for blocking work are not used:
//! work that hangs could occupy all of them, and other code of this program would wait for a thread. tokio also
//! panics if the system cannot start a thread.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Runs `work` on a new thread, to its end even if the future is dropped before. Fails if the system cannot start a
/// thread, or if `work` panics.
pub(crate) async fn on_own_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Fails if the future was dropped.
        let _ = done.send(work());
    })?;
    result.await.map_err(|_| io::Error::other("the thread has panicked"))
}
