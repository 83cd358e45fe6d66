//! Starts the tokio runtime, and fails with an error if the system has too few threads or descriptors for it.

use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::stderr;
use tokio::runtime::{Builder, Runtime};

/// Number of file descriptors that a runtime opens while it starts, with a few to spare.
const RUNTIME_DESCRIPTORS: usize = 8;

/// Number of threads that a server starts beside the workers of its runtime: threads of the server, and those that tokio makes for stdin and stdout.
const SERVER_THREADS: usize = 14;

/// Starts the runtime of a server. tokio panics if the system gives it no threads, and the process may then never end. So this function first
/// checks that there are enough.
pub(crate) fn start_server_runtime() -> anyhow::Result<Runtime> {
    check_server_threads()?;
    start_runtime(&mut Builder::new_multi_thread())
}

/// Makes as many threads as a server needs at once, and ends them. Returns an error if it cannot make them.
pub(crate) fn check_server_threads() -> anyhow::Result<()> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (end_threads, ends) = std::sync::mpsc::channel::<()>();
    let ends = Arc::new(Mutex::new(ends));
    let make = |_| {
        let ends = Arc::clone(&ends);
        let wait = move || drop(ends.lock().map(|ends| ends.recv()));
        std::thread::Builder::new().spawn(wait)
    };
    let made: Result<Vec<_>, _> = (0..workers + SERVER_THREADS).map(make).collect();
    drop(end_threads);
    // A thread counts towards the limit until it has ended.
    for thread in made.context("cannot start with so few threads; raise the limit of processes (ulimit -u)")? {
        let _has_not_panicked = thread.join();
    }
    Ok(())
}

/// Starts a runtime with timers and I/O. tokio panics if the limit of open files is reached during the start. So this
/// function first opens and closes as many descriptors as tokio needs, and returns an error if it cannot open them.
pub(crate) fn start_runtime(builder: &mut Builder) -> anyhow::Result<Runtime> {
    let opened: Result<Vec<_>, _> = (0..RUNTIME_DESCRIPTORS).map(|_| fcntl_dupfd_cloexec(stderr(), 0)).collect();
    drop(opened.context("cannot start with so few file descriptors; raise the limit of open files (ulimit -n)")?);
    builder.enable_all().build().context("cannot start the runtime")
}
