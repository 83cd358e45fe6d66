//! Work that blocks, on a thread that is made for it. Not on those of the runtime: whoever fills them would stop everything else in
//! the program that blocks, and a runtime that gets no thread waits for ever or panics.

use std::io;
use std::thread;

use tokio::sync::oneshot;

/// Runs `work` to its end, also if nobody waits for it any more. Fails if there is no thread to be had.
pub(crate) async fn on_own_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (done, result) = oneshot::channel();
    thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _nobody_may_wait = done.send(work());
    })?;
    result.await.map_err(|_| io::Error::other("its thread has panicked"))
}
