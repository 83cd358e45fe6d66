//! Signals a process of which only the process id is known, and waits for processes to end. Before the signal is
//! sent, a pidfd is opened, and then the caller checks that the process id still belongs to the right process. So the
//! signal cannot reach another process that has got the same process id meanwhile. Only if no descriptor is left for
//! the pidfd, this small risk remains.

use std::collections::HashSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

/// The result of [`signal_process`].
pub(crate) enum SignalResult {
    /// The signal was sent. The pidfd tells when the process has ended. None if no descriptor was left for a pidfd.
    Sent(Option<OwnedFd>),
    /// This user may not signal the process, usually because it belongs to another user.
    NotPermitted,
    /// The process has ended, or another process has its process id. Any other error counts as this too.
    NotFound,
}

/// Signals the process with this process id. `is_same_process` is called after the pidfd was opened, and must tell whether the process id
/// still belongs to the process that the caller has found.
pub(crate) fn signal_process(pid: Pid, signal: Signal, is_same_process: impl FnOnce() -> bool) -> SignalResult {
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Some(pidfd),
        // Descriptors have run out, so the signal is sent by process id. The risk of a reused process id is tiny, and
        // the signal cannot wait for a free descriptor.
        Err(Errno::MFILE | Errno::NFILE) => None,
        Err(_) => return SignalResult::NotFound,
    };
    // A zombie accepts every signal, so a caller that repeats until nothing is left to signal would never finish.
    if pidfd.as_ref().is_some_and(has_ended) || !is_same_process() {
        return SignalResult::NotFound;
    }
    let sent = match &pidfd {
        Some(pidfd) => rustix::process::pidfd_send_signal(pidfd, signal),
        None => rustix::process::kill_process(pid, signal),
    };
    match sent {
        Ok(()) => SignalResult::Sent(pidfd),
        Err(Errno::PERM) => SignalResult::NotPermitted,
        Err(_) => SignalResult::NotFound,
    }
}

/// Whether the process has ended. It need not have been reaped.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&no_wait)), Ok(1))
}

/// The result of [`wait_for_any_end`].
#[derive(Default)]
pub(crate) struct EndedProcesses {
    /// Positions of the ended processes in the list of pidfds.
    pub(crate) indices: HashSet<usize>,
    /// Whether `wake` was readable.
    pub(crate) woken: bool,
}

/// Waits until one of these processes has ended, `wake` is readable, or the time is `until`. A signal handler or an
/// error can end the wait early; then the result is empty.
pub(crate) fn wait_for_any_end(pidfds: &[&OwnedFd], wake: Option<BorrowedFd<'_>>, until: Instant) -> EndedProcesses {
    let Ok(timeout) = Timespec::try_from(until.saturating_duration_since(Instant::now())) else {
        return EndedProcesses::default();
    };
    let mut polled: Vec<PollFd<'_>> = pidfds.iter().map(|pidfd| PollFd::new(*pidfd, PollFlags::IN)).collect();
    polled.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
    let _count_or_error = rustix::event::poll(&mut polled, Some(&timeout));
    let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
    EndedProcesses {
        indices: (0..pidfds.len()).filter(|index| polled.get(*index).is_some_and(is_ready)).collect(),
        woken: wake.is_some() && polled.last().is_some_and(is_ready),
    }
}
