//! Signals that whoever runs the tests ignores, as a shell does for what it starts in the background. The binary under test would ignore
//! them too.

use std::fs;

use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

/// Makes programs that are started from now on begin without ignored signals: a handler of ours is reset to the default when another program
/// is executed. Outside of a runtime it does nothing.
pub(crate) fn stop_ignoring_signals() {
    if tokio::runtime::Handle::try_current().is_err() {
        return;
    }
    let ignored = ignored_signals();
    for number in [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM].map(Signal::as_raw) {
        if ignored & (1 << (number - 1)) != 0 {
            let _stays_handled = signal(SignalKind::from_raw(number)).unwrap();
        }
    }
}

/// A bit for each signal, the lowest for signal 1.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let bits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    bits.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0)
}
