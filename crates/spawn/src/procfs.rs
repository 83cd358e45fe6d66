//! Reads `/proc`: which processes exist, and the parent, session, state, CPU time and start time of each. Everything read here can be outdated a
//! moment later. A caller that signals a process must open a pidfd and read again first; see `signal_process`.

use std::fs;
use std::io;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags};

/// Bytes that are read of `/proc/PID/stat`. This is enough for the fields in [`Stat`]: they are among the first 22
/// fields, and these are numbers and a name of at most 64 bytes.
const STAT_BYTES: usize = 1024;
/// The most rounds in which a listing looks for new processes. Each round looks for the processes that were started
/// during the previous one. Processes that are started in the last round may be missing from the listing.
const CATCH_UP_ROUNDS: usize = 64;
/// One round tries about this many process ids at most, or twice as many if the sequence of process ids begins again
/// from 1 in that round. So many processes cannot be started during a round. The limit is for containers that show
/// invented numbers in `/proc/loadavg`.
const CATCH_UP_MAX_PIDS: i32 = 1 << 16;

/// Some fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// A letter, for example `R` for running, `T` for stopped and `Z` for a zombie.
    pub(crate) state: u8,
    pub(crate) parent: i32,
    pub(crate) session: i32,
    /// CPU time of the process without its descendants, in clock ticks.
    pub(crate) cpu_ticks: u64,
    pub(crate) threads: u32,
    /// The start time in clock ticks since boot. Together with the process id it identifies a process.
    pub(crate) started: u64,
}

impl Stat {
    /// Whether the process has ended. It need not have been reaped. A process of which only the first thread has ended is also shown as a
    /// zombie, but its other threads run on.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }

    pub(crate) fn is_ended_child_of(&self, parent: Pid) -> bool {
        self.has_ended() && self.parent == parent.as_raw_nonzero().get()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.state, b'T' | b't')
    }

    /// The CPU time that the process has used, without its descendants.
    pub(crate) fn cpu_time(&self) -> Duration {
        Duration::from_secs(self.cpu_ticks) / rustix::param::clock_ticks_per_second() as u32
    }

    /// The stat of a process that has neither ended nor been stopped.
    #[cfg(test)]
    pub(crate) fn running(parent: i32, session: i32) -> Self {
        Self { state: b'S', parent, session, cpu_ticks: 0, threads: 1, started: 0 }
    }

    fn parse(line: &[u8]) -> Option<Self> {
        // The name in parentheses may itself contain spaces and parentheses.
        let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(line.get(end_of_name + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let session = fields.nth(1)?.parse().ok()?;
        let user_ticks: u64 = fields.nth(7)?.parse().ok()?;
        let system_ticks: u64 = fields.next()?.parse().ok()?;
        let threads = fields.nth(4)?.parse().ok()?;
        let started = fields.nth(1)?.parse().ok()?;
        Some(Self { state, parent, session, cpu_ticks: user_ticks.saturating_add(system_ticks), threads, started })
    }
}

/// Reads the state of a process. Fails if descriptors or memory are lacking. None if the state cannot be read for any
/// other reason, which is nearly always that there is no such process.
pub(crate) fn stat(pid: Pid) -> io::Result<Option<Stat>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(format!("/proc/{pid}/stat"), flags, Mode::empty());
    let Some(file) = none_unless_out_of_resources(opened)? else { return Ok(None) };
    let mut buffer = [0; STAT_BYTES];
    let length = none_unless_out_of_resources(rustix::io::read(file, &mut buffer))?;
    Ok(length.and_then(|length| Stat::parse(buffer.get(..length)?)))
}

/// Turns every error into None, except a lack of descriptors or memory. Such a lack says nothing about the process,
/// and a process that could not be read must not count as ended.
fn none_unless_out_of_resources<T>(result: Result<T, Errno>) -> io::Result<Option<T>> {
    match result {
        Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(error.into()),
        other => Ok(other.ok()),
    }
}

/// Calls `visit` for every process of the machine, for some of them twice. Fails if `/proc` cannot be read.
///
/// During the listing a process can fork and exit, and the listing would miss its child. The kernel gives out process ids in sequence, so
/// the new processes are found by trying all process ids that were given out since the listing began.
pub(crate) fn each_process(mut visit: impl FnMut(Pid)) -> io::Result<()> {
    let mut seen_up_to = newest_pid()?;
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) {
            visit(pid);
        }
    }
    for _ in 0..CATCH_UP_ROUNDS {
        let newest = newest_pid()?;
        if newest == seen_up_to {
            break;
        }
        for pid in given_out_since(seen_up_to, newest, highest_pid()).filter_map(Pid::from_raw) {
            if is_process(pid)? {
                visit(pid);
            }
        }
        seen_up_to = newest;
    }
    Ok(())
}

/// The process ids that the kernel gave out after `seen_up_to`, of which `newest` was the last. After `highest` the sequence begins again
/// from 1.
fn given_out_since(seen_up_to: i32, newest: i32, highest: i32) -> impl Iterator<Item = i32> {
    let has_begun_again = newest < seen_up_to;
    let after_seen = seen_up_to.saturating_add(1);
    let at_the_end = has_begun_again.then_some(after_seen..=highest).into_iter().flatten();
    let first = if has_begun_again { 1 } else { after_seen };
    at_the_end
        .take(CATCH_UP_MAX_PIDS.unsigned_abs() as usize)
        .chain(first.max(newest.saturating_sub(CATCH_UP_MAX_PIDS))..=newest)
}

/// The current time on the clock of [`Stat::started`].
pub(crate) fn ticks_since_boot() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for writes; this clock is always there.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut now) };
    let ticks_per_second = rustix::param::clock_ticks_per_second();
    now.tv_sec.cast_unsigned() * ticks_per_second + now.tv_nsec.cast_unsigned() * ticks_per_second / 1_000_000_000
}

/// Whether this is the id of a process and not of a thread. Thread ids come from the same sequence, and `/proc/ID` exists for them too, but
/// opening a pidfd fails.
fn is_process(pid: Pid) -> io::Result<bool> {
    Ok(none_unless_out_of_resources(rustix::process::pidfd_open(pid, PidfdFlags::empty()))?.is_some())
}

/// The process id that was given out last. 0 if `/proc/loadavg` does not show it.
fn newest_pid() -> io::Result<i32> {
    let line = match fs::read_to_string("/proc/loadavg") {
        Err(error) => match Errno::from_io_error(&error) {
            Some(errno) => none_unless_out_of_resources(Err(errno))?,
            None => None,
        },
        Ok(line) => Some(line),
    };
    Ok(line.and_then(|line| line.split_ascii_whitespace().nth(4)?.parse().ok()).unwrap_or(0))
}

/// The highest process id that the kernel gives out. If it cannot be read, the highest value that it can have on any machine.
fn highest_pid() -> i32 {
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").ok();
    text.and_then(|text| text.trim().parse::<i32>().ok()).map_or(1 << 22, |ids| ids - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_is_parsed() {
        let line = b"42 (a) Z (b) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 998 1 2 3";
        let stat = Stat::parse(line).unwrap();
        assert_eq!(stat, Stat { state: b'S', parent: 7, session: 41, cpu_ticks: 11, threads: 3, started: 998 });
    }

    #[test]
    fn a_truncated_line_is_refused() {
        assert_eq!(Stat::parse(b"42 (sh) S 7 42"), None);
        assert_eq!(Stat::parse(b""), None);
    }

    #[test]
    fn a_zombie_with_other_threads_has_not_ended() {
        let stat = Stat::parse(b"42 (x) Z 7 42 41 0 -1 0 1 2 3 4 5 6 7 8 20 0 2 0 998 1").unwrap();
        assert!(!stat.has_ended());
    }

    #[test]
    fn all_process_ids_since_the_listing_are_tried_also_when_the_sequence_begins_again() {
        let since = |seen_up_to, newest| given_out_since(seen_up_to, newest, 99).collect::<Vec<_>>();
        assert_eq!(since(40, 43), [41, 42, 43]);
        assert_eq!(since(96, 2), [97, 98, 99, 1, 2]);
        assert_eq!(since(99, 1), [1]);
    }

    #[test]
    fn invented_numbers_of_containers_cost_a_bounded_number_of_tries() {
        let most = 2 * CATCH_UP_MAX_PIDS.unsigned_abs() as usize + 1;
        for (seen_up_to, newest) in [(0, i32::MAX), (i32::MAX - 1, 1), (1 << 30, 1 << 29)] {
            assert!(given_out_since(seen_up_to, newest, i32::MAX).count() <= most);
        }
    }

    #[test]
    fn this_process_is_listed_and_its_stat_is_read() {
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
