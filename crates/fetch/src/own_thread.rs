//! Runs work that blocks on a thread of its own. The threads that tokio keeps for such work are not used: work that hangs could occupy
//! all of them and stop everything else in the program that needs one, and tokio panics if the system has no thread for it.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Runs `work` to its end, even if the future is dropped before. Fails if the system has no thread.
pub(crate) async fn on_own_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Fails if the future was dropped.
        let _ = done.send(work());
    })?;
    result.await.map_err(|_| io::Error::other("its thread has panicked"))
}
