//! Signalling a process that was found by its number. The number is pinned by a pidfd and looked at again before the signal is
//! sent, so that it cannot hit a process which has taken the number meanwhile.

use std::collections::HashSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

/// What became of a signal.
pub(crate) enum Strike {
    /// Sent. The pidfd tells when the process has ended; there is none if descriptors have run out.
    Sent(Option<OwnedFd>),
    /// It belongs to somebody else.
    Refused,
    /// It has ended, or another process has its number.
    Missed,
}

/// Signals the process with this number if `still_meant` says so once the number is pinned.
pub(crate) fn strike(pid: Pid, signal: Signal, still_meant: impl FnOnce() -> bool) -> Strike {
    let pidfd = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Some(pidfd),
        // Better a chance in a million of a reused number than a tree that lives on because we are short of descriptors.
        Err(Errno::MFILE | Errno::NFILE) => None,
        Err(_) => return Strike::Missed,
    };
    // A zombie takes every signal, and would be found for ever.
    if pidfd.as_ref().is_some_and(has_ended) || !still_meant() {
        return Strike::Missed;
    }
    let sent = match &pidfd {
        Some(pidfd) => rustix::process::pidfd_send_signal(pidfd, signal),
        None => rustix::process::kill_process(pid, signal),
    };
    match sent {
        Ok(()) => Strike::Sent(pidfd),
        Err(Errno::PERM) => Strike::Refused,
        Err(_) => Strike::Missed,
    }
}

/// Whether the process has ended, reaped or not.
pub(crate) fn has_ended(pidfd: &OwnedFd) -> bool {
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    matches!(rustix::event::poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&at_once)), Ok(1))
}

/// Which of some processes have ended, and whether the other descriptor was readable.
#[derive(Default)]
pub(crate) struct Ended {
    pub(crate) numbers: HashSet<usize>,
    pub(crate) woken: bool,
}

/// Waits until one of these processes has ended, reaped or not, `wake` is readable, or it is too late.
pub(crate) fn first_ended(pidfds: &[&OwnedFd], wake: Option<BorrowedFd<'_>>, until: Instant) -> Ended {
    let Ok(timeout) = Timespec::try_from(until.saturating_duration_since(Instant::now())) else {
        return Ended::default();
    };
    let mut polled: Vec<PollFd<'_>> = pidfds.iter().map(|pidfd| PollFd::new(*pidfd, PollFlags::IN)).collect();
    polled.extend(wake.map(|wake| PollFd::from_borrowed_fd(wake, PollFlags::IN)));
    let _some_or_late = rustix::event::poll(&mut polled, Some(&timeout));
    let is_ready = |polled: &PollFd<'_>| !polled.revents().is_empty();
    Ended {
        numbers: (0..pidfds.len()).filter(|number| polled.get(*number).is_some_and(is_ready)).collect(),
        woken: wake.is_some() && polled.last().is_some_and(is_ready),
    }
}
