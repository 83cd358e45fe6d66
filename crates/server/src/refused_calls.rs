//! The task that refuses system calls of a sandboxed process and notes them. The kernel asks about each call that the
//! filter of the process refuses, and the call waits for the answer.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::process::Process;

/// Answers the kernel until all processes with this filter have ended. If the descriptor cannot be watched, it is closed, and then the kernel
/// refuses the calls by itself.
pub(crate) async fn refuse_calls(filter: OwnedFd, process: Arc<Process>) {
    let Ok(filter) = spawn::watch_readable(filter) else { return };
    loop {
        let Ok(mut ready) = filter.readable().await else { return };
        if !sandbox::has_reported_call(&filter) {
            if ready.ready().is_read_closed() {
                return;
            }
            ready.clear_ready();
            continue;
        }
        match sandbox::refuse_next_call(&filter) {
            Ok(Some(call)) => process.denials.add(call),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}
