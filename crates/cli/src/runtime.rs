//! Starts the tokio runtime.

use anyhow::Context as _;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::stderr;
use tokio::runtime::{Builder, Runtime};

/// Number of file descriptors that a runtime opens while it starts, with a few to spare.
const RUNTIME_DESCRIPTORS: usize = 8;

/// Starts a runtime with timers and I/O. tokio panics if the limit of open files is reached during the start. So this
/// function first opens and closes as many descriptors as tokio needs, and returns an error if it cannot open them.
pub(crate) fn start_runtime(builder: &mut Builder) -> anyhow::Result<Runtime> {
    let opened: Result<Vec<_>, _> = (0..RUNTIME_DESCRIPTORS).map(|_| fcntl_dupfd_cloexec(stderr(), 0)).collect();
    drop(opened.context("cannot start with so few file descriptors; raise the limit of open files (ulimit -n)")?);
    builder.enable_all().build().context("cannot start the runtime")
}
