//! What `/proc` says: which processes there are, and who their parents are. Everything read here can be outdated a moment later;
//! whoever acts on it must hold a pidfd first and ask again.

use std::fs;
use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

/// Longer than any `/proc/PID/stat`, whose only variable part is a name of at most 64 bytes.
const STAT_BYTES: usize = 1024;
/// How often a census runs after processes that are being made faster than it can list them.
const CHASE_ROUNDS: usize = 64;
/// Some containers show invented numbers in `/proc/loadavg`; a chase is never this long in earnest.
const LONGEST_CHASE: i32 = 1 << 16;

/// The part of `/proc/PID/stat` that matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) state: u8,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    pub(crate) threads: u32,
    /// Clock ticks since boot; together with the pid it names a process for ever.
    pub(crate) started: u64,
}

impl Stat {
    /// Whether the process has ended, reaped or not. A process whose first thread alone has ended looks like a zombie, too, but
    /// its other threads run on.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    #[cfg(test)]
    pub(crate) fn running(parent: i32, session: i32) -> Self {
        Self { state: b'S', parent, session, threads: 1, started: 0 }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        // The name in parentheses may itself contain spaces and parentheses.
        let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(line.get(end_of_name + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        let threads = fields.nth(13)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        Some(Self { state, parent, session, threads, started })
    }
}

/// None if there is no such process. Fails if this process is short of what it needs for looking.
pub(crate) fn stat(pid: Pid) -> io::Result<Option<Stat>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let Some(file) = unless_short(rustix::fs::open(format!("/proc/{pid}/stat"), flags, Mode::empty()))? else {
        return Ok(None);
    };
    let mut buffer = [0; STAT_BYTES];
    let length = unless_short(rustix::io::read(file, &mut buffer))?;
    Ok(length.and_then(|length| Stat::parse(buffer.get(..length)?)))
}

/// None if the answer is no. An error that says nothing about the process, because this one is short of descriptors or memory, stays
/// an error: a process that was not looked at must not be taken for one that is gone.
fn unless_short<T>(result: Result<T, Errno>) -> io::Result<Option<T>> {
    match result {
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(error.into()),
        other => Ok(other.ok()),
    }
}

/// Calls `visit` for each process there is, some of them twice. Fails if it cannot see all of them.
///
/// Listing takes long enough for a process to fork and exit meanwhile, and its child would be missed. Numbers are given out in
/// sequence, so whatever was born during the listing is found by trying the numbers given out since it began.
pub(crate) fn each_process(mut visit: impl FnMut(Pid)) -> io::Result<()> {
    let mut seen_up_to = newest_pid()?;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) {
            visit(pid);
        }
    }
    for _ in 0..CHASE_ROUNDS {
        let newest = newest_pid()?;
        if newest == seen_up_to {
            break;
        }
        // A smaller number means that they have begun again from the lowest.
        let first = if newest > seen_up_to { seen_up_to + 1 } else { 1 };
        let first = first.max(newest - LONGEST_CHASE);
        for pid in (first..=newest).filter_map(Pid::from_raw) {
            if is_process(pid)? {
                visit(pid);
            }
        }
        seen_up_to = newest;
    }
    Ok(())
}

/// The time by which [`Stat::started`] is measured.
pub(crate) fn ticks_since_boot() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for writes; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    now.tv_sec.cast_unsigned() * ticks_per_second + now.tv_nsec.cast_unsigned() * ticks_per_second / 1_000_000_000
}

/// Threads have numbers out of the same sequence, and most of what can be asked about a process is answered for them, too.
fn is_process(pid: Pid) -> io::Result<bool> {
    Ok(unless_short(rustix::process::pidfd_open(pid, PidfdFlags::empty()))?.is_some())
}

/// The number given out last; 0 if this `/proc` does not tell.
fn newest_pid() -> io::Result<i32> {
    let line = match fs::read_to_string("/proc/loadavg") {
        Err(error) => match Errno::from_io_error(&error) {
            Some(errno) => unless_short(Err(errno))?,
            None => None,
        },
        Ok(line) => Some(line),
    };
    Ok(line.and_then(|line| line.split_ascii_whitespace().nth(4)?.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let line = b"42 (a) Z (b) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 998 1 2 3";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat, Stat { state: b'S', parent: 7, session: 41, threads: 3, started: 998 });
    }

    #[test]
    fn a_cut_line_is_refused() {
        assert_eq!(Stat::parse(b"42 (sh) S 7 42"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn a_zombie_with_threads_is_alive() {
        let stat = Stat::parse(b"42 (x) Z 7 42 41 0 -1 0 1 2 3 4 5 6 7 8 20 0 2 0 998 1").unwrap();
        assert!(!stat.is_gone());
    }

    #[test]
    fn we_are_among_the_processes() {
        let own = rustix::process::getpid();
        let mut found = false;
        each_process(|pid| found |= pid == own).unwrap();
        assert!(found);
        let stat = stat(own).unwrap().unwrap();
        assert!(stat.started <= ticks_since_boot());
        let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
        assert_eq!(stat.parent, parent);
    }
}
