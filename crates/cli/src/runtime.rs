//! The runtime of the program.

use anyhow::Context as _;
use rustix::io::fcntl_dupfd_cloexec;
use rustix::stdio::stderr;
use tokio::runtime::{Builder, Runtime};

/// File descriptors that a runtime opens while it starts, and a few more.
const RUNTIME_DESCRIPTORS: usize = 8;

/// Starts the runtime. It panics when it can open some of the descriptors it needs and not the others, so this opens as many first.
pub(crate) fn start_runtime(builder: &mut Builder) -> anyhow::Result<Runtime> {
    let opened: Result<Vec<_>, _> = (0..RUNTIME_DESCRIPTORS).map(|_| fcntl_dupfd_cloexec(stderr(), 0)).collect();
    drop(opened.context("cannot start with so few file descriptors; raise the limit of open files (ulimit -n)")?);
    builder.enable_all().build().context("cannot start the runtime")
}
