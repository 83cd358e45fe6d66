//! The task that refuses system calls of a sandboxed process and notes them. The kernel asks the server about each call
//! that the filter of the process reports, and the call waits for the answer.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::io::unix::AsyncFd;

use crate::process::Process;

/// What the descriptor of a filter reports next.
enum FilterReport {
    /// A call was refused, or its process was killed meanwhile.
    Refused,
    /// No call waits for an answer.
    NoCall,
    /// The descriptor cannot be used any more.
    Failed,
}

/// Answers the kernel until all processes with this filter have ended. If the descriptor cannot be watched, it is
/// closed, and then the kernel fails the calls with ENOSYS instead of EPERM: a command cannot install a filter that would allow them.
pub(crate) async fn refuse_calls(filter: OwnedFd, process: Arc<Process>) {
    let Ok(filter) = spawn::watch_readable(filter) else { return };
    let next_report = |filter: &AsyncFd<OwnedFd>| {
        if !sandbox::has_reported_call(filter) {
            return FilterReport::NoCall;
        }
        // The call is noted before the process goes on, so that the exit event of the process has it.
        let refused = sandbox::refuse_next_call(filter, |call| process.denials.add(call));
        refused.map_or(FilterReport::Failed, |()| FilterReport::Refused)
    };
    take_reports(&filter, next_report).await;
}

/// Takes reports until all processes with the filter have ended or the descriptor fails.
async fn take_reports(filter: &AsyncFd<OwnedFd>, mut next_report: impl FnMut(&AsyncFd<OwnedFd>) -> FilterReport) {
    loop {
        let Ok(mut ready) = filter.readable().await else { return };
        match next_report(filter) {
            FilterReport::Refused => {}
            FilterReport::NoCall if ready.ready().is_read_closed() => return,
            FilterReport::NoCall => ready.clear_ready(),
            FilterReport::Failed => return,
        }
        // Many threads can make calls faster than this task answers them. Waiting for a descriptor that is always
        // ready does not give other tasks a turn.
        tokio::task::coop::consume_budget().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn calls_without_end_leave_time_for_other_tasks() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        // The byte stays unread, so the descriptor is always ready.
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        let filter = spawn::watch_readable(reader.into()).unwrap();
        filter.readable().await.unwrap().retain_ready();
        let other_has_run = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&other_has_run);
        let other = tokio::spawn(async move { seen.store(true, Ordering::SeqCst) });
        let mut calls = 0;
        let next_report = |_: &AsyncFd<OwnedFd>| {
            calls += 1;
            assert!(calls < 100_000, "no other task has run");
            if other_has_run.load(Ordering::SeqCst) { FilterReport::Failed } else { FilterReport::Refused }
        };
        take_reports(&filter, next_report).await;
        other.await.unwrap();
    }
}
