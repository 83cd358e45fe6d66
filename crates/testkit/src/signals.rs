//! Makes the process of the tests stop ignoring signals before it starts the binary under test. A shell that runs the
//! tests in the background makes them ignore SIGINT and SIGQUIT, and the binary under test would inherit that.

use std::fs;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Makes programs that are started later handle SIGHUP, SIGINT, SIGQUIT and SIGTERM by default. An ignored signal
/// stays ignored in a new program, but a signal with a handler is reset to its default. So this function installs a
/// handler for each of these signals that is ignored. Without a tokio runtime it does nothing.
pub(crate) fn stop_ignoring_signals() {
    if tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    let ignored = ignored_signals();
    for number in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].map(Signal::as_raw) {
        if ignored & (1 << (number - 1)) != 0 {
            // tokio keeps the handler installed after this value is dropped.
            drop(signal(SignalKind::from_raw(number)).unwrap());
        }
    }
}

/// The signals that this process ignores: bit 0 stands for signal 1.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
